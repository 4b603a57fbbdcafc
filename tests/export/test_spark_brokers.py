"""Spark fetches from live brokers: the rows are those of their files."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from confluent_kafka import Producer

from kctl.cli.app import run as kctl
from kctl.errors import UsageError
from kctl.export.spark import commit_offsets, query_offsets
from kctl.export.spark.brokers import Connection
from kctl.testing.kafka_broker import KafkaBroker
from tests.export.log_files import rows_of
from tests.support.spark_session import patiently

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
# Later than the markers, which have the current time and count for brokers, too.
TIME = 2 * 10**12
COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers")


@pytest.fixture
def broker():
    with KafkaBroker(topics=["orders:3", "payments:1"]) as running:
        fill(running, "orders", 0, 900)
        fill(running, "payments", 0, 50)
        yield running


def fill(broker, topic, first, end):
    """Transactions of 50 records, every other one aborted."""
    producer = Producer({
        "bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic,
        "compression.type": "lz4",
    })  # fmt: skip
    producer.init_transactions(300)
    for begin in range(first, end, 50):
        producer.begin_transaction()
        for number in range(begin, begin + 50):
            producer.produce(
                topic, b"%d" % number, key=b"k%d" % (number % 7), timestamp=TIME + number,
                headers=[("n", b"%d" % number)] if number % 2 else None,
            )  # fmt: skip
        producer.flush()
        producer.commit_transaction(300) if begin % 100 == 0 else producer.abort_transaction(300)


def frame(spark, broker, path=None, **options):
    """Of the broker, or with `path` of its files."""
    read = spark.read.format("kctl").options(includeHeaders="true", **options)
    if path is not None:
        return read.load(str(path))
    return read.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()


def plain(value):
    if isinstance(value, list):
        return [(pair["key"], plain(pair["value"])) for pair in value]
    return bytes(value) if isinstance(value, bytearray) else value


def rows(found):
    return sorted(
        (tuple(plain(row[name]) for name in COLUMNS) for row in found.collect()),
        key=lambda row: row[:3],
    )


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders,payments"},
        {"subscribePattern": "p.*|orders"},
        {"assign": '{"orders": [0, 2]}', "minPartitions": "7"},
        {"subscribe": "orders", "startingOffsets": '{"orders": {"1": 40, "0": -2, "2": 7}}'},
        {"subscribe": "orders", "startingTimestamp": str(TIME + 333), "endingOffsetsByTimestamp":
         json.dumps({"orders": dict.fromkeys("012", TIME + 500)})},
    ],
)  # fmt: skip
def test_frame_of_brokers_is_that_of_their_files(spark, broker, options, isolation):
    options |= {"kafka.isolation.level": isolation}
    found = rows(frame(spark, broker, **options))
    assert found == rows(frame(spark, broker, broker.log_directory, **options)) != []


def test_the_requested_number_of_splits(spark, broker):
    assert frame(spark, broker, subscribe="orders").rdd.getNumPartitions() == 3
    found = frame(spark, broker, subscribe="orders", minPartitions="8")
    assert 8 <= found.rdd.getNumPartitions() <= 11


@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "150"}])
def test_stream_of_brokers_has_every_row_once(spark, broker, tmp_path, limits):
    if limits and find_spec("pyspark.sql.streaming.datasource") is None:
        pytest.skip("Spark before 4.2 knows no limits of batches")
    for first in (900, 1000, 1100):
        follow(spark, broker, tmp_path, **limits)
        fill(broker, "orders", first, first + 100)
    follow(spark, broker, tmp_path, **limits)
    values = [int(row.value) for row in spark.read.parquet(str(tmp_path / "sink")).collect()]
    assert sorted(values) == [n for n in range(1200) if n % 100 < 50]


def follow(spark, broker, tmp_path, **options):
    read = (
        spark.readStream.format("kctl").option("startingOffsets", "earliest")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers).option("subscribe", "orders")
        .option("kafka.isolation.level", "read_committed").options(**options)
    )  # fmt: skip
    sink = (
        read.load().writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "sink")).trigger(availableNow=True)
    )  # fmt: skip

    def ended():
        query = sink.start()
        query.awaitTermination()
        return query

    return patiently(ended)


def test_a_group_has_the_offsets_of_a_stream(spark, broker, tmp_path):
    group = {"kafka.group.id": "table", "kctl.commit.offsets": "true"}
    follow(spark, broker, tmp_path, **group)
    fill(broker, "orders", 900, 1000)
    query = follow(spark, broker, tmp_path, **group)
    source = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    reached = commit_offsets(query, source | {"kafka.group.id": "by hand"})
    if find_spec("pyspark.sql.streaming.datasource") is None:
        # Nothing asks the source after the last batch.
        assert commit_offsets(query, source | group) == reached
    with Connection((("127.0.0.1", broker.port),), 30_000).open() as opened:
        offsets = opened.admin.offsets
        found = [opened.run(offsets.committed(it)) for it in ("table", "by hand")]
        ends = {it: at.offset for it, at in opened.run(offsets.latest(list(found[0]))).items()}
    assert [{it: at.offset for it, at in each.items()} for each in found] == [ends, ends]
    assert len(ends) == 3


class Ended:
    """A query as `commit_offsets` sees it."""

    def __init__(self, *sources):
        self.lastProgress = {"sources": sources} if sources else None


@pytest.mark.parametrize("text", ['{"orders": {"0": 7}}', "{'orders': {'0': 7}}"])
def test_offsets_of_a_query_are_those_of_its_progress(text, monkeypatch):
    committed = []
    monkeypatch.setattr(query_offsets, "commit", lambda _options, end: committed.append(end))
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "kafka.group.id": "table",
    }  # fmt: skip
    assert commit_offsets(Ended({"endOffset": text}), options) == {"orders": {"0": 7}}
    assert committed == [{"orders": {"0": 7}}]


def test_offsets_of_a_query_are_committed_only_if_they_are_known():
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
    group = {"kafka.group.id": "table"}
    assert commit_offsets(Ended(), options | group) == {}
    for nothing in (None, "None"):
        assert commit_offsets(Ended({"endOffset": nothing}), options | group) == {}
    with pytest.raises(UsageError, match="several sources"):
        commit_offsets(Ended({}, {}), options | group)
    with pytest.raises(UsageError, match=r"needs the option kafka\.group\.id"):
        commit_offsets(Ended(), options)


def test_stream_over_a_recreated_topic_stops(spark, broker, tmp_path):
    follow(spark, broker, tmp_path)
    assert kctl(["topic", "delete", "orders", "-y", "-b", broker.bootstrap_servers]) == 0
    broker.create_topic("orders", partitions=3)
    with pytest.raises(Exception, match="was deleted and created again"):
        follow(spark, broker, tmp_path)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "No topics"),
        ({"subscribe": "orders", "assign": "{}"}, "not both"),
        ({"assign": '{"orders": [0, 7]}'}, "orders-7 does not exist"),
        ({"subscribe": "nothing"}, "No topic nothing"),
    ],
)
def test_invalid_options_are_rejected(spark, broker, options, what):
    with pytest.raises(Exception, match=what):
        frame(spark, broker, **options).count()


@pytest.mark.parametrize("more", [(), ("--latest-per-key", "--isolation", "read_committed")])
def test_command_makes_the_same_table_on_spark_and_without(broker, tmp_path, more):
    pytest.importorskip("pyspark")
    words = ["export", "-b", broker.bootstrap_servers, "-t", "*", "--file-size", "2k", *more]
    assert kctl([*words, "--out", str(tmp_path / "here")]) == 0
    words += ["--spark", "--master", "local[2]", "--out", str(tmp_path / "there")]
    command = [sys.executable, "-m", "kctl", *words]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "tasks on Spark: median" in ran.stderr
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here") != []
