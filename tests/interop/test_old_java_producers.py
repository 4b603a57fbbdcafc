"""The producers in Scala of Apache Kafka 0.8.2.2 and 1.1.1 write to kctl's broker of 2.7, and
choose the partitions that kctl's producer chooses; the simple consumers of both read it."""

import subprocess

import pytest

from kctl.kafka import DefaultPartitioner, OffsetsStorage, SimpleConsumer, TopicPartition
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
        check_simple_consumer(version, options, broker, [f"old-{codec}" for codec in CODECS])


def check_simple_consumer(version, options, broker, topics):
    """It reads every message in order; errors, offsets and commits are those of Kafka 2.7.2."""
    partition = TopicPartition(min(topics), 0)
    with SimpleConsumer(broker.host, broker.port) as ours:
        # The simple consumers do not look for the coordinator.
        ours.commit_offsets("old", {partition: 1})
    program = RUNNER.with_name("OldSimpleConsumers.java")
    where = [broker.host, str(broker.port), str(PARTITIONS), *topics]
    run = subprocess.run(
        [*options, program, *where], check=True, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    found = sorted(
        (topic, int(partition), int(offset), key, value)
        for kind, topic, partition, offset, key, value in (it for it in lines if len(it) == 6)
        if kind == "message"
    )
    assert found == [
        (topic, it.partition, it.offset, it.key.decode(), it.value.decode())
        for topic in sorted(topics)
        for it in broker.records(topic)
    ]
    end = broker.end_offsets(min(topics))[0]
    assert [it for it in lines if it[0] != "message"] == [
        ["latest", f"{end} 0/0"], ["earliest", "0/0"], ["unknown", "/3"],
        ["fetch", "0", "0"], ["fetch", "1", "1"], ["fetch", str(-1 - end), "1"],
        # The fetch of 0.8.2 ends inside the first message, that of 1.1 has at least one (KIP-74).
        ["small", "false" if version == "0.8.2.2" else "true"],
        ["committed", "0", "false", "7"], ["committed", "1", "false", "8"],
    ]  # fmt: skip
    with SimpleConsumer(broker.host, broker.port) as ours:
        for storage, offset in ((OffsetsStorage.ZOOKEEPER, 7), (OffsetsStorage.KAFKA, 8)):
            assert ours.fetch_offsets("old", [partition], storage) == {partition: offset}
