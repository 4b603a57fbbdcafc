"""Spark writes to live brokers: the columns, options and errors of Spark's Kafka sink."""

import json

import pytest

from kctl.testing.kafka_broker import KafkaBroker
from tests.support import spark_kafka
from tests.support.spark_session import patiently

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
HEADERS = "array(named_struct('key', 'h', 'value', cast('x' as binary)))"


@pytest.fixture(scope="module")
def broker():
    topics = ["orders:3", "payments:2", "stream:2", "once:2", "theirs:3", "ours:3"]
    with KafkaBroker(topics=topics) as running:
        yield running


def write(frame, broker, source="kctl", mode="append", **options):
    brokers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    frame.write.format(source).mode(mode).options(**brokers, **options).save()


def records(broker, topic):
    found = broker.records(topic)
    return sorted(
        ((it.partition, it.key, it.value, tuple(it.headers)) for it in found), key=repr
    )  # fmt: skip


def test_rows_become_records_as_of_sparks_kafka_sink(spark, broker):
    rows = spark.range(500).selectExpr(
        "if(id % 5 = 0, null, cast(id % 77 as string)) as key",
        "if(id % 9 = 0, null, cast(cast(id as string) as binary)) as value",
        "if(id % 5 = 0, cast(id % 3 as int), null) as partition",
        f"if(id % 4 = 0, {HEADERS}, null) as headers",
        "id as offset", "'ignored' as timestampType",
    )  # fmt: skip
    write(rows.repartition(2), broker, topic="ours")
    found = records(broker, "ours")
    assert len(found) == 500
    if spark_kafka.jars() is None:
        pytest.skip("no jars of spark-sql-kafka: python -m tests.support.spark_kafka")
    write(rows, broker, "kafka", topic="theirs")
    assert records(broker, "theirs") == found


def test_a_column_names_the_topic_unless_the_option_does(spark, broker):
    rows = spark.createDataFrame(
        [("orders", "a"), ("payments", "b"), ("made_by_this", "c")], "topic string, value string"
    )
    write(rows, broker)
    assert [it.value for it in broker.records("made_by_this")] == [b"c"]
    assert [it.value for it in broker.records("orders")] == [b"a"]
    write(rows, broker, topic="payments")
    assert sorted(it.value for it in broker.records("payments")) == [b"a", b"b", b"b", b"c"]


@pytest.mark.parametrize(
    ("columns", "options", "refused"),
    [
        ("'v' as value", {}, "topic option required"),
        ("'k' as key", {"topic": "orders"}, "Required attribute 'value' not found"),
        ("1 as value", {"topic": "orders"}, "column value is int"),
        ("cast(1 as bigint) as partition; 'v' as value", {"topic": "orders"}, "column partition"),
        ("cast(null as string) as topic; 'v' as value", {}, "null topic present"),
        ("'v' as value; 9 as partition", {"topic": "orders"}, "names partition 9"),
        ("'v' as value; -1 as partition", {"topic": "orders"}, "names partition -1"),
        ("'v' as value", {"topic": "orders", "kafka.acks": "2"}, "acks"),
        ("'v' as value", {"topic": "orders", "kafka.key.serializer": "x"}, "key.serializer"),
        ("repeat('x', 2000000) as value", {"topic": "orders"}, "larger than"),
    ],
)
def test_what_sparks_sink_refuses(spark, broker, columns, options, refused):
    rows = spark.range(1).selectExpr(*columns.split("; "))
    options = {"kafka.max.block.ms": "500"} | options
    with pytest.raises(Exception, match=refused):
        write(rows, broker, **options)
    if spark_kafka.jars() is not None:
        with pytest.raises(Exception):  # noqa: B017, PT011
            write(rows, broker, "kafka", **options)


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_other_modes_are_refused(spark, broker, mode):
    with pytest.raises(Exception, match=r"(?i)mode"):
        write(spark.range(1).selectExpr("'v' as value"), broker, mode=mode, topic="orders")


@pytest.mark.parametrize("topic", ["stream", "once"])
def test_a_stream_is_written_and_continues(spark, broker, tmp_path, topic):
    exactly = {"kctl.exactly.once": "true"} if topic == "once" else {}
    for first in (0, 100):
        rows = spark.range(first, first + 100).selectExpr("id")
        rows.write.mode("append").parquet(str(tmp_path / "in"))
        read = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in"))
        sink = (
            read.selectExpr("cast(id as string) as value").writeStream.format("kctl")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", topic)
            .options(**exactly).option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )  # fmt: skip
        patiently(lambda: sink.start().awaitTermination())  # noqa: B023
    assert sorted(int(it.value) for it in broker.records(topic)) == list(range(200))
    # Lines of the checkpoint, as Spark writes them.
    assert json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
