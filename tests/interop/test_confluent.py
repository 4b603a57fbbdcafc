"""confluent-kafka (librdkafka): produce, consume, groups, seeks and admin calls."""

import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

TIMEOUT_S = 120


def make_topic(bootstrap, topic, partitions=1, config=None):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    return admin


def produce(bootstrap, topic, records, **settings):
    """Send (key, value, headers, timestamp) tuples; the reports in order of delivery."""
    reports, errors = [], []

    def report(error, message):
        (errors if error else reports).append(error or message)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for key, value, headers, timestamp in records:
        producer.produce(
            topic, value, key, partition=0, on_delivery=report, headers=headers, timestamp=timestamp
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []
    return reports


def make_consumer(bootstrap, group, **settings):
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def poll(consumer, count, timeout_s=TIMEOUT_S):
    """`count` messages, or as many as come in time."""
    found, deadline = [], time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


RECORDS = [
    (
        None if n % 7 == 0 else b"key-%d" % n,
        None if n % 13 == 5 else b"value-%d-" % n * (n % 9 + 1),
        [("h", b"v%d" % n), ("h", None), ("", b"")] if n % 5 == 0 else None,
        1_600_000_000_000 + 1000 * n,
    )
    for n in range(500)
]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_what_is_produced_is_consumed(bootstrap, topic, codec, idempotent):
    make_topic(bootstrap, topic)
    reports = produce(
        bootstrap,
        topic,
        RECORDS,
        **{"compression.type": codec, "enable.idempotence": idempotent},
    )
    assert [message.offset() for message in reports] == list(range(len(RECORDS)))
    consumer = make_consumer(bootstrap, topic)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = [
        (m.key(), m.value(), m.headers(), m.timestamp()[1], m.offset())
        for m in poll(consumer, len(RECORDS))
    ]
    consumer.close()
    assert found == [(*record, offset) for offset, record in enumerate(RECORDS)]


def test_log_append_time_and_broker_compression(bootstrap, topic):
    make_topic(
        bootstrap,
        topic,
        config={"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
    )
    before_ms = time.time() * 1000 - 5000
    produce(bootstrap, topic, RECORDS[:20], **{"compression.type": "gzip"})
    consumer = make_consumer(bootstrap, topic)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = poll(consumer, 20)
    consumer.close()
    assert [m.value() for m in found] == [value for _, value, _, _ in RECORDS[:20]]
    assert {m.timestamp()[0] for m in found} == {2}
    assert all(before_ms < m.timestamp()[1] < before_ms + 60_000 for m in found)


def test_a_record_that_is_too_large_is_refused(bootstrap, topic):
    make_topic(bootstrap, topic, config={"max.message.bytes": "1000"})
    codes = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: codes.append(error.code()))
    producer.flush(TIMEOUT_S)
    assert codes == [KafkaError.MSG_SIZE_TOO_LARGE]


@pytest.mark.slow
def test_a_group_shares_partitions_commits_and_continues(bootstrap, topic):
    make_topic(bootstrap, topic, partitions=4)
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(400):
        producer.produce(topic, b"%d" % n, partition=n % 4)
    assert producer.flush(TIMEOUT_S) == 0

    first = make_consumer(bootstrap, topic)
    first.subscribe([topic])
    assert len(poll(first, 400)) == 400
    assert len(first.assignment()) == 4

    second = make_consumer(bootstrap, topic)
    second.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and not (
        len(first.assignment()) == len(second.assignment()) == 2
    ):
        first.poll(0.1)
        second.poll(0.1)
    assert len(first.assignment()) == len(second.assignment()) == 2
    first.close()

    deadline = time.monotonic() + TIMEOUT_S
    while len(second.assignment()) != 4 and time.monotonic() < deadline:
        second.poll(0.1)
    offsets = [TopicPartition(topic, p, 60 + p) for p in range(4)]
    second.commit(offsets=offsets, asynchronous=False)
    second.close()

    third = make_consumer(bootstrap, topic)
    committed = third.committed([TopicPartition(topic, p) for p in range(4)], TIMEOUT_S)
    assert [tp.offset for tp in committed] == [60, 61, 62, 63]
    third.subscribe([topic])
    messages = poll(third, 160 - 6)
    firsts = {p: min(m.offset() for m in messages if m.partition() == p) for p in range(4)}
    assert firsts == {0: 60, 1: 61, 2: 62, 3: 63}
    third.close()


def test_offsets_are_found_by_time(bootstrap, topic):
    make_topic(bootstrap, topic)
    produce(bootstrap, topic, RECORDS)
    consumer = make_consumer(bootstrap, topic)

    def look_up(timestamp):
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], TIMEOUT_S)
        return found.offset

    assert look_up(1_600_000_000_000 + 1000 * 321) == 321
    assert look_up(1_600_000_000_000 + 1000 * 321 - 1) == 321
    assert look_up(1) == 0
    assert look_up(1_700_000_000_000) == -1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 500)
    consumer.close()


