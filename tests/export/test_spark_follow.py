"""kctl export --follow --spark: executors write what the rounds contain, and each record is in the
table once, whatever happens to the driver.

`KCTL_SPARK_KILLS=20 KCTL_TEST_SEED=7` for more kills.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random  # noqa: TID251 - seeded

import pyarrow
import pyarrow.parquet
import pytest

from kctl.export.export import ExportRequest
from kctl.export.follow import Follower
from kctl.export.follow_sources import BrokerSource, DirectorySource
from kctl.export.options import ExportOptions, TableFormat
from kctl.export.spark.brokers import Connection
from kctl.export.spark.follow_writer import SparkWriter
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.future import CancelledError
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker
from tests.export.log_files import batch_of, rows_of, write_segment
from tests.export.test_dead_letters import letters
from tests.export.test_evolution import Registry
from tests.export.test_evolution import value as registered_value
from tests.export.test_lake import read

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
KILLS = int(os.environ.get("KCTL_SPARK_KILLS", "1"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))
ROOT = Path(__file__).parents[2]
DAY_MS = 86_400_000
# Of a machine that has more to do than it can.
PATIENCE_S = 500


class Following:
    """Rounds of one run, whose splits the session's executors write."""

    def __init__(self, session, runtime, source, request, connection=None, **more):
        self.runtime = runtime
        self.said = []
        self.commits = []
        self.writer = SparkWriter(session, runtime.scheduler, connection)
        self.follower = Follower(
            runtime, source, request, every_ms=600_000, writer=self.writer,
            on_commit=self.commits.append, on_problem=self.said.append, **more,
        )  # fmt: skip

    def round(self):
        scheduler = self.runtime.scheduler
        return scheduler.run_until(scheduler.spawn(self.follower.round()))


@pytest.fixture
def runtime():
    running = make_runtime(NullTrace())
    yield running
    running.scheduler.close()


@pytest.fixture
def follow(spark, runtime, tmp_path):
    """Follow tmp_path/logs; each run has a unique name."""
    runs = 0

    def start(source=None, connection=None, topics=(), **options):
        nonlocal runs
        runs += 1
        request = ExportRequest(
            [] if connection else [str(tmp_path / "logs")], str(tmp_path / "table"),
            ExportOptions(**options), topics, run=f"run{runs}",
        )  # fmt: skip
        return Following(spark, runtime, source or DirectorySource(), request, connection)

    return start


def append(logs, partition, first, count=10):
    path = logs / f"orders-{partition}" / f"{0:020d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(batch_of(first, count))


def offsets(table, partition=0):
    return [row[2] for row in rows_of(table) if row[1] == partition]


def test_executors_write_what_a_round_contains(follow, tmp_path):
    logs = tmp_path / "logs"
    for partition in range(5):
        append(logs, partition, 0)
    run = follow()
    assert run.writer.width() == 2
    assert run.round()
    append(logs, 0, 10)
    append(logs, 7, 0, 3)
    assert run.round()
    assert run.round()

    assert offsets(tmp_path / "table") == list(range(20))
    assert [offsets(tmp_path / "table", it) for it in range(1, 5)] == [list(range(10))] * 4
    assert offsets(tmp_path / "table", 7) == [0, 1, 2]
    assert ([it.rows for it in run.commits], run.said) == ([50, 13], [])
    again = follow()
    assert again.round()
    assert (again.follower.report.rows, again.follower.report.earlier_rows) == (0, 63)


def test_a_split_that_cannot_be_read_now_waits_and_the_others_are_written(follow, tmp_path):
    class Vanishing(DirectorySource):
        """A segment is deleted between the plan and the task."""

        async def plan(self, request, wanted):
            splits = await super().plan(request, wanted)
            (tmp_path / "logs" / "orders-1" / f"{0:020d}.log").unlink(missing_ok=True)
            return splits

    for partition in range(2):
        append(tmp_path / "logs", partition, 0)
    run = follow(Vanishing())
    assert not run.round()

    assert offsets(tmp_path / "table") == list(range(10))
    assert len(run.said) == 1
    assert "was deleted while it was read" in run.said[0]


