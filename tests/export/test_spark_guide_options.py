"""Every option of Spark's guide to Kafka: what the data source does with it, and its default.

tests/export/test_spark_kafka_options.py compares the values of the source's options with Spark's
own source on live brokers, tests/export/test_spark_write.py the sink's.
"""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from kctl.errors import UsageError
from kctl.export.options import Isolation
from kctl.export.spark.bounds import BoundKind, NoMatch
from kctl.export.spark.options import SourceOptions
from kctl.export.spark.sink_options import SinkOptions
from kctl.protocol.constants import ACKS_ALL
from kctl.records.compression import NONE

GUIDE = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
SERVERS = {"kafka.bootstrap.servers": "broker:9092"}
TOPICS = {"subscribe": "orders"}
OFFSETS = '{"orders": {"0": 7}}'
# Option -> a value other than the default. Of batches and streams.
OF_BOTH = {
    "startingTimestamp": "1700000000000", "startingOffsetsByTimestamp": OFFSETS,
    "startingOffsets": OFFSETS, "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false", "includeHeaders": "true", "minPartitions": "5",
    "maxRecordsPerPartition": "9", "kafkaConsumer.pollTimeoutMs": "5000",
    "kafka.isolation.level": "read_committed", "kafka.security.protocol": "SSL",
}  # fmt: skip
OF_BATCHES = {
    "endingTimestamp": "1700000000000", "endingOffsetsByTimestamp": OFFSETS,
    "endingOffsets": OFFSETS,
}  # fmt: skip
OF_STREAMS = {
    "maxOffsetsPerTrigger": "100", "minOffsetsPerTrigger": "10", "maxTriggerDelay": "20m",
}  # fmt: skip
# kctl fetches without consumers; there is no group to name, and retries are the client's.
WITHOUT_EFFECT = {
    "fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "20", "groupIdPrefix": "spark",
    "kafka.group.id": "g",
}  # fmt: skip
REFUSED_OF_SOURCES = (
    "kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.value.deserializer",
    "kafka.enable.auto.commit", "kafka.interceptor.classes",
)  # fmt: skip
OF_SINKS = {
    "topic": "orders", "kafka.acks": "1", "kafka.compression.type": "lz4",
    "kafka.enable.idempotence": "false", "kafka.max.request.size": "5",
    "kafka.request.timeout.ms": "7", "kafka.delivery.timeout.ms": "8", "kafka.batch.size": "9",
}  # fmt: skip
REFUSED_OF_SINKS = (
    "kafka.key.serializer", "kafka.value.serializer", "kafka.interceptor.classes",
)  # fmt: skip


def source(**options):
    return SourceOptions(SERVERS | TOPICS | options)


@pytest.mark.parametrize("name", [*OF_BOTH, *OF_BATCHES, *OF_STREAMS, *WITHOUT_EFFECT])
def test_an_option_of_the_source(name):
    known = OF_BOTH | OF_BATCHES | OF_STREAMS | WITHOUT_EFFECT
    options = source(**{name.upper(): known[name]})
    assert options.get(name) == known[name]
    options.check_batch()
    if name in OF_BATCHES:
        with pytest.raises(UsageError, match="is for batch queries"):
            options.check_stream()
    else:
        options.check_stream()


@pytest.mark.parametrize("strategy", [{"assign": '{"orders": [0]}'}, {"subscribePattern": "o.*"}])
def test_the_other_ways_to_name_topics(strategy):
    SourceOptions(SERVERS | strategy)
    with pytest.raises(UsageError, match="not both"):
        source(**strategy)


@pytest.mark.parametrize("name", REFUSED_OF_SOURCES)
def test_a_setting_of_consumers_that_sparks_source_refuses(name):
    with pytest.raises(UsageError, match=f"{name} is not supported"):
        source(**{name: "x"})


def test_defaults_of_the_source():
    options = source()
    assert options.start(BoundKind.EARLIEST).kind is BoundKind.EARLIEST
    assert options.start(BoundKind.LATEST).kind is BoundKind.LATEST
    assert options.end.kind is BoundKind.LATEST
    assert options.on_no_match is NoMatch.ERROR
    assert options.fails_on_data_loss
    assert not options.flag("includeHeaders")
    assert (options.min_partitions, options.max_records_per_partition) == (0, None)
    assert options.limits is None
    assert source(minOffsetsPerTrigger="1").limits.delay_ms_max == 15 * 60_000
    assert options.export_options(("value",)).isolation is Isolation.READ_UNCOMMITTED
    assert options.committing_group is None


@pytest.mark.parametrize("name", OF_SINKS)
def test_an_option_of_the_sink(name):
    SinkOptions(SERVERS | {name.upper(): OF_SINKS[name]})


def test_values_of_the_sink():
    options = SinkOptions(SERVERS | OF_SINKS)
    producer = options.producer
    assert (options.topic, options.batch_bytes) == ("orders", 9)
    assert (producer.acks, producer.is_idempotent, producer.message_bytes_max) == (1, False, 5)
    assert (producer.request_timeout_ms, producer.delivery_timeout_ms) == (7, 8)
    assert producer.compression_of("orders") != NONE


def test_defaults_of_the_sink():
    options = SinkOptions(SERVERS)
    producer = options.producer
    assert (options.topic, options.is_exactly_once) == (None, False)
    assert (producer.acks, producer.is_idempotent) == (ACKS_ALL, True)
    assert producer.compression_of("orders") == NONE
    assert producer.message_bytes_max == 1_048_576
    assert (producer.request_timeout_ms, producer.delivery_timeout_ms) == (30_000, 120_000)


@pytest.mark.parametrize("name", REFUSED_OF_SINKS)
def test_a_setting_of_producers_that_sparks_sink_refuses(name):
    with pytest.raises(UsageError, match=f"{name} is not supported"):
        SinkOptions(SERVERS | {name: "x"})


def test_options_of_the_source_do_not_disturb_the_sink():
    shared = OF_BOTH | OF_BATCHES | OF_STREAMS | TOPICS
    SinkOptions(SERVERS | {it: text for it, text in shared.items() if "kafka." not in it})


@pytest.mark.parametrize(
    "name", [*OF_BOTH, *OF_BATCHES, *OF_STREAMS, *OF_SINKS, "assign", "subscribePattern"]
)
def test_the_guide_names_it(name):
    assert f"`{name}`" in GUIDE or name == "kafka.security.protocol"
