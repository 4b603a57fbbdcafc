"""Options of the data source: named as Spark's Kafka source names them; what cannot be is told."""

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
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "2 H"}, Limits(None, 1, 7_200_000)),
    ],
)
def test_limits_are_named_as_by_sparks_kafka_source(options, limits):
    assert SourceOptions({"path": "/data"} | options).limits == limits


@pytest.mark.parametrize("options", [{"maxOffsetsPerTrigger": "x"}, {"maxTriggerDelay": "soon"}])
def test_limits_that_cannot_be_read_are_told(options):
    with pytest.raises(UsageError, match="not a"):
        _ = SourceOptions({"path": "/data", "minOffsetsPerTrigger": "1"} | options).limits


@pytest.mark.parametrize("protocol", ["SSL", "sasl_plaintext", "SASL_SSL"])
def test_brokers_behind_tls_or_sasl_are_refused_before_anything_is_sent(protocol):
    options = {
        "kafka.bootstrap.servers": "localhost:1", "subscribe": "orders",
        "kafka.security.protocol": protocol, "kafka.ssl.truststore.location": "/trust.jks",
    }  # fmt: skip
    with pytest.raises(UsageError, match=f"{protocol.upper()}: kctl speaks PLAINTEXT only"):
        SourceOptions(options).connection.open()
