"""A mirror from kctl to Apache Kafka 2.7.2 and back: what brokers accept, clients read alike."""

import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.zookeeper import running_zookeeper

pytestmark = pytest.mark.kafka

TIMEOUT_S = 60


def kctl(*words):
    return subprocess.run(
        [sys.executable, "-m", "kctl", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def mirror(source, target, topics, rename, *more):
    return kctl(
        "mirror", "run", "--source", source, "--target", target, "--topics", topics, "--once",
        "--rename", rename, "--groups", "readers", *more,
    )  # fmt: skip


def contents(address, topic):
    """Return what librdkafka reads of a topic, and the offsets of its records."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "judge",
        "enable.partition.eof": True,
        "log_level": 0,
    }
    client = Consumer(settings)
    client.assign([TopicPartition(topic, 0, 0)])
    records, offsets = [], []
    while True:
        message = client.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            client.close()
            return records, offsets
        offsets.append(message.offset())
        records.append((message.key(), message.value(), message.headers(), message.timestamp()))


def fill(address, topic):
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client = Producer(
            {
                "bootstrap.servers": address,
                "compression.type": codec,
                "transactional.id": codec,
                "log_level": 0,
            }
        )
        client.init_transactions(TIMEOUT_S)
        for end in (client.abort_transaction, client.commit_transaction):
            client.begin_transaction()
            for number in range(50):
                value = None if number == 7 else codec.encode() * number
                client.produce(
                    topic, value, b"%d" % number, partition=0, headers=[("h", b"x"), ("n", None)]
                )
            client.flush(TIMEOUT_S)
            end(TIMEOUT_S)


@pytest.fixture(scope="module")
def apache(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with (
        running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        apache_kafka.apache_broker(tmp_path_factory.mktemp("apache"), zookeeper.address) as address,
    ):
        yield address


@pytest.mark.parametrize("mode", [(), ("--at-least-once",)])
def test_records_of_every_codec_go_there_and_back(apache, tmp_path, mode):
    topic = f"orders{len(mode)}"
    with KctlBroker(tmp_path) as broker:
        kctl("topic", "create", topic, "-b", broker.address)
        fill(broker.address, topic)
        original, offsets = contents(broker.address, topic)
        assert len(original) == 250
        reader = Consumer(
            {"bootstrap.servers": broker.address, "group.id": "readers", "log_level": 0}
        )
        reader.commit(offsets=[TopicPartition(topic, 0, offsets[120])], asynchronous=False)
        reader.close()

        there = mirror(broker.address, apache, topic, "{topic}.there", *mode)
        assert there.returncode == 0, there.stdout + there.stderr
        assert contents(apache, f"{topic}.there")[0] == original
        back = mirror(apache, broker.address, f"{topic}.there", "{topic}.back", *mode)
        assert back.returncode == 0, back.stdout + back.stderr

        found, offsets = contents(broker.address, f"{topic}.there.back")
        assert found == original
        reader = Consumer(
            {"bootstrap.servers": broker.address, "group.id": "readers", "log_level": 0}
        )
        [carried] = reader.committed([TopicPartition(f"{topic}.there.back", 0)], TIMEOUT_S)
        reader.close()
        assert carried.offset == offsets[120]
