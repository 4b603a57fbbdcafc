"""All speed goals of `kctl mirror` in one run, each with a verdict.

    python -m benchmarks.mirror_goals [--megabytes N] [--records N] [--seconds N]

Beside MirrorMaker 2 of Apache Kafka 2.7.2 (`tasks.max` 4, at least once), between two kctl brokers:
megabytes per second of 1 KiB records at least once (3 times; lz4: 5) and exactly once (2 times),
peak memory (an eighth), time to the first record (a tenth), p99 latency at 1,000 records a second
(50 ms). `kctl mirror verify` on two cores: 200 MB/s, and 200 of 200 planted faults in `--records`
records, with no false alarm. About ten minutes. The machine must be quiet: brokers, mirrors and
clients share its cores. The exit status is 1 if a goal is missed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.innocent_producer import percentile
from benchmarks.mirror import CODECS, Figures, run_mirrors, show
from benchmarks.mirror_latency import measured_latencies
from benchmarks.mirror_verify import measured_directories
from kctl.mirror.places import DirectoryPlace, Loop
from kctl.mirror.verification import VerifyRequest, plan_verification, verify_partition
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.processes import map_in_processes
from kctl.runtime.trace import NullTrace
from tests.mirror.planted import Fault, write_planted

RATE = 1_000
FAULTS = 200
VERIFY_MB = 400


class Goal(NamedTuple):
    """A goal, what was measured, and whether it was reached."""

    name: str
    limit: str
    measured: str
    is_reached: bool


def at_least(name: str, measured: float, limit: float, unit: str) -> Goal:
    """Return a goal for a value that must not be smaller."""
    return Goal(name, f"≥ {limit:g} {unit}", f"{measured:.1f} {unit}", measured >= limit)


def at_most(name: str, measured: float, limit: float, unit: str) -> Goal:
    """Return a goal for a value that must not be larger."""
    return Goal(name, f"≤ {limit:g} {unit}", f"{measured:.3g} {unit}", measured <= limit)


def copying(megabytes: int) -> Iterator[Goal]:
    """Yield the goals of MB/s, memory and the first record."""
    for codec, least in (("none", 3.0), ("lz4", 5.0)):
        exactly, at_least_once, mm2 = run_mirrors(megabytes, CODECS[codec], 1024)

        def speed(it: Figures) -> float:
            return megabytes / max(it.last_s - it.first_s, 0.1)

        text = f"1 KiB, {codec}"
        ratio = speed(at_least_once) / speed(mm2)
        yield at_least(f"{text}: MB/s at least once", ratio, least, "x MirrorMaker 2")
        ratio = speed(exactly) / speed(mm2)
        yield at_least(f"{text}: MB/s exactly once", ratio, 2, "x MirrorMaker 2")
        ours = max(exactly.peak_mb, at_least_once.peak_mb)
        yield at_most(f"{text}: memory", ours / mm2.peak_mb, 1 / 8, "x MirrorMaker 2")
        yield at_most(f"{text}: memory", ours, 150, "MB")
        ours = max(exactly.first_s, at_least_once.first_s)
        yield at_most(f"{text}: first record", ours / mm2.first_s, 1 / 10, "x MirrorMaker 2")
        cpu = at_least_once.cpu_s / mm2.cpu_s
        yield at_most(f"{text}: CPU per MB at least once", cpu, 1 / 4, "x MirrorMaker 2")


def latency(seconds: float) -> Iterator[Goal]:
    """Yield the goals of latency; MirrorMaker 2 has none."""
    for name, found in measured_latencies(seconds, RATE):
        p50, p99 = percentile(found, 50), percentile(found, 99)
        show(f"{name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(found):,} records")
        if "at least once" in name:
            yield at_most(f"{name}: p50 at {RATE:,} records/s", p50, 10, "ms")
            yield at_most(f"{name}: p99 at {RATE:,} records/s", p99, 50, "ms")


def verifying() -> Iterator[Goal]:
    """Yield the goals of MB/s; other batches than equal ones have none, and are shown."""
    with tempfile.TemporaryDirectory() as directory:
        for name, speed in measured_directories(Path(directory), VERIFY_MB):
            if "equal" in name:
                yield at_least(f"verify, {name} batches", speed, 200, "MB/s")


def planted(root: Path, records: int, partition: int, codec: int) -> list[Fault]:
    """Write half of the records with half of the faults."""
    return write_planted(
        RealDisk(), root, partition, records // 2, FAULTS // 2, partition, compression_type=codec
    )


def faults(records: int) -> Iterator[Goal]:
    """Yield the goal of planted faults: one partition has the same batches, the other gzip."""
    with tempfile.TemporaryDirectory() as directory, ProcessPoolExecutor(2) as pool:
        root = Path(directory)
        expected = list(pool.map(planted, [root] * 2, [records] * 2, (0, 1), (0, 1)))
        places = [DirectoryPlace((str(root / side),)) for side in ("source", "target")]
        with Loop(partial(make_runtime, NullTrace())) as loop:
            tasks = plan_verification(VerifyRequest(*places), loop)
        began = time.perf_counter()
        found = sorted(
            map_in_processes(verify_partition, tasks, 2, lambda _done: None),
            key=lambda it: it.task.source_partition,
        )
        elapsed = time.perf_counter() - began
    hits = alarms = 0
    for result, these in zip(found, expected, strict=True):
        rows = {
            (it.kind.value, it.source_offset, it.target_offset, it.count, it.fields)
            for it in result.result.differences.listed
        }
        wanted = {it.difference for it in these}
        hits += len(rows & wanted)
        alarms += len(rows - wanted) + result.result.differences.unlisted
    mb = sum(it.result.source_bytes for it in found) / 1e6
    show(
        f"{records:,} records of 100 bytes, half of them in other batches: {mb / elapsed:.0f} MB/s"
    )
    yield Goal(
        f"faults in {records:,} records", f"{FAULTS} of {FAULTS}, no false alarm",
        f"{hits} of {FAULTS}, {alarms} false", hits == FAULTS and not alarms,
    )  # fmt: skip


def main() -> int:
    """Measure each part and print the verdicts."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    given = parser.parse_args()
    parts: list[Callable[[], Iterator[Goal]]] = [
        lambda: copying(given.megabytes), lambda: latency(given.seconds), verifying,
        lambda: faults(given.records),
    ]  # fmt: skip
    goals: list[Goal] = []
    began = time.monotonic()
    for part in parts:
        for goal in part():
            goals.append(goal)
            show(f"{'reached' if goal.is_reached else 'MISSED'}: {goal.name}: {goal.measured}")
            sys.stdout.flush()
    show(f"\n{time.monotonic() - began:.0f} s\n\n| goal | limit | measured | |\n|---|---|---|---|")
    for it in goals:
        show(f"| {it.name} | {it.limit} | {it.measured} | {'✓' if it.is_reached else '✗'} |")
    return 0 if all(it.is_reached for it in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
