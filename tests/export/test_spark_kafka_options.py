"""Options of the data source, value by value, beside Spark's own Kafka source: both read the same
rows of the same brokers, or both refuse.

Where kctl is stricter on purpose it refuses what Spark's source ignores or rounds off
(docs/decisions/0058); no case is here in which kctl reads other rows.
"""

import json
from dataclasses import dataclass, field
from itertools import count

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kctl.testing.kafka_broker import KafkaBroker
from tests.support import spark_kafka
from tests.support.spark_session import patiently

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TIME = 2 * 10**12
# Spark's source waits for offsets beyond the end of a log until that.
POLL = {"kafkaConsumer.pollTimeoutMs": "3000"}
_QUERIES = count()


@dataclass(frozen=True)
class Case:
    """Options, and what kctl says if it is to refuse them."""

    options: dict[str, str] = field(default_factory=dict)
    refused: str | None = None
    # Spark's source reads on.
    is_stricter: bool = False

    def __str__(self) -> str:
        return "&".join(f"{name}={value}" for name, value in self.options.items())


def of(refused=None, *, stricter=False, topics=None, **options):
    return Case((topics or {"subscribe": "orders"}) | options, refused, stricter)


def offsets(first, second):
    return json.dumps({"orders": {"0": first, "1": second}})


def times(first, second):
    return offsets(TIME + first, TIME + second)


def at(time):
    return str(TIME + time)


ONE = json.dumps({"orders": {"0": 5}})
ONE_TIME = json.dumps({"orders": {"0": TIME + 6}})
LATE = {"startingOffsetsByTimestampStrategy": "latest"}
LOSSY = {"failOnDataLoss": "false"}


def pattern(text):
    return {"subscribePattern": text}