def test_admin_calls(bootstrap, topic):
    admin = make_topic(bootstrap, topic, partitions=2, config={"retention.ms": "1000000"})
    assert len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 2
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) != 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert described["retention.ms"].value == "1000000"
    assert described["retention.ms"].source == 1
    assert described["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("max.message.bytes", "500000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([change])[resource].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        if described["max.message.bytes"].value == "500000":
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert described["retention.ms"].value == "604800000"

    produce(bootstrap, topic, RECORDS[:100])
    part = TopicPartition(topic, 0, 40)
    assert admin.delete_records([part])[part].result(TIMEOUT_S).low_watermark == 40
    earliest = {TopicPartition(topic, 0): OffsetSpec.earliest()}
    (future,) = admin.list_offsets(earliest).values()
    assert future.result(TIMEOUT_S).offset == 40

    group = f"{topic}-group"
    consumer = make_consumer(bootstrap, group)
    consumer.subscribe([topic])
    assert len(poll(consumer, 60)) == 60
    consumer.commit(asynchronous=False)
    described_group = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert described_group.state.name == "STABLE"
    (member,) = described_group.members
    assert len(member.assignment.topic_partitions) == 3
    consumer.close()
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    assert group in [entry.group_id for entry in listed]
    wanted = ConsumerGroupTopicPartitions(group)
    offsets = admin.list_consumer_group_offsets([wanted])[group].result(TIMEOUT_S)
    assert [(tp.partition, tp.offset) for tp in offsets.topic_partitions] == [(0, 100)]
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)

    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while topic in admin.list_topics(timeout=TIMEOUT_S).topics:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_admin_calls_refuse(bootstrap, topic):
    admin = make_topic(bootstrap, topic)

    def code(future):
        with pytest.raises(KafkaException) as error:
            future.result(TIMEOUT_S)
        return error.value.args[0].name()

    assert code(admin.create_topics([NewTopic(topic, 1, 1)])[topic]) == "TOPIC_ALREADY_EXISTS"
    assert code(admin.create_topics([NewTopic("a/b", 1, 1)])["a/b"]) == "TOPIC_EXCEPTION"
    new = f"{topic}-x"
    assert code(admin.create_topics([NewTopic(new, 1, 9)])[new]) == "INVALID_REPLICATION_FACTOR"
    assert code(admin.create_topics([NewTopic(new, 0, 1)])[new]) == "INVALID_PARTITIONS"
    bad = NewTopic(new, 1, 1, config={"retention.msec": "1"})
    assert code(admin.create_topics([bad])[new]) == "INVALID_CONFIG"
    assert code(admin.create_partitions([NewPartitions(topic, 1)])[topic]) == "INVALID_PARTITIONS"
    assert code(admin.delete_topics([new])[new]) == "UNKNOWN_TOPIC_OR_PART"
    assert code(admin.delete_consumer_groups([new])[new]) == "GROUP_ID_NOT_FOUND"


def test_producing_to_a_new_topic_creates_it(bootstrap, topic):
    reports = produce(bootstrap, topic, RECORDS[:3])
    assert [message.offset() for message in reports] == [0, 1, 2]
