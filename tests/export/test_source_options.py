"""Options of the data source have the names of Spark's Kafka source; invalid ones are rejected."""

import pytest

from kctl.errors import UsageError
from kctl.export.spark.admission import Limits
from kctl.export.spark.options import SourceOptions


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"minPartitions": "3"}, None),
        ({"MaxOffsetsPerTrigger": "7"}, Limits(7)),
        ({"minOffsetsPerTrigger": "7", "maxTriggerDelay": "90s"}, Limits(None, 7, 90_000)),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "2H"}, Limits(None, 1, 7_200_000)),
    ],
)
def test_limits_are_named_as_by_sparks_kafka_source(options, limits):
    assert SourceOptions({"path": "/data"} | options).limits == limits


@pytest.mark.parametrize("options", [{"maxOffsetsPerTrigger": "x"}, {"maxTriggerDelay": "soon"}])
def test_invalid_limits_are_rejected(options):
    with pytest.raises(UsageError, match="not a"):
        _ = SourceOptions({"path": "/data", "minOffsetsPerTrigger": "1"} | options).limits


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"kafka.security.protocol": "TLS"}, "security.protocol=TLS"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism=GSSAPI is not supported"),
    ],
)
def test_unsupported_security_is_rejected_before_anything_is_sent(settings, what):
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders", **settings}
    with pytest.raises(UsageError, match=what):
        SourceOptions(options).connection.open()


SUBSCRIBED = {"path": "/data", "subscribe": "orders"}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"kafka.isolation.level": "read_commited"}, "neither read_uncommitted nor read_committed"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is neither true nor false"),
        ({"includeHeaders": ""}, "includeHeaders is neither true nor false"),
        ({"minPartitions": "0"}, "minPartitions must be at least 1"),
        ({"minPartitions": " 5"}, "minPartitions is not a number"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be at least 1"),
        ({"fetchOffset.numRetries": "x"}, r"fetchOffset\.numRetries is not a number"),
        ({"kafkaConsumer.pollTimeoutMs": "x"}, r"kafkaConsumer\.pollTimeoutMs is not a number"),
        ({"kafka.auto.offset.reset": "earliest"}, r"kafka\.auto\.offset\.reset is not supported"),
        ({"kafka.key.deserializer": "x"}, r"kafka\.key\.deserializer is not supported"),
        ({"kafka.enable.auto.commit": "true"}, "is not supported"),
        ({"kafka.interceptor.classes": "x"}, "is not supported"),
        ({"kafka.isolation.levl": "x"}, "not a setting of Kafka's consumers"),
        ({"startingOffset": "latest"}, "kctl has no option startingoffset"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribePattern": "a"}, "Only one of subscribe and subscribePattern"),
        ({"minOffsetsPerTrigger": "4", "maxOffsetsPerTrigger": "3"}, "is more than"),
    ],
)
def test_invalid_options_are_rejected_by_name(options, what):
    with pytest.raises(UsageError, match=what):
        SourceOptions(SUBSCRIBED | options)


@pytest.mark.parametrize(
    "text", ["x", '{"orders": 0}', '{"orders": ["0"]}', '{"orders": [0.5]}', ""]
)
def test_assign_is_numbers_of_partitions(text):
    with pytest.raises(UsageError, match="assign is not partitions"):
        SourceOptions({"path": "/data", "assign": text})


def test_options_of_batches_and_streams_are_checked_before_anything_is_read():
    with pytest.raises(UsageError, match="startingOffsets of a batch cannot be latest"):
        SourceOptions(SUBSCRIBED | {"startingOffsets": "latest"}).check_batch()
    SourceOptions(SUBSCRIBED | {"startingOffsets": "latest"}).check_stream()
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        with pytest.raises(UsageError, match=f"{name} is for batch queries"):
            SourceOptions(SUBSCRIBED | {name: "5"}).check_stream()
    SourceOptions(SUBSCRIBED | {"maxOffsetsPerTrigger": "x"}).check_batch()
    with pytest.raises(UsageError, match="maxOffsetsPerTrigger is not a number"):
        SourceOptions(SUBSCRIBED | {"maxOffsetsPerTrigger": "x"}).check_stream()


def test_settings_of_consumers_that_do_not_change_what_is_read_are_accepted():
    settings = ("kafka.group.id", "kafka.max.poll.records", "kafka.ssl.truststore.location")
    SourceOptions(SUBSCRIBED | dict.fromkeys(settings, "1") | {"groupIdPrefix": "g"})


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({"kafka.bootstrap.servers": "b:1", "subscribe": "t"}, "needs the option kafka.group.id"),
        ({"path": "/data", "kafka.group.id": "g"}, "needs live brokers"),
        ({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "kafka.group.id": "g"}, "streams"),
    ],
)
def test_offsets_are_committed_by_streams_of_brokers_with_a_group(more, refused):
    with pytest.raises(UsageError, match=refused):
        SourceOptions({"kctl.commit.offsets": "true"} | more).check_batch()
