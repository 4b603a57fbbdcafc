"""kafka-python: the same story as with confluent-kafka, by another client's code."""

import gc
import time

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 120
COUNT = 200

# kafka-python may leave a socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _collected():
    """Have what a test leaves to the garbage collector go with it."""
    yield
    gc.collect()


@pytest.fixture
def admin(bootstrap):
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def make_consumer(bootstrap, group=None, **settings):
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )


def poll(consumer, count):
    found, deadline = [], time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        # A poll that ends while kafka-python 3.0.12 joins again leaves it in the rebalance forever.
        for records in consumer.poll(timeout_ms=TIMEOUT_S * 1000).values():
            found += records
    return found


def record(n):
    key = None if n % 7 == 0 else b"key-%d" % n
    headers = [("h", b"v%d" % n)] if n % 5 == 0 else []
    return key, b"value-%d" % n, headers, 1_600_000_000_000 + n


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed(bootstrap, admin, topic, codec):
    admin.create_topics([NewTopic(topic, 1, 1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5)
    sent = []
    for n in range(COUNT):
        key, value, headers, timestamp = record(n)
        sent.append(producer.send(topic, value, key=key, headers=headers, timestamp_ms=timestamp))
    producer.flush(TIMEOUT_S)
    assert [future.get(TIMEOUT_S).offset for future in sent] == list(range(COUNT))
    producer.close()

    consumer = make_consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = poll(consumer, COUNT)
    consumer.close()
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in found] == [
        record(n) for n in range(COUNT)
    ]


def test_a_group_commits_and_continues(bootstrap, admin, topic):
    admin.create_topics([NewTopic(topic, 2, 1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for n in range(COUNT):
        producer.send(topic, b"%d" % n, partition=n % 2)
    producer.flush(TIMEOUT_S)
    producer.close()

    first = make_consumer(bootstrap, topic)
    first.partitions_for_topic(topic)
    first.subscribe([topic])
    assert len(poll(first, COUNT)) == COUNT
    offsets = {TopicPartition(topic, p): OffsetAndMetadata(90 + p, "note", -1) for p in range(2)}
    first.commit(offsets)
    first.close()

    second = make_consumer(bootstrap, topic)
    # kafka-python 3.0 may not fetch after a second rebalance, which unknown metadata cause.
    second.partitions_for_topic(topic)
    second.subscribe([topic])
    found = poll(second, 19)
    assert sorted({(r.partition, min(r.offset, 91)) for r in found}) == [(0, 90), (0, 91), (1, 91)]
    assert second.committed(TopicPartition(topic, 1)) == 91
    second.close()


def test_offsets_by_time_and_ends(bootstrap, admin, topic):
    # The times are long past.
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "-1"})])
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for n in range(COUNT):
        producer.send(topic, b"x", timestamp_ms=1000 + 10 * n)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = make_consumer(bootstrap)
    part = TopicPartition(topic, 0)
    consumer.assign([part])
    assert consumer.beginning_offsets([part]) == {part: 0}
    assert consumer.end_offsets([part]) == {part: COUNT}
    found = consumer.offsets_for_times({part: 1000 + 10 * 55 - 3})[part]
    assert (found.offset, found.timestamp) == (55, 1550)
    assert consumer.offsets_for_times({part: 10**12})[part] is None
    consumer.close()


def test_topics_come_and_go(admin, topic):
    admin.create_topics([NewTopic(topic, 3, 1)])
    deadline = time.monotonic() + TIMEOUT_S
    while topic not in admin.list_topics():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    admin.delete_topics([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while topic in admin.list_topics():
        assert time.monotonic() < deadline
        time.sleep(0.05)
