"""The examples of Spark's guide to Kafka run on the data source with nothing changed but the
format's name: each is run with both names, and the rows and records are compared.

Their options one by one are compared by tests/export/test_spark_kafka_options.py.
"""

import json
from itertools import count

import pytest
from confluent_kafka import Producer

from kctl.testing.kafka_broker import KafkaBroker
from tests.support import spark_kafka
from tests.support.spark_session import patiently

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
TIME = 1_700_000_000_000
NAMES = ("kafka", "kctl")
_RUNS = count()


@pytest.fixture(scope="module")
def broker():
    """topic1-0 and topic1-1 hold 60 records each, topic2-0 holds 20, each a millisecond later."""
    if spark_kafka.jars() is None:
        pytest.skip("no jars of spark-sql-kafka: python -m tests.support.spark_kafka")
    # A broker deletes records of these times when it has run for five minutes.
    settings = {"log.retention.ms": -1}
    with KafkaBroker(topics=["topic1:2", "topic2:1", "other:1"], settings=settings) as running:
        produce(running, "topic1", 120, partitions=2)
        produce(running, "topic2", 20)
        produce(running, "other", 5)
        yield running


def produce(broker, topic, end, partitions=1):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(end):
        producer.produce(
            topic, b"v%d" % number, key=b"k%d" % (number % 9) if number % 5 else None,
            partition=number % partitions, timestamp=TIME + number // partitions,
            headers=[("h", b"%d" % number), ("h", None)] if number % 2 else None,
        )  # fmt: skip
    assert producer.flush(30) == 0


def plain(value):
    if isinstance(value, list):
        return tuple((pair["key"], plain(pair["value"])) for pair in value)
    return bytes(value) if isinstance(value, bytearray) else value


def rows(frame):
    return sorted((tuple(map(plain, row)) for row in frame.collect()), key=repr)


BATCHES = {
    "one topic": {"subscribe": "topic1"},
    "headers": {"subscribe": "topic1", "includeHeaders": "true"},
    "several topics, from and to offsets": {
        "subscribe": "topic1,topic2",
        "startingOffsets": """{"topic1":{"0":23,"1":-2},"topic2":{"0":-2}}""",
        "endingOffsets": """{"topic1":{"0":50,"1":-1},"topic2":{"0":-1}}""",
    },
    "a pattern": {
        "subscribePattern": "topic.*", "startingOffsets": "earliest", "endingOffsets": "latest",
    },
    "one partition": {"assign": """{"topic1":[1]}"""},
    "from and to times by partition": {
        "subscribe": "topic1",
        "startingOffsetsByTimestamp": json.dumps({"topic1": {"0": TIME + 7, "1": TIME + 9}}),
        "endingOffsetsByTimestamp": json.dumps({"topic1": {"0": TIME + 30, "1": TIME + 40}}),
    },
    "from and to a time": {
        "subscribe": "topic1,topic2", "startingTimestamp": str(TIME + 5),
        "endingTimestamp": str(TIME + 12),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_query_of_the_guide(spark, broker, name):
    found = {}
    for source in NAMES:
        frame = (
            spark.read.format(source)
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .options(**BATCHES[name])
            .load()
        )
        found[source] = frame.schema, rows(frame)
    schema, expected = found["kctl"]
    assert len(expected) > 10
    assert expected == found["kafka"][1]
    # A Python source cannot make columns that are never null.
    assert [(it.name, it.dataType.simpleString()) for it in schema] == [
        (it.name, it.dataType.simpleString()) for it in found["kafka"][0]
    ]


def test_a_stream_of_the_guide_follows_what_is_produced_while_it_runs(spark, broker):
    def follow():
        topic = f"followed{next(_RUNS)}"
        broker.create_topic(topic, partitions=2)
        queries = []
        try:
            for source in NAMES:
                frame = (
                    spark.readStream.format(source)
                    .option("kafka.bootstrap.servers", broker.bootstrap_servers)
                    .option("subscribe", topic)
                    .option("includeHeaders", "true")
                    .load()
                    .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "headers", "offset")
                )
                query = frame.writeStream.format("memory").queryName(f"{source}_{topic}").start()
                queries.append(query)
                query.processAllAvailable()
            produce(broker, topic, 50, partitions=2)
            for query in queries:
                query.processAllAvailable()
        finally:
            for query in queries:
                query.stop()
        return [rows(spark.table(f"{source}_{topic}")) for source in NAMES]

    kafka, kctl = patiently(follow)
    assert kctl == kafka
    assert len(kctl) == 50


def test_records_that_the_guide_writes(spark, broker, tmp_path):
    """A batch to the topic of an option, and from there a stream to the topics of a column.

    The batch's mode is named: Spark lets no Python source write in its default mode.
    """
    written = []
    for source in NAMES:
        batch, stream = (f"{stage}{next(_RUNS)}" for stage in ("batch", "stream"))
        for topic in (batch, stream):
            broker.create_topic(topic, partitions=2)
        frame = spark.range(60).selectExpr(
            "concat('k', id % 9) as key", "to_json(struct(*)) as value",
            "array(struct('h' as key, cast('x' as binary) as value)) as headers",
        )  # fmt: skip
        (
            frame.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "headers")
            .write.format(source)
            .mode("append")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("topic", batch)
            .save()
        )
        frame = (
            spark.readStream.format(source)
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", batch)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
            .selectExpr(
                f"'{stream}' as topic", "CAST(key AS STRING)", "CAST(value AS STRING)", "headers"
            )
        )
        sink = (
            frame.writeStream.format(source)
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("checkpointLocation", str(tmp_path / source))
            .trigger(availableNow=True)
        )
        patiently(lambda sink=sink: sink.start().awaitTermination())
        written.append([
            sorted((it.partition, it.key, it.value, tuple(it.headers)) for it in found)
            for found in map(broker.records, (batch, stream))
        ])  # fmt: skip
    kafka, kctl = written
    assert kctl == kafka
    assert [len(found) for found in kctl] == [60, 60]
