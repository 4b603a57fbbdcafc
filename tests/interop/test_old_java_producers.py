"""The producers in Scala of Apache Kafka 0.8.2.2 and 1.1.1 write to kctl's broker of 2.7, and
choose the partitions that kctl's producer chooses."""

import subprocess

import pytest

from kctl.kafka import DefaultPartitioner
from kctl.testing.kafka_broker import KafkaBroker
from tests.support import apache_kafka
from tests.support.java_tools import RUNNER

pytestmark = pytest.mark.kafka

CODECS = ("none", "gzip", "snappy", "lz4")
PARTITIONS = 3
TIMEOUT_S = 120


@pytest.mark.parametrize("version", ["0.8.2.2", "1.1.1"])
def test_every_codec_and_acknowledgement(version):
    if apache_kafka.libs(version) is None:
        pytest.skip(f"no jars of Apache Kafka {version}: python -m tests.support.kafka_versions")
    *options, _ = apache_kafka.java_command(version, "-")
    expected = sorted(
        (DefaultPartitioner().partition(f"key-{n}", PARTITIONS), f"key-{n}", f"{acks}:{n}:{tea}")
        for acks in ("0", "1", "-1")
        for n in range(300)
        for tea in ["tea " * (n % 50)]
    )
    with KafkaBroker(topics=[f"old-{codec}:{PARTITIONS}" for codec in CODECS]) as broker:
        program = RUNNER.with_name("OldProducers.java")
        command = [*options, program, broker.bootstrap_servers, "old"]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
        for codec in CODECS:
            assert broker.wait_for_records(f"old-{codec}", {}, len(expected), TIMEOUT_S)
            found = broker.records(f"old-{codec}")
            assert (
                sorted((it.partition, it.key.decode(), it.value.decode()) for it in found)
                == expected
            )
