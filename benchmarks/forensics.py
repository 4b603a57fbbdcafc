"""kctl dump-log and verify-log against kafka-dump-log 2.7.2 on one big segment, in one run.

python -m benchmarks.forensics [--megabytes 500] [--rounds 3]

Each command runs in a process of its own, ours and theirs in turn; CPU seconds are medians over
the rounds, and steadier than wall seconds. Needs Java and the jars (tests/support/apache_kafka.py).
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kctl.records.builder import RecordBatchBuilder
from kctl.repair.rebuild import Wanted, rebuild
from kctl.runtime.real.disk import RealDisk
from tests.support.apache_kafka import java_command

RECORDS_PER_BATCH = 150
VALUE_BYTES = 100
# Batches made one by one; the rest of the file repeats them at other offsets.
MADE_BATCHES = 2_000
KCTL = [sys.executable, "-m", "kctl"]
# Command -> how many times less CPU than theirs.
GOALS = {
    "dump-log --format kafka --deep-iteration": 10.0,
    "dump-log --format kafka --print-data-log": 10.0,
}


def make_log(directory: Path, megabytes: int) -> Path:
    """A segment of records with 12-byte keys and 100-byte values, 16 KiB batches, no codec."""
    made = [_batch(number) for number in range(MADE_BATCHES)]
    path = directory / f"{0:020d}.log"
    offset = 0
    with path.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            batch = made[offset // RECORDS_PER_BATCH % MADE_BATCHES]
            batch[0:8] = offset.to_bytes(8, "big")
            file.write(batch)
            offset += RECORDS_PER_BATCH
    rebuild(RealDisk(), str(directory), Wanted())
    return path


def _batch(number: int) -> bytearray:
    builder = RecordBatchBuilder(partition_leader_epoch=0)
    for i in range(RECORDS_PER_BATCH):
        n = number * RECORDS_PER_BATCH + i
        builder.append(
            timestamp=1_600_000_000_000 + n, key=b"key-%08d" % n,
            value=(b"value-%09d-" % n * 8)[:VALUE_BYTES],
        )  # fmt: skip
    return builder.build()


def measure(command: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of one run whose output goes to a file."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        subprocess.run(command, stdout=output, stderr=subprocess.DEVNULL, check=True)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall


def commands(path: Path) -> dict[str, tuple[list[str], str]]:
    """Name -> what runs, and which of theirs it is held against."""
    theirs = [*java_command("2.7.2", "kafka.tools.DumpLogSegments", heap="512M", flags=()),
              "--files", str(path)]  # fmt: skip
    ours = [*KCTL, "dump-log"]
    return {
        "kafka-dump-log --deep-iteration": ([*theirs, "--deep-iteration"], ""),
        "kafka-dump-log --print-data-log": ([*theirs, "--print-data-log"], ""),
        "dump-log --format kafka --deep-iteration": (
            [*ours, "--format", "kafka", "--deep-iteration", str(path)], "--deep-iteration"),
        "dump-log --deep-iteration": (
            [*ours, "--deep-iteration", str(path)], "--deep-iteration"),
        "dump-log --format kafka --print-data-log": (
            [*ours, "--format", "kafka", "--print-data-log", str(path)], "--print-data-log"),
        "dump-log --print-data-log": (
            [*ours, "--print-data-log", str(path)], "--print-data-log"),
        "dump-log --stats": ([*ours, "--stats", str(path)], "--deep-iteration"),
        "verify-log": ([*KCTL, "verify-log", str(path.parent)], "--deep-iteration"),
        "verify-log --quick": ([*KCTL, "verify-log", "-q", str(path.parent)], "--deep-iteration"),
    }  # fmt: skip


def main(megabytes: int, rounds: int) -> None:
    """Print a row for each command."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as root:
        directory = Path(root) / "bench-0"
        directory.mkdir()
        path = make_log(directory, megabytes)
        size = path.stat().st_size
        rows = commands(path)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
        for _ in range(rounds):
            for name, (command, _) in rows.items():
                times[name].append(measure(command))
        tiny = Path(root) / "tiny-0" / f"{0:020d}.log"
        tiny.parent.mkdir()
        tiny.write_bytes(_batch(0))
        tiny_wall = min(measure([*KCTL, "dump-log", str(tiny)])[1] for _ in range(5))
    cpu = {name: statistics.median(it[0] for it in found) for name, found in times.items()}
    wall = {name: statistics.median(it[1] for it in found) for name, found in times.items()}
    lines = [
        f"{size} bytes, medians of {rounds}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        f"{'':44} {'CPU s':>7} {'wall s':>7} {'CPU x':>6} {'wall x':>6} {'MB/s CPU':>9}  goal",
    ]
    for name, (_, against) in rows.items():
        theirs = f"kafka-dump-log {against}"
        ratios = goal = ""
        if against:
            ratios = f"{cpu[theirs] / cpu[name]:6.1f} {wall[theirs] / wall[name]:6.1f}"
        if name in GOALS:
            is_met = cpu[theirs] / cpu[name] >= GOALS[name]
            goal = f"  CPU x >= {GOALS[name]:g}: {'yes' if is_met else 'no'}"
        speed = size / 1e6 / cpu[name]
        lines.append(
            f"{name:44} {cpu[name]:7.2f} {wall[name]:7.2f} {ratios:>13} {speed:9.0f}{goal}"
        )
    lines.append(f"a tiny file dumped: {tiny_wall:.3f} s")
    print("\n".join(lines))  # noqa: T201 - a benchmark prints


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500, help="size of the segment")
    parser.add_argument("--rounds", type=int, default=3, help="how often each command runs")
    options = parser.parse_args()
    main(options.megabytes, options.rounds)
