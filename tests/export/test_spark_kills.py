"""A killed driver, executor or stream on Spark: no row is duplicated and none is missing."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random  # noqa: TID251 - seeded

import pyarrow.dataset
import pytest
from confluent_kafka import Producer

from kctl.runtime.real.disk import RealDisk
from kctl.testing.kafka_broker import KafkaBroker
from tests.export.log_files import batch_of, rows_of, write_segment
from tests.support import spark_cluster

pytestmark = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.filterwarnings("ignore"),
]  # fmt: skip
KILLS = int(os.environ.get("KCTL_SPARK_KILLS", "3"))
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))
ROOT = Path(__file__).parents[2]
STREAM = """
import sys
from importlib.util import find_spec
from tests.support.spark_session import local_session, patiently

with local_session() as spark:
    read = spark.readStream.format("kctl").option("startingOffsets", "earliest")
    if find_spec("pyspark.sql.streaming.datasource") is not None:
        read = read.option("maxOffsetsPerTrigger", "300")
    sink = read.load(sys.argv[1] + "/logs").writeStream.format("parquet")
    sink = sink.option("checkpointLocation", sys.argv[1] + "/checkpoint")
    sink = sink.option("path", sys.argv[1] + "/sink").trigger(processingTime="0 seconds")

    def follow():
        query = sink.start()
        print("running", flush=True)
        if len(sys.argv) > 2:
            query.processAllAvailable()
            query.stop()
        else:
            query.awaitTermination()

    patiently(follow)
"""

# From the topic `in` to the topic `out`, exactly once, with small batches.
COPY = """
import sys
from importlib.util import find_spec
from tests.support.spark_session import local_session, patiently

brokers = {"kafka.bootstrap.servers": sys.argv[2]}
group = {"kafka.group.id": "lag", "kctl.commit.offsets": "true"}
with local_session() as spark:
    read = spark.readStream.format("kctl").options(**brokers, **group).option("subscribe", "in")
    read = read.option("startingOffsets", "earliest")
    if find_spec("pyspark.sql.streaming.datasource") is not None:
        read = read.option("maxOffsetsPerTrigger", "400")
    sink = read.load().select("key", "value").writeStream.format("kctl").options(**brokers)
    sink = sink.option("topic", "out").option("kctl.exactly.once", "true")
    sink = sink.option("checkpointLocation", sys.argv[1] + "/checkpoint")
    sink = sink.trigger(processingTime="0 seconds")

    def follow():
        query = sink.start()
        print("running", flush=True)
        if len(sys.argv) > 3:
            query.processAllAvailable()
            query.stop()
        else:
            query.awaitTermination()

    patiently(follow)
"""


def append(tmp_path, first, count):
    """Records [first, first + count) of orders, in a new segment."""
    batches = [batch_of(offset, 50) for offset in range(first, first + count, 50)]
    write_segment(RealDisk(), tmp_path / "logs" / "orders-0", first, batches)


def records_of(end):
    """Offset, key and value of what `append` has written up to this offset."""
    return [(offset, b"k%d" % (offset % 7), b'{"n":%d}' % offset) for offset in range(end)]


def kill_all(process):
    """The command, its JVM and the Python processes of its tasks, as when a machine is lost."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def start(tmp_path):
    """Start Python in a separate process group, which is killed after the test."""
    pytest.importorskip("pyspark")
    begun = []

    def run(*words):
        environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
        with (tmp_path / "stderr").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, *map(str, words)], start_new_session=True, env=environment,
                stdout=subprocess.PIPE, stderr=errors, cwd=tmp_path, text=True,
            )  # fmt: skip
        begun.append(process)
        return process

    yield run
    for process in begun:
        if process.poll() is None:
            kill_all(process)
        process.stdout.close()


def has_begun(tmp_path):
    """Whether a stream has written the offsets of a batch; Spark removes those of old ones."""
    return any((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))