def test_topics_of_brokers_are_followed(follow, runtime, tmp_path):
    with KafkaBroker(topics=["orders:2"]) as broker:
        for number in range(20):
            broker.produce("orders", b"%d" % number, partition=number % 2)
        connection = Connection(((broker.host, broker.port),), 30_000)
        with connection.open() as opened:
            source = BrokerSource(opened.admin)
            run = follow(source, connection, ["ord*"])
            # The client lives on its own loop.
            run.follower._runtime = run.runtime = opened.runtime
            run.writer._scheduler = opened.runtime.scheduler
            run.round()
            broker.produce("orders", b"more", partition=1)
            run.round()
    assert offsets(tmp_path / "table") == list(range(10))
    assert offsets(tmp_path / "table", 1) == list(range(11))
    assert ([it.rows for it in run.commits], run.said) == ([20, 1], [])


def test_a_stop_cancels_the_job_and_the_next_run_continues(follow, runtime, tmp_path, monkeypatch):
    for partition in range(3):
        append(tmp_path / "logs", partition, 0)
    run = follow()
    task = runtime.scheduler.spawn(run.follower.run())

    def collect(tasks, splits, group, before=run.writer._collect):
        found = before(tasks, splits, group)
        runtime.scheduler.call_soon_threadsafe(task.cancel)
        return found

    monkeypatch.setattr(run.writer, "_collect", collect)
    with pytest.raises(CancelledError):
        runtime.scheduler.run_until(task)
    follow().round()
    assert [offsets(tmp_path / "table", it) for it in range(3)] == [list(range(10))] * 3


def test_changes_of_executors_are_merged(follow, tmp_path):
    """The tasks of a partition finish in any order."""
    pytest.importorskip("deltalake")
    logs = tmp_path / "logs"
    merged = {"table_format": TableFormat.DELTA, "latest_per_key": True, "file_bytes": 1024}
    for partition in range(2):
        batches = [batch_of(20 * n, 20) for n in range(10)]
        write_segment(RealDisk(), logs / f"orders-{partition}", 0, batches)
    run = follow(**merged)
    assert run.round()
    write_segment(RealDisk(), logs / "orders-1", 200, [batch_of(200, 3)])
    assert run.round()

    found = read(tmp_path / "table", TableFormat.DELTA).to_pylist()
    # Seven keys: the last seven records of a partition.
    wanted = [(0, it) for it in range(193, 200)] + [(1, it) for it in range(196, 203)]
    assert sorted((it["partition"], it["offset"]) for it in found) == wanted
    assert run.said == []


@pytest.mark.parametrize("table_format", [TableFormat.PARQUET, TableFormat.DELTA])
def test_new_columns_topics_and_expired_days_on_spark(spark, runtime, tmp_path, table_format):
    pytest.importorskip("fastavro")
    if table_format is TableFormat.DELTA:
        pytest.importorskip("deltalake")
    now_ms = runtime.clock.wall_ms()

    def write(topic, offset, number, age_days=0):
        made = Record(offset, now_ms - age_days * DAY_MS, b"k", registered_value(number))
        write_segment(
            RealDisk(), tmp_path / "logs" / f"{topic}-0", offset, [build_batch([made])],
            with_index=False,
        )  # fmt: skip

    registry = Registry(7)
    write("users", 0, 7, age_days=40)
    write("users", 1, 7)
    options = {"partition_by": ("topic", "date"), "table_format": table_format}
    compact = {"compact_bytes": 1_000_000} if table_format is TableFormat.PARQUET else {}
    run = Following(
        spark, runtime, DirectorySource(), registry.request(tmp_path, "run1", **options),
        retention_ms=30 * DAY_MS, **compact,
    )  # fmt: skip

    def turn():
        assert run.round()
        run.follower._expire()
        scheduler = runtime.scheduler
        scheduler.run_until(scheduler.spawn(run.follower._compact(runtime.clock.monotonic_ms())))

    turn()
    # A version with a new field, and a topic.
    registry.numbers.append(8)
    write("users", 2, 8)
    write("users-new", 0, 8)
    turn()
    # One that does not fit.
    registry.numbers.append(9)
    write("users", 3, 9)
    turn()

    if table_format is TableFormat.DELTA:
        table = read(tmp_path / "table", table_format).to_pylist()
    else:
        files = [it for it in (tmp_path / "table").rglob("*.parquet") if "_kctl" not in it.parts]
        table = [
            row | {"topic": path.parts[-3].removeprefix("topic=")}
            for path in files
            for row in pyarrow.parquet.ParquetFile(path).read().to_pylist()
        ]
    found = sorted((row["topic"], row["offset"], row["value"].get("mail")) for row in table)
    assert found == [("users", 1, None), ("users", 2, "m"), ("users-new", 0, "m")]
    assert letters(tmp_path, "offset") == [(3,)]
    assert (run.follower.expired_files, run.said) == (1, [])


