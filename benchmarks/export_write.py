"""Compares kctl's writer for Spark with Spark's own Kafka sink, and checks the goal.

    python tests/support/apache_kafka.py 2.7.2 && python tests/support/spark_kafka.py
    python -m benchmarks.export_write [--mb 1000] [--rounds 3] [--bytes 100,1024] [--codecs lz4]

A Parquet table of keys and values is written to topics of Apache Kafka 2.7.2 by both, in turns, in
one Spark session (local[2]), after a warm-up. Both have the same settings, with which Spark's sink
is fastest. Times are medians, elapsed and of the processor (of Spark and its tasks, not of the
broker). The last column is the verdict; the exit status is 1 if the goal is missed.
"""

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

from benchmarks.export import processor_seconds, spark_beside_kafka, write_topic
from kctl.cli.app import run as kctl
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.options import ExportOptions
from kctl.export.spark.source import KctlDataSource

GOAL = 1.5
PARTITIONS = 4
TUNED = {
    "kafka.batch.size": "262144", "kafka.linger.ms": "10", "kafka.buffer.memory": "67108864",
    "kafka.acks": "all",
}  # fmt: skip


def make_table(root: Path, value_bytes: int, total_bytes: int) -> tuple[Path, int]:
    """Write a Parquet table in files of some megabytes; return where it is, and its rows."""
    logs, table = root / f"logs{value_bytes}", root / f"table{value_bytes}"
    rows = write_topic(logs, "rows", value_bytes, total_bytes)
    options = ExportOptions(columns=("key", "value"), file_bytes=32 * 1024 * 1024)
    export_logs(ExportRequest([str(logs)], str(table), options), run_here)
    return table, rows


def silently(words: list[str]) -> None:
    """Run a command of kctl without its output."""
    with redirect_stdout(TextIOWrapper(BytesIO())):
        kctl(words)


def compare(
    session: Any, pid: int, address: str, title: str, table: Path, codec: str, rounds: int
) -> bool:
    """Write the table by turns; print medians and return whether the goal is reached."""
    seconds: dict[str, list[float]] = {"kafka": [], "kctl": []}
    used: dict[str, list[float]] = {"kafka": [], "kctl": []}
    for number in range(rounds + 1):
        for kind in seconds:
            topic = f"{kind}-{title}-{codec}-{number}"
            silently(["topic", "create", topic, "-p", str(PARTITIONS), "-b", address])
            writer = session.read.parquet(str(table)).write.format(kind).mode("append")
            writer = writer.options(**TUNED).option("kafka.compression.type", codec)
            writer = writer.option("kafka.bootstrap.servers", address).option("topic", topic)
            start, before = time.perf_counter(), processor_seconds(pid)
            writer.save()
            if number:
                seconds[kind].append(time.perf_counter() - start)
                used[kind].append(processor_seconds(pid) - before)
            silently(["topic", "delete", topic, "-b", address, "--yes"])
    elapsed = {kind: statistics.median(it) for kind, it in seconds.items()}
    processor = {kind: statistics.median(it) for kind, it in used.items()}
    ratio = elapsed["kafka"] / elapsed["kctl"]
    sys.stdout.write(
        f"{title} {codec:5} Spark {elapsed['kafka']:.2f} s (processor {processor['kafka']:.2f}), "
        f"kctl {elapsed['kctl']:.2f} s ({processor['kctl']:.2f}): {ratio:.2f} times, processor "
        f"{processor['kafka'] / processor['kctl']:.2f}; "
        f"{'reached' if ratio >= GOAL else 'MISSED'}: {GOAL} times\n"
    )
    sys.stdout.flush()
    return ratio >= GOAL


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", default="100,1024")
    parser.add_argument("--codecs", default="none,lz4")
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="kctl-bench-") as name:
        root = Path(name)
        sizes = [int(it) for it in given.bytes.split(",")]
        tables = {size: make_table(root, size, given.mb * 10**6) for size in sizes}
        with spark_beside_kafka(root / "broker") as (session, pid, address):
            session.dataSource.register(KctlDataSource)
            for size, (table, rows) in tables.items():
                sys.stdout.write(f"{rows} rows of {size} bytes\n")
                for codec in given.codecs.split(","):
                    title = f"b{size}"
                    found.append(compare(session, pid, address, title, table, codec, given.rounds))
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
