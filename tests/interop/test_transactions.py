"""Transactions of real clients: librdkafka, aiokafka and Apache Kafka's own client, undisturbed,
with the same results on kctl and on Apache Kafka 2.7.2."""

import asyncio
import subprocess
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache_kafka

TIMEOUT_S = 120
JAVA_CLIENT = Path(__file__).parent.parent / "support" / "java" / "TransactionalProducer.java"


def make_topic(address, topic, partitions=1):
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    return admin


def producer_of(address, transactional_id, **settings):
    given = {"bootstrap.servers": address, "transactional.id": transactional_id, **settings}
    producer = Producer(given)
    producer.init_transactions(TIMEOUT_S)
    return producer


def transaction(producer, topic, *values, commit=True):
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def read(address, topic, count, *, committed=True, group="reader"):
    """The first `count` values that such a reader sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, deadline = [], time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
    consumer.close()
    return found


def test_librdkafka_commits_and_aborts(bootstrap, topic):
    make_topic(bootstrap, topic)
    producer = producer_of(bootstrap, topic)
    transaction(producer, topic, "a", "b")
    transaction(producer, topic, "c", commit=False)
    transaction(producer, topic, "d")
    for turn in range(20):
        transaction(producer, topic, f"turn {turn}", commit=turn % 2 == 0)
    assert read(bootstrap, topic, 3) == ["a", "b", "d"]
    assert read(bootstrap, topic, 4, committed=False) == ["a", "b", "c", "d"]
    assert read(bootstrap, topic, 13)[3:] == [f"turn {turn}" for turn in range(0, 20, 2)]


def test_librdkafkas_zombie_is_fenced_and_its_records_are_not_seen(bootstrap, topic):
    make_topic(bootstrap, topic)
    zombie = producer_of(bootstrap, topic)
    zombie.begin_transaction()
    zombie.produce(topic, "zombie")
    assert zombie.flush(TIMEOUT_S) == 0
    heir = producer_of(bootstrap, topic)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()
    transaction(heir, topic, "heir")
    assert read(bootstrap, topic, 1) == ["heir"]


@pytest.mark.parametrize("commit", [True, False])
def test_librdkafkas_offsets_count_if_the_transaction_commits(bootstrap, topic, commit):
    admin = make_topic(bootstrap, topic)
    producer = producer_of(bootstrap, topic)
    transaction(producer, topic, *"abc")
    group = f"{topic}-{commit}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer.begin_transaction()
    producer.produce(topic, "out")
    offsets = [TopicPartition(topic, 0, 2)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    expected, deadline = (2 if commit else -1001), time.monotonic() + TIMEOUT_S
    while True:
        found = admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S)
        if found.topic_partitions[0].offset == expected or time.monotonic() > deadline:
            break
    assert found.topic_partitions[0].offset == expected
    consumer.close()


def test_aiokafka_copies_from_topic_to_topic(bootstrap, topic):
    make_topic(bootstrap, topic)
    make_topic(bootstrap, f"{topic}-out")

    async def story():
        source, copy = AioPartition(topic, 0), f"{topic}-out"
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        await producer.start()
        async with producer.transaction():
            for number in range(10):
                await producer.send_and_wait(topic, b"%d" % number)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"never")
        await producer.abort_transaction()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=topic,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        consumer.assign([source])
        copied = 0
        while copied < 10:
            found = await consumer.getmany(source, timeout_ms=500, max_records=4)
            if not (records := found.get(source)):
                continue
            async with producer.transaction():
                for record in records:
                    await producer.send_and_wait(copy, record.value + b"!")
                position = await consumer.position(source)
                await producer.send_offsets_to_transaction({source: position}, topic)
            copied += len(records)
        # The marker of the last transaction may still be on its way.
        while (committed := await consumer.committed(source)) is None or committed < 10:
            await asyncio.sleep(0.02)
        await consumer.stop()
        await producer.stop()
        return copied, committed

    copied, committed = asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))
    assert copied == 10
    assert committed >= 10  # markers have offsets too
    assert read(bootstrap, f"{topic}-out", 10) == [f"{number}!" for number in range(10)]


@pytest.mark.kafka
@pytest.mark.parametrize("version", ["2.7.2", "3.9.1"])
def test_apache_kafkas_own_client_goes_through_all_of_it(bootstrap, topic, version):
    if apache_kafka.libs(version) is None:
        pytest.skip(f"no jars of Apache Kafka {version}")
    make_topic(bootstrap, topic)
    *options, _ = apache_kafka.java_command(version, "-", level="ERROR")
    done = subprocess.run(
        [*options, str(JAVA_CLIENT), bootstrap, topic, topic],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "committed [a, b, e]",
        "all [a, b, c, d, e]",
        "committed 13",
        "offset 3",
        "fenced ProducerFencedException",
        "14 last false",
    ], done.stdout + done.stderr