# What issues were about.
BATCHES = [
    of(topics={"subscribe": "empty"}),
    of(topics=pattern("nothing")),
    of(startingOffsets=offsets(10, 5)),
    of("startingOffsets of a batch cannot be latest", startingOffsets="latest"),
    of(topics=pattern("rder")),
    of("orders-0 begins at 4", startingOffsets=offsets(2, 0)),
    of(startingOffsets=offsets(2, 0), **LOSSY),
    of("startingOffsets lacks orders-1", startingOffsets=ONE),
    of("kafka.auto.offset.reset", **{"kafka.auto.offset.reset": "earliest"}),
    of("neither error nor latest", startingOffsetsByTimestampStrategy="never"),
    of("has no record at or after", startingTimestamp=at(6)),
    of(startingTimestamp=at(6), **LATE),
    of("neither read_uncommitted nor", **{"kafka.isolation.level": "read_commited"}),
]
STREAMS = [
    of(topics={"subscribe": "empty"}, startingOffsets="earliest"),
    of("endingOffsets is for batch", startingOffsets="earliest", endingOffsets="latest"),
    of("startingOffsets lacks orders-1", startingOffsets=ONE),
    of("orders-0 begins at 4", startingOffsets=offsets(2, 0)),
    of(startingTimestamp=at(6), **LATE),
]
MORE_BATCHES = [
    Case({}, "No topics"),
    of("Only one of", topics={"subscribe": "orders", "assign": "{}"}),
    of("subscribe names no topic", topics={"subscribe": " , "}),
    of("subscribePattern is empty", topics=pattern("")),
    of("assign is not", topics={"assign": "x"}),
    of("assign is not", topics={"assign": '{"orders": ["0"]}'}),
    of("assign is not", topics={"assign": '{"orders": [0.5]}'}, stricter=True),
    of("assign: orders-7 does not exist", topics={"assign": '{"orders": [0, 7]}'}, stricter=True),
    of(topics={"assign": "{}"}),
    of(topics={"assign": '{"orders": [0, 0]}'}),
    of("No topic nothing", topics={"subscribe": "orders,nothing"}),
    of("No topic ord", topics={"subscribe": "ord*"}),
    of(topics={"subscribe": "orders , empty"}),
    of(topics=pattern("orders")),
    of(topics=pattern("^orders$")),
    of(topics=pattern(".*")),
    of(topics=pattern("(?i) ORDERS-".replace(" ", ""))),
    of(topics=pattern(r"\Qorders-\E")),
    of("subscribePattern", topics=pattern("(")),
    of("subscribePattern", topics=pattern(r"\p{Alpha}+-eu"), stricter=True),
    of(startingOffsets=" Earliest "),
    of("startingOffsets is not", startingOffsets="soon"),
    of("startingOffsets is not", startingOffsets=offsets("5", 0)),
    of("startingOffsets is not", startingOffsets=offsets(5.5, 0), stricter=True),
    of("startingOffsets is out of range", startingOffsets=offsets(5, -3)),
    of("cannot be latest", startingOffsets=offsets(5, -1)),
    of(startingOffsets=offsets(5, -2)),
    of("names orders-2", startingOffsets='{"orders": {"0": 5, "1": 0, "2": 0}}'),
    of("is after the end", startingOffsets=offsets(100, 0)),
    of("is after the end", startingOffsets=offsets(100, 0), **LOSSY),
    of("orders-0 begins", startingOffsets=offsets(0, 0), endingOffsets=offsets(3, 2)),
    of(startingOffsets=offsets(0, 0), endingOffsets=offsets(3, 2), **LOSSY),
    of("cannot be earliest", endingOffsets="earliest"),
    of("cannot be earliest", endingOffsets=offsets(7, -2)),
    of(endingOffsets=offsets(7, -1)),
    of("endingOffsets lacks orders-1", endingOffsets=ONE),
    of("orders-0 ends at 10", endingOffsets=offsets(20, 5), **POLL),
    of(endingOffsets=offsets(20, 5), **LOSSY, **POLL),
    of("is after the end", endingOffsets=offsets(2, 5), **LOSSY),
    of("is after", startingOffsets=offsets(8, 0), endingOffsets=offsets(6, 5)),
    of("name different", startingOffsets=offsets(8, 0), endingOffsets=ONE),
    of(startingOffsets=offsets(6, 0), endingOffsets=offsets(8, -1)),
    of("ends at 10", startingOffsets=offsets(20, 0), endingOffsets=offsets(30, 5), **POLL),
    of(startingOffsets=offsets(20, 0), endingOffsets=offsets(30, 5), **LOSSY, **POLL),
    of(startingTimestamp=at(3)),
    of(startingTimestamp=f" {at(2)} ", startingOffsets="latest", startingOffsetsByTimestamp="x"),
    of("not a number of milliseconds", startingTimestamp="x"),
    of(startingTimestamp="-1"),
    of(startingTimestamp="-2"),
    of(startingOffsetsByTimestamp=times(6, 2), startingOffsets="x"),
    of("no record at or after", startingOffsetsByTimestamp=times(60, 2)),
    of(startingOffsetsByTimestamp=times(60, 2), **LATE),
    of("startingOffsetsByTimestamp lacks", startingOffsetsByTimestamp=ONE_TIME),
    of("startingOffsetsByTimestamp is not", startingOffsetsByTimestamp="earliest"),
    of(endingTimestamp=at(3)),
    of(endingTimestamp=at(60)),
    of(endingTimestamp="0"),
    of(endingOffsetsByTimestamp=times(6, 60)),
    of("endingOffsetsByTimestamp lacks", endingOffsetsByTimestamp=ONE_TIME),
    of(startingTimestamp=at(2), endingTimestamp=at(4)),
    of("is after", startingOffsetsByTimestamp=times(6, 2), endingOffsetsByTimestamp=times(5, 3)),
    of(topics={"subscribe": "empty"}, minPartitions="4"),
    of("startingOffsets names", topics=pattern("nothing"), startingOffsets=ONE),
    of("minPartitions must be", minPartitions="0"),
    of("minPartitions is not", minPartitions=" 5"),
    of(minPartitions="5"),
    of(maxRecordsPerPartition="3"),
    of("failOnDataLoss is neither", failOnDataLoss="maybe"),
    of("includeHeaders is neither", includeHeaders="maybe"),
    of(includeHeaders="TRUE"),
    of("value.deserializer", **{"kafka.value.deserializer": "x"}),
    of("interceptor.classes", **{"Kafka.interceptor.classes": "x"}),
    of("kafka.isolation.level", **{"kafka.isolation.level": "READ_COMMITTED"}),
    of(**{"kafka.isolation.level": "read_committed", "kafka.group.id": "g"}),
    of("kafka.nonsense", stricter=True, **{"kafka.nonsense": "1"}),
    of("no option startingoffset", stricter=True, startingOffset="latest"),
    of("pollTimeoutMs is not", **{"kafkaConsumer.pollTimeoutMs": "x"}),
    of("numRetries must be", **{"fetchOffset.numRetries": "0"}),
    of(maxOffsetsPerTrigger="x", maxTriggerDelay="soon", groupIdPrefix="g"),
    of("is more than", minOffsetsPerTrigger="4", maxOffsetsPerTrigger="3"),
]
EARLIEST = {"startingOffsets": "earliest"}
MORE_STREAMS = [
    of(),
    of(**EARLIEST),
    of("No topic nothing", topics={"subscribe": "nothing"}, **EARLIEST),
    of(topics=pattern("nothing"), **EARLIEST),
    of(topics=pattern("rder"), **EARLIEST),
    of("endingTimestamp is for batch", stricter=True, endingTimestamp=at(3), **EARLIEST),
    of("endingOffsetsByTimestamp is", endingOffsetsByTimestamp=times(6, 3), **EARLIEST),
    of(startingOffsets=offsets(5, -1)),
    of("startingOffsets is not", startingOffsets="x"),
    of(startingOffsets=offsets(2, 0), **LOSSY),
    of("orders-0 ends at 10", startingOffsets=offsets(100, 0)),
    of(startingOffsets=offsets(100, 0), **LOSSY),
    of("no record at or after", startingTimestamp=at(6)),
    of(startingOffsetsByTimestamp=times(6, 2)),
    of("startingOffsetsByTimestamp lacks", startingOffsetsByTimestamp=ONE_TIME),
    of(minPartitions="5", **EARLIEST),
    of(maxOffsetsPerTrigger="4", **EARLIEST),
    of("maxOffsetsPerTrigger is not", maxOffsetsPerTrigger="x", **EARLIEST),
    of("must be at least 1", stricter=True, maxOffsetsPerTrigger="0", **EARLIEST),
    of("maxTriggerDelay is not", maxTriggerDelay="2 min", **EARLIEST),
    of(minOffsetsPerTrigger="2", maxTriggerDelay="20", **EARLIEST),
]


