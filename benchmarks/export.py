"""Compares kctl's export to Parquet with Spark's own Kafka source, in rows per second.

    python tests/support/apache_kafka.py 2.7.2 && python tests/support/spark_kafka.py
    python -m benchmarks.export [--mb 1000] [--rounds 3] [--compression snappy]

The same records are in a log directory, and served from a copy of it by Apache Kafka 2.7.2. Spark's
source is tuned (minPartitions, fetch sizes). One Spark session (local[2]) runs both in turns, after
a warm-up. The output is medians of elapsed and processor time (of Spark and its tasks, not of the
broker), their ratios, which are what matters, and the relative size of the files. The JVM's start
is not included. All candidates compress with the same codec, by default Spark's, except the one
that is named for kctl's own default.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from random import Random  # noqa: TID251 - seeded
from typing import Any

from kctl.cli.app import run as kctl
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.options import Compression, ExportOptions
from kctl.export.spark.runner import make_session, spark_runner
from kctl.export.spark.source import KctlDataSource
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import CompressionType
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.spark_gateway import start_spark_gateway
from tests.export.log_files import write_segment
from tests.support import apache_kafka, spark_kafka
from tests.support.zookeeper import running_zookeeper

PARTITIONS = 2
BATCH_BYTES = 64 * 1024
SEGMENT_BYTES = 128 * 1024 * 1024
# Fetch sizes with which Spark's source is fastest.
TUNED = {
    "minPartitions": "4", "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "52428800", "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": "4194304",
}  # fmt: skip
SETTINGS = {"log.retention.ms": "-1", "log.cleaner.enable": "false"}


def write_topic(directory: Path, topic: str, value_bytes: int, total_bytes: int) -> int:
    """Write segments of lz4 batches whose values compress like JSON; return the record count."""
    rng = Random(value_bytes)
    words = [rng.randbytes(4).hex().encode() for _ in range(2000)]
    count = max(1, BATCH_BYTES // (value_bytes + 30))
    records = 0
    for partition in range(PARTITIONS):
        offset = written = 0
        while written < total_bytes // PARTITIONS:
            batches: list[bytes] = []
            base, size = offset, 0
            while size < min(SEGMENT_BYTES, total_bytes // PARTITIONS - written):
                builder = RecordBatchBuilder(
                    base_offset=offset, compression_type=CompressionType.LZ4
                )
                for _ in range(count):
                    value = b" ".join(rng.choices(words, k=value_bytes // 9 + 1))[:value_bytes]
                    key = b"user-%06d" % rng.randrange(100_000)
                    builder.append(timestamp=1_600_000_000_000 + offset, key=key, value=value)
                    offset += 1
                batches.append(bytes(builder.build()))
                size += count * (value_bytes + 20)
            write_segment(RealDisk(), directory / f"{topic}-{partition}", base, batches)
            written += size
        records += offset
    return records


def processor_seconds(pid: int) -> float:
    """Return the processor time of this process, another one and its children."""
    found: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks = sum(map(int, words[11:15]))
        found[int(path.parent.name)] = int(words[1]), ticks / os.sysconf("SC_CLK_TCK")
    family = {pid}
    while more := {it for it, (parent, _) in found.items() if parent in family} - family:
        family |= more
    return time.process_time() + sum(found[it][1] for it in family if it in found)


def measure(
    title: str, rows: int, rounds: int, pid: int, works: dict[str, Callable[[Path], object]]
) -> None:
    """Run the candidates in turns and print medians."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    used: dict[str, list[float]] = {name: [] for name in works}
    sizes: dict[str, int] = {}
    for number in range(rounds + 1):
        for name, work in works.items():
            out = Path(tempfile.mkdtemp(prefix="kctl-export-"))
            start, before = time.perf_counter(), processor_seconds(pid)
            work(out / "table")
            if number:
                seconds[name].append(time.perf_counter() - start)
                used[name].append(processor_seconds(pid) - before)
            sizes[name] = sum(path.stat().st_size for path in out.rglob("*.parquet"))
            shutil.rmtree(out)
    base = statistics.median(seconds["spark-sql-kafka"])
    base_used = statistics.median(used["spark-sql-kafka"])
    for name, measured in seconds.items():
        median, processor = statistics.median(measured), statistics.median(used[name])
        sys.stdout.write(
            f"{title:8} {name:24} {median:7.2f} s {rows / median / 1e6:7.2f} M rows/s "
            f"{base / median:6.2f} times; processor {processor:6.2f} s "
            f"{base_used / processor:6.2f} times; "
            f"files {sizes[name] / sizes['spark-sql-kafka']:.2f}\n"
        )
    sys.stdout.flush()