def wait_for(condition, process, tmp_path, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition() or process.poll() == 0, (tmp_path / "stderr").read_text()


def test_run_of_a_driver_killed_repeatedly_is_continued(start, tmp_path):
    for segment in range(40):
        append(tmp_path, 1000 * segment, 1000)
    table = tmp_path / "table"
    words = ("-m", "kctl", "export", "--spark", "--master", "local[2]", tmp_path / "logs",
             "--file-size", "8k", "--out", table)  # fmt: skip
    lines = table / "_kctl"
    for number in range(KILLS):
        process = start(*words)
        # Once in the middle of the tasks, once in the middle of the commits, ...
        where, enough = ("tmp", 5) if number % 2 else ("manifest", 1)
        wait_for(
            lambda: len(list(lines.glob(f"{where}/*"))) >= enough, process, tmp_path  # noqa: B023
        )  # fmt: skip
        kill_all(process)
    done = start(*words)
    assert done.wait() == 0, (tmp_path / "stderr").read_text()
    assert rows_of(table) == [("orders", 0, *it) for it in records_of(40_000)]


def test_executors_and_workers_killed_in_the_middle_of_their_tasks_are_replaced(start, tmp_path):
    for segment in range(60):
        append(tmp_path, 1000 * segment, 1000)
    table = tmp_path / "table"
    (tmp_path / "cluster").mkdir()
    with spark_cluster.standalone_cluster(tmp_path / "cluster") as cluster:
        process = start(
            "-m", "kctl", "export", "--spark", "--master", cluster.url, tmp_path / "logs",
            "--file-size", "8k", "--out", table,
        )  # fmt: skip

        def finished():
            return len(list(table.glob("_kctl/tmp/*")))

        wait_for(lambda: finished() >= 4, process, tmp_path)
        assert spark_cluster.kill_an_executor(cluster.url)
        before = finished()
        wait_for(lambda: finished() >= before + 2, process, tmp_path)
        # The other worker does the rest.
        assert spark_cluster.kill_a_worker(cluster.url)
        assert process.wait() == 0, (tmp_path / "stderr").read_text()
    assert rows_of(table) == [("orders", 0, *it) for it in records_of(60_000)]


def test_stream_killed_repeatedly_equals_the_log(start, tmp_path):
    rng = Random(SEED)
    append(tmp_path, 0, 1000)
    end = 1000
    for _ in range(KILLS):
        process = start("-c", STREAM, tmp_path)
        assert process.stdout.readline() == "running\n", (tmp_path / "stderr").read_text()
        # Spark 4 rejects a checkpoint that was killed in the middle of its very first write.
        wait_for(lambda: has_begun(tmp_path), process, tmp_path)
        for _ in range(3):
            time.sleep(rng.random())
            append(tmp_path, end, 500)
            end += 500
        time.sleep(3 * rng.random())
        kill_all(process)
    last = start("-c", STREAM, tmp_path, "to the end")
    assert last.wait() == 0, (tmp_path / "stderr").read_text()
    assert sorted(rows_of_the_sink(tmp_path / "sink")) == records_of(end)


def test_stream_to_a_topic_killed_repeatedly_writes_each_row_once(start, tmp_path):
    rng = Random(SEED)
    with KafkaBroker(topics=["in:3", "out:2"]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        words = ("-c", COPY, tmp_path, broker.bootstrap_servers)
        end = 0
        for _ in range(KILLS):
            for number in range(end, end + 1200):
                producer.produce("in", b"%d" % number, key=b"%d" % (number % 50))
            end += 1200
            producer.flush()
            # Reading all of them again and again would occupy the broker.
            ends = broker.end_offsets("out")
            process = start(*words)
            assert process.stdout.readline() == "running\n", (tmp_path / "stderr").read_text()
            wait_for(lambda: has_begun(tmp_path), process, tmp_path)
            wait_for(
                lambda: broker.records_since("out", ends), process, tmp_path  # noqa: B023
            )  # fmt: skip
            # While a task writes, or while the driver commits.
            time.sleep(2 * rng.random())
            kill_all(process)
        last = start(*words, "to the end")
        assert last.wait() == 0, (tmp_path / "stderr").read_text()
        read, written = broker.records("in"), broker.records("out")
    assert len(read) == end
    assert sorted((it.key, it.value) for it in written) == sorted((it.key, it.value) for it in read)
    # Records of a key keep their partition, whatever ran again.
    assert len({(it.key, it.partition) for it in written}) == 50


def rows_of_the_sink(sink):
    """Offset, key and value of the rows of the files that the sink's own log has committed, as
    Spark reads it."""
    committed = set()
    log = sink / "_spark_metadata"
    newest = max(log.glob("*.compact"), key=lambda it: int(it.stem), default=None)
    first = int(newest.stem) if newest is not None else -1
    for path in log.glob("*"):
        number = path.name.removesuffix(".compact")
        if number.isdecimal() and (path == newest or int(number) > first):
            lines = path.read_text().splitlines()[1:]
            committed |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    files = pyarrow.dataset.dataset(sorted(committed))
    columns = files.to_table(columns=["offset", "key", "value"]).to_pydict().values()
    return list(zip(*columns, strict=True))