class Command:
    """kctl export --follow --spark over tmp_path/logs, in a process group of its own."""

    def __init__(self, tmp_path):
        self.table = tmp_path / "table"
        self.errors = tmp_path / "stderr"
        words = (
            "export", "--follow", "--every", "200ms", "--spark", "--master", "local[2]",
            tmp_path / "logs", "--file-size", "8k", "--out", self.table, "-o", "json",
        )  # fmt: skip
        environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kctl", *map(str, words)], start_new_session=True,
                stdout=subprocess.PIPE, stderr=errors, env=environment, text=True,
            )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.signal(signal.SIGKILL)
        self.process.communicate()

    def signal(self, number):
        """To the command, its JVM and the processes of its tasks."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def has(self, expected):
        """Wait until the table has the offsets of the partitions from 0 on up to these ends."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and not self._has(expected):
            assert time.monotonic() < deadline, self.errors.read_text()
            time.sleep(0.1)
        assert self.process.poll() is None, self.errors.read_text()

    def _has(self, expected):
        try:
            return all(
                set(found) >= set(range(end))
                for found, end in zip(all_offsets(self.table), expected, strict=True)
            )
        except (OSError, pyarrow.ArrowInvalid):
            # There is no file yet.
            return False


def all_offsets(table):
    return [offsets(table, partition) for partition in range(3)]


@pytest.mark.slow
def test_a_killed_driver_is_continued_and_a_signal_to_all_processes_ends_it_cleanly(tmp_path):
    rng = Random(SEED)
    ends = [0, 0, 0]

    def grow():
        for partition in range(3):
            for _ in range(20):
                append(tmp_path / "logs", partition, ends[partition], 50)
                ends[partition] += 50

    for _ in range(KILLS):
        before = ends.copy()
        grow()
        with Command(tmp_path) as command:
            # More than when it began: it is past its start.
            command.has([end + 1 for end in before])
            # Into the middle of a round.
            grow()
            time.sleep(rng.random())
            command.signal(signal.SIGKILL)
    # Certainly not written by the last run: the next one is past its start when the table has it.
    grow()
    with Command(tmp_path) as command:
        command.has(ends)
        # As a terminal does on Ctrl-C: the JVM and the processes of tasks receive it, too.
        command.signal(signal.SIGINT)
        out, _ = command.process.communicate(timeout=PATIENCE_S)
        status = command.process.returncode
    assert status == 130, (tmp_path / "stderr").read_text()
    report = json.loads(out)[0]
    assert report["rows"] + report["earlier_rows"] == sum(ends)
    logged = [
        ("orders", partition, offset, b"k%d" % (offset % 7), b'{"n":%d}' % offset)
        for partition, end in enumerate(ends)
        for offset in range(end)
    ]
    assert rows_of(tmp_path / "table") == logged
