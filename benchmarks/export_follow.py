"""Measures whether `kctl export --follow` keeps up with a broker that is written to all the time.

    python -m benchmarks.export_follow [--rate 50] [--seconds 120] [--every 5] [--megabytes 300]

`kctl serve` takes batches of 110-byte records at `rate` MB/s in four partitions, and a process
follows them into Parquet. The lag is the age of the oldest record that the table lacks, looked for
many times a second; the memory is the most that the process had, shared libraries included. The
last lines are verdicts; the exit status is 1 if one is missed.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from pathlib import Path

from benchmarks.export import processor_seconds
from benchmarks.measures import make_batch
from benchmarks.servers import Client, Kctl
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PARTITIONS = 4
BATCH_BYTES = 900_000
TOPIC = "clicks"
_PRODUCE_VERSION = 8
_CATCH_UP_SECONDS = 60


class Table:
    """What the manifest of a followed table has, and how late it was."""

    def __init__(self, out: Path) -> None:
        self._lines = out / "_kctl" / "manifest"
        self._seen: set[str] = set()
        self.rows = 0

    def look(self) -> bool:
        """Count new rows; return whether there are some."""
        before = self.rows
        for path in self._lines.glob("*.jsonl"):
            if path.name not in self._seen:
                self._seen.add(path.name)
                self.rows += sum(json.loads(it)["rows"] for it in path.read_text().splitlines())
        return self.rows > before


class Feeder:
    """Writes at a rate, and knows when each record was written."""

    def __init__(self, client: Client, rate: float) -> None:
        self._client = client
        self._data = make_batch(BATCH_BYTES, 0)
        self._records = int.from_bytes(self._data[57:61], "big")
        self._pause = len(self._data) / (rate * 1e6)
        self.moments: list[float] = []
        self.totals: list[int] = []

    def step(self, began: float) -> None:
        """Write the next batch when it is due."""
        number = len(self.moments)
        time.sleep(max(0.0, began + number * self._pause - time.monotonic()))
        part = PartitionProduceData(partition_index=number % PARTITIONS, records=self._data)
        topics = [TopicProduceData(name=TOPIC, partitions=[part])]
        self._client.ask(ProduceRequest(acks=1, timeout_ms=30_000, topics=topics), _PRODUCE_VERSION)
        self.moments.append(time.monotonic())
        self.totals.append((number + 1) * self._records)

    def lag(self, rows: int) -> float:
        """Return the age of the oldest record after the first `rows`; 0 if there is none."""
        at = bisect_right(self.totals, rows)
        return time.monotonic() - self.moments[at] if at < len(self.moments) else 0.0

    @property
    def megabytes(self) -> float:
        """Return what was written."""
        return len(self.moments) * len(self._data) / 1e6


def memory_mib(pid: int) -> float:
    """Return the most memory that a process has had."""
    words = Path(f"/proc/{pid}/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) / 1024


def follow(root: Path, address: str, client: Client, given: argparse.Namespace) -> int:
    """Feed and follow; print figures and verdicts."""
    out = root / "table"
    command = [
        sys.executable, "-m", "kctl", "export", "--follow", "--every", f"{given.every:g}s",
        "-b", address, "-t", TOPIC, "--out", str(out),
    ]  # fmt: skip
    feeder, table = Feeder(client, given.rate), Table(out)
    began = time.monotonic()
    feeder.step(began)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        own = time.process_time()
        worst = 0.0
        while time.monotonic() - began < given.seconds:
            feeder.step(began)
            worst = max(worst, feeder.lag(table.rows))
            table.look()
        fed = time.monotonic() - began
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while table.rows < feeder.totals[-1] and time.monotonic() < deadline:
            worst = max(worst, feeder.lag(table.rows))
            table.look()
            time.sleep(0.02)
        used = processor_seconds(process.pid) - time.process_time()
        peak = memory_mib(process.pid)
        process.send_signal(signal.SIGINT)
    rate = feeder.megabytes / fed
    sys.stdout.write(
        f"{rate:.1f} MB/s for {fed:.0f} s (feeder {time.process_time() - own:.1f} s of processor); "
        f"follower: {used / feeder.megabytes * 100:.2f} s of processor for 100 MB\n"
    )
    goals = [
        (f"fed at {given.rate:g} MB/s", f"{rate:.1f}", rate >= 0.98 * given.rate),
        ("all rows are in the table", f"{table.rows}", table.rows == feeder.totals[-1]),
        (f"lag at most {given.every:g} s", f"{worst:.1f} s", worst <= given.every),
        (f"memory below {given.megabytes} MiB", f"{peak:.0f} MiB", peak < given.megabytes),
    ]
    for name, measured, is_reached in goals:
        sys.stdout.write(f"{'reached' if is_reached else 'MISSED'}: {name}: {measured}\n")
    return 0 if all(it[2] for it in goals) else 1


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--megabytes", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kctl-bench-") as name:
        server = Kctl(Path(name))
        server.start()
        try:
            server.create_topic(TOPIC, PARTITIONS)
            with contextlib.closing(Client(server.port)) as client:
                return follow(Path(name), server.address, client, given)
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