def works_of(
    session: Any, logs: Path, topic: str, address: str, codec: Compression
) -> dict[str, Any]:
    """Return the candidates: ways from the topic to Parquet."""
    count = 0

    def export(runner: Any, out: Path, compression: Compression = codec) -> None:
        nonlocal count
        count += 1
        # As many files as Spark's source has tasks.
        options = ExportOptions(file_bytes=32 * 1024 * 1024, compression=compression)
        export_logs(
            ExportRequest([str(logs)], str(out), options, [topic], run=f"run{count}"), runner
        )

    def frame(kind: str, options: dict[str, str], path: str | None, out: Path) -> None:
        read = session.read.format(kind).options(subscribe=topic, includeHeaders="true", **options)
        frame = read.load(path) if path else read.load()
        frame.write.option("compression", codec.value).parquet(str(out))

    def live(out: Path) -> None:
        words = ["export", "-b", address, "-t", topic, "--out", str(out), "--file-size", "32MiB",
                 "--compression", codec.value]  # fmt: skip
        with redirect_stdout(TextIOWrapper(BytesIO())):
            status = kctl(words)
        if status != 0:
            raise SystemExit("kctl export -b failed")

    kafka = {"kafka.bootstrap.servers": address, "startingOffsets": "earliest", **TUNED}
    return {
        "spark-sql-kafka": lambda out: frame("kafka", kafka, None, out),
        "kctl export --spark": lambda out: export(spark_runner(session), out),
        "with kctl's zstd": lambda out: export(spark_runner(session), out, Compression.ZSTD),
        "kctl export": lambda out: export(run_here, out),
        "kctl export -b": live,
        "DataFrame of kctl": lambda out: frame("kctl", {"minPartitions": "4"}, str(logs), out),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compression", type=Compression, default=Compression.SNAPPY)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kctl-bench-"))
    logs, broker = root / "logs", root / "broker"
    sizes = {"b100": 100, "b1024": 1024}
    rows = {topic: write_topic(logs, topic, size, given.mb * 10**6)
            for topic, size in sizes.items()}  # fmt: skip
    shutil.copytree(logs, broker / "logs")
    try:
        with spark_beside_kafka(broker) as (session, pid, address):
            session.dataSource.register(KctlDataSource)
            for topic in sizes:
                kctl(["topic", "create", topic, "-p", str(PARTITIONS), "-b", address])
                works = works_of(session, logs, topic, address, given.compression)
                measure(topic, rows[topic], given.rounds, pid, works)
    finally:
        shutil.rmtree(root)


@contextmanager
def spark_beside_kafka(directory: Path) -> Iterator[tuple[Any, int, str]]:
    """Yield a warm session in local[2], its JVM's process, and the address of Apache Kafka 2.7.2,
    whose logs are in `directory`."""
    jars = spark_kafka.jars()
    if jars is None or apache_kafka.libs() is None:
        raise SystemExit("fetch the jars first: see the first lines of benchmarks/export.py")
    conf = [
        ("spark.master", "local[2]"), ("spark.ui.enabled", "false"), ("spark.log.level", "ERROR"),
        ("spark.driver.memory", "2g"), ("spark.jars", ",".join(map(str, jars))),
        # With Spark's JVM defaults: `kctl export --spark` makes the JVM start fast instead.
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=4"),
    ]  # fmt: skip
    store = directory / "zookeeper"
    store.mkdir(parents=True)
    gateway = start_spark_gateway(conf)
    try:
        with (
            running_zookeeper(store) as zookeeper,
            apache_kafka.apache_broker(directory, zookeeper.address, settings=SETTINGS) as address,
        ):
            session = make_session(conf)
            yield session, gateway.pid, address
            session.stop()
    finally:
        gateway.close()


if __name__ == "__main__":
    main()
