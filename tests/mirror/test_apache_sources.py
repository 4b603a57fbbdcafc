"""Mirrors from brokers of Apache Kafka 0.10.2, 1.1.1 and 4.1: every record of every codec, format
and kind of topic that they have is in the target, as `kctl mirror verify` and librdkafka see it."""

import json
import os
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.kafka_versions import create_topics, fill, filled_broker
from tests.support.kctl_process import KctlBroker

pytestmark = pytest.mark.kafka

TIMEOUT_S = 240
LARGE_BYTES = 10 << 20
LARGE = {"max.message.bytes": 12_000_000}
# Its records are deleted while it is read: that is a loss, and has tests of its own.
EXCLUDED = "retained"
NO_SETTINGS = "does not tell the settings of topics"
# 4.1 has a setting of this topic under a name that other versions do not know.
INTERNAL_CONFIGS = "internal.*"


def kctl(*words):
    return subprocess.run(
        [sys.executable, "-m", "kctl", *map(str, words)],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def topics_of(address):
    found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=60).topics
    return sorted(it for it in found if not it.startswith(("_", "kctl-mirror")) and it != EXCLUDED)


def contents(address, topic):
    """Return the committed records of partition 0, as librdkafka reads them."""
    settings = {
        "bootstrap.servers": address, "group.id": "judge", "enable.partition.eof": True,
        "isolation.level": "read_committed", "auto.offset.reset": "earliest", "log_level": 0,
    }  # fmt: skip
    client = Consumer(settings)
    begin, _end = client.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    client.assign([TopicPartition(topic, 0, begin)])
    found = []
    while True:
        message = client.poll(60)
        assert message is not None
        if message.error():
            client.close()
            return found
        # Where a record has no timestamp, as in format v0, librdkafka says 0 or -1.
        timestamp = max(message.timestamp()[1], 0)
        found.append((message.key(), message.value(), message.headers(), timestamp))


def last_values(records):
    """Return the last value of each key; None is no value, as the cleaner removes tombstones."""
    found = {key: value for key, value, _headers, _timestamp in records}
    return {key: value for key, value in found.items() if value is not None}


def write_large(broker):
    """Write records of 10 MiB, plain and compressed, which the settings of the topic allow."""
    broker.create("large", LARGE)
    for codec in ("none", "gzip"):
        producer = Producer(
            broker.client_settings(**{"message.max.bytes": 12_000_000, "compression.type": codec})
        )
        producer.produce("large", os.urandom(LARGE_BYTES // 2).hex().encode(), partition=0)
        producer.produce("large", None, b"tombstone", partition=0)
        assert not producer.flush(60)


@pytest.mark.parametrize("version", ["0.10.2.2", "1.1.1", "4.1.0"])
def test_every_kind_of_topic_of_an_apache_broker_is_copied(tmp_path, version):
    (tmp_path / "source").mkdir()
    with filled_broker(version, tmp_path / "source", []) as source, KctlBroker(tmp_path / "t") as t:
        create_topics(source)
        fill(source, 0)
        write_large(source)
        ends = ("--source", source.address, "--target", t.address, "--topics", "*")
        ends += ("--exclude", EXCLUDED)
        if source.release < (0, 11):
            # It does not tell the settings of topics: without these the target's defaults apply.
            for topic, config in (
                ("large", "max.message.bytes=12000000"),
                ("compacted", "cleanup.policy=compact"),
                ("compacted-formats", "cleanup.policy=compact"),
            ):
                words = ("topic", "create", topic, "-b", t.address, "-p", 1, "--config", config)
                made = kctl(*words)
                assert made.returncode == 0, made.stderr
        copied = kctl(
            "mirror", "run", *ends, "--once", "--groups", "*", "--exclude-config",
            INTERNAL_CONFIGS, "--name", "m",
        )  # fmt: skip
        assert copied.returncode == 0, copied.stdout + copied.stderr
        assert (NO_SETTINGS in copied.stderr) == (source.release < (0, 11))
        proof = kctl("mirror", "verify", *ends, "-o", "json")
        assert proof.returncode == 0, proof.stdout + proof.stderr
        proven = {it["topic"]: it for it in json.loads(proof.stdout)}
        topics = topics_of(source.address)
        assert sorted(proven) == topics == topics_of(t.address)
        assert proven["large"]["equal"] == 4
        for topic in topics:
            expected, found = contents(source.address, topic), contents(t.address, topic)
            assert len(found) > 0
            if "compacted" in topic:
                assert last_values(found) == last_values(expected)
            else:
                assert found == expected, topic
        carried = Consumer({"bootstrap.servers": t.address, "group.id": "group-0", "log_level": 0})
        [position] = carried.committed([TopicPartition("plain", 0)], 60)
        carried.close()
        assert position.offset == 19