@pytest.fixture(scope="module")
def broker():
    """orders-0 holds offsets 4 to 9, orders-1 0 to 4, orders-eu-0 0 to 2."""
    if spark_kafka.jars() is None:
        pytest.skip("no jars of spark-sql-kafka: python -m tests.support.spark_kafka")
    with KafkaBroker(topics=["orders:2", "orders-eu:1", "empty:2"]) as running:
        client = {"bootstrap.servers": running.bootstrap_servers}
        producer = Producer(client)
        for topic, partition, size in (("orders", 0, 10), ("orders", 1, 5), ("orders-eu", 0, 3)):
            for number in range(size):
                producer.produce(topic, b"%d" % number, partition=partition,
                                 timestamp=TIME + number, headers=[("h", b"x")])  # fmt: skip
        producer.flush()
        admin = AdminClient(client)
        for deleted in admin.delete_records([TopicPartition("orders", 0, 4)]).values():
            deleted.result()
        yield running


def rows_of_batch(spark, source, broker, options):
    brokers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    found = spark.read.format(source).options(**brokers, **options).load().collect()
    return sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in found)


def rows_of_stream(spark, source, broker, options, directory):
    brokers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    frame = spark.readStream.format(source).options(**brokers, **options).load()
    name = f"rows{next(_QUERIES)}"
    sink = (
        frame.writeStream.format("memory").queryName(name).trigger(availableNow=True)
        .option("checkpointLocation", str(directory / name))
    )  # fmt: skip
    patiently(lambda: sink.start().awaitTermination())
    found = spark.table(name).collect()
    return sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in found)


def compare(case, rows):
    """`rows` reads by a source of that name."""
    if case.refused is None:
        assert rows("kctl") == rows("kafka")
        return
    with pytest.raises(Exception) as refused:  # noqa: PT011 as Spark has many classes of them
        rows("kctl")
    assert case.refused in str(refused.value)
    if case.is_stricter:
        rows("kafka")
        return
    with pytest.raises(Exception):  # noqa: B017, PT011
        rows("kafka")


@pytest.mark.parametrize("case", BATCHES, ids=str)
def test_a_batch_is_that_of_sparks_kafka_source(spark, broker, case):
    compare(case, lambda source: rows_of_batch(spark, source, broker, case.options))


@pytest.mark.parametrize("case", STREAMS, ids=str)
def test_a_stream_is_that_of_sparks_kafka_source(spark, broker, tmp_path, case):
    compare(case, lambda source: rows_of_stream(spark, source, broker, case.options, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_BATCHES, ids=str)
def test_every_option_of_a_batch(spark, broker, case):
    compare(case, lambda source: rows_of_batch(spark, source, broker, case.options))


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_STREAMS, ids=str)
def test_every_option_of_a_stream(spark, broker, tmp_path, case):
    compare(case, lambda source: rows_of_stream(spark, source, broker, case.options, tmp_path))


@pytest.mark.parametrize("is_directory", [False, True])
@pytest.mark.parametrize(
    "options", [{"subscribe": "empty"}, {"subscribePattern": "nothing"},
                {"subscribe": "orders", "startingOffsets": offsets(10, 5)}],
)  # fmt: skip
def test_an_empty_batch_has_the_schema(spark, broker, options, is_directory):
    read = spark.read.format("kctl").options(**options)
    if is_directory:
        frame = read.load(str(broker.log_directory))
    else:
        frame = read.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    brokers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    theirs = spark.read.format("kafka").options(**brokers, **options).load()
    assert frame.count() == 0
    assert [(it.name, it.dataType) for it in frame.schema] == [
        (it.name, it.dataType) for it in theirs.schema
    ]
