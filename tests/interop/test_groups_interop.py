"""Consumer groups with real clients: rebalances, static members, offsets, administration.

The same stories run on kctl and, marked `kafka`, on Apache Kafka 2.7.2.
"""

import asyncio
import gc
import time
from collections import Counter

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

from tests.support.waiting import wait_for

TIMEOUT_S = 120
# A poll that ends while kafka-python 3.0.12 joins again leaves it in the rebalance forever.
KAFKA_PYTHON_POLL_MS = 1_000
STATIC_SETTINGS = {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 300}
COMMIT_COUNT = 300


@pytest.fixture
def admin(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap})


def make_topic(admin, topic, partitions):
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)


def make_consumer(bootstrap, group, **settings):
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 300,
            "session.timeout.ms": 30_000,
            **{
                name if name == "error_cb" else name.replace("_", "."): value
                for name, value in settings.items()
            },
        }
    )


def poll_until(consumers, condition, timeout_s=TIMEOUT_S):
    """Poll all consumers until `condition()`, and return the messages received."""
    messages, deadline = [], time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                messages.append(message)
    return messages


def partitions_of(consumers):
    return sorted(tp.partition for consumer in consumers for tp in consumer.assignment())


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go_and_every_partition_has_one_owner(bootstrap, admin, topic, strategy):
    make_topic(admin, topic, 12)
    settings = {"partition_assignment_strategy": strategy}
    consumers = []
    for count in (1, 2, 3):
        consumers.append(make_consumer(bootstrap, topic, **settings))
        consumers[-1].subscribe([topic])
        poll_until(
            consumers,
            lambda count=count: [len(c.assignment()) for c in consumers] == [12 // count] * count,
        )
        assert partitions_of(consumers) == list(range(12))
    consumers.pop().close()
    poll_until(consumers, lambda: [len(c.assignment()) for c in consumers] == [6, 6])
    for consumer in consumers:
        consumer.close()


def test_cooperative_members_keep_what_they_need_not_give_up(bootstrap, admin, topic):
    make_topic(admin, topic, 4)
    lost = []
    settings = {"partition_assignment_strategy": "cooperative-sticky"}
    first = make_consumer(bootstrap, topic, **settings)

    def on_revoke(consumer, partitions):
        lost.extend(tp.partition for tp in partitions)
        consumer.incremental_unassign(partitions)

    first.subscribe([topic], on_revoke=on_revoke)
    poll_until([first], lambda: len(first.assignment()) == 4)
    second = make_consumer(bootstrap, topic, **settings)
    second.subscribe([topic])
    poll_until([first, second], lambda: len(second.assignment()) == 2)
    assert len(lost) == 2
    assert partitions_of([first, second]) == [0, 1, 2, 3]
    first.close()
    second.close()


def test_ten_members_share_fifty_partitions_and_read_everything_once(bootstrap, admin, topic):
    make_topic(admin, topic, 50)
    consumers = [make_consumer(bootstrap, topic) for _ in range(10)]
    for consumer in consumers:
        consumer.subscribe([topic])
    poll_until(consumers, lambda: [len(c.assignment()) for c in consumers] == [5] * 10)
    assert partitions_of(consumers) == list(range(50))
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(1_000):
        producer.produce(topic, b"%d" % number, partition=number % 50)
    assert producer.flush(TIMEOUT_S) == 0
    seen, deadline = Counter(), time.monotonic() + TIMEOUT_S
    while seen.total() < 1_000 and time.monotonic() < deadline:
        for consumer in consumers:
            seen.update(message.value() for message in consumer.consume(100, 0.01))
    assert seen == Counter(b"%d" % number for number in range(1_000))
    for consumer in consumers:
        consumer.close()


@pytest.mark.slow
def test_a_member_that_vanishes_is_replaced_after_its_session(bootstrap, admin, topic):
    make_topic(admin, topic, 2)
    first = make_consumer(bootstrap, topic, max_poll_interval_ms=6_000, session_timeout_ms=6_000)
    second = make_consumer(bootstrap, topic)
    for consumer in (first, second):
        consumer.subscribe([topic])
    poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 1)
    # `first` is no longer polled: it leaves the group when its poll interval expires.
    poll_until([second], lambda: len(second.assignment()) == 2)
    second.close()
    first.close()


def test_a_static_member_restarts_without_a_rebalance(bootstrap, admin, topic):
    make_topic(admin, topic, 2)
    rebalances = []

    def watch(name):
        return lambda consumer, partitions: rebalances.append(name)

    def make(name):
        consumer = make_consumer(bootstrap, topic, **STATIC_SETTINGS, group_instance_id=name)
        consumer.subscribe([topic], on_assign=watch(name))
        return consumer

    one, two = make("one"), make("two")
    poll_until([one, two], lambda: len(one.assignment()) == len(two.assignment()) == 1)
    place = partitions_of([two])
    rebalances.clear()
    two.close()  # static members do not leave
    two = make("two")
    poll_until([one, two], lambda: len(two.assignment()) == 1)
    quiet_until = time.monotonic() + 1
    poll_until([one, two], lambda: time.monotonic() > quiet_until)
    assert partitions_of([two]) == place
    assert rebalances == ["two"]
    one.close()
    two.close()


def test_of_two_with_the_same_instance_id_the_older_is_fenced(bootstrap, admin, topic):
    make_topic(admin, topic, 1)
    errors = []
    settings = {**STATIC_SETTINGS, "group_instance_id": "same"}
    older = make_consumer(bootstrap, topic, **settings, error_cb=errors.append)
    older.subscribe([topic])
    poll_until([older], lambda: len(older.assignment()) == 1)
    newer = make_consumer(bootstrap, topic, **settings)
    newer.subscribe([topic])
    poll_until([newer], lambda: len(newer.assignment()) == 1)
    deadline = time.monotonic() + TIMEOUT_S
    while not errors and time.monotonic() < deadline:
        message = older.poll(0.1)
        if message is not None and message.error() is not None:
            errors.append(message.error())
    fenced = (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
    assert errors[0].code() in fenced
    newer.close()


def test_commits_need_no_group(bootstrap, admin, topic):
    make_topic(admin, topic, 2)
    consumer = make_consumer(bootstrap, topic)
    offsets = [TopicPartition(topic, 0, 7, "note"), TopicPartition(topic, 1, 9)]
    consumer.commit(offsets=offsets, asynchronous=False)
    found = consumer.committed([TopicPartition(topic, p) for p in range(2)], TIMEOUT_S)
    assert [(tp.offset, tp.metadata) for tp in found] == [(7, "note"), (9, None)]
    consumer.close()


def test_a_commit_with_too_much_to_say_is_refused(bootstrap, admin, topic):
    make_topic(admin, topic, 1)
    consumer = make_consumer(bootstrap, topic)
    offsets = [TopicPartition(topic, 0, 7, "x" * 5_000)]
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=offsets, asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    consumer.close()


def test_many_commits_in_a_row_are_all_remembered(bootstrap, admin, topic):
    make_topic(admin, topic, 1)
    consumer = make_consumer(bootstrap, topic)
    for offset in range(1, COMMIT_COUNT + 1):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        if offset % 50 == 0:
            (found,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
            assert found.offset == offset
    consumer.close()


def test_groups_are_described_listed_and_deleted(bootstrap, admin, topic):
    make_topic(admin, topic, 2)
    consumer = make_consumer(bootstrap, topic, client_id="the-client")
    consumer.subscribe([topic])
    poll_until([consumer], lambda: len(consumer.assignment()) == 2)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert member.client_id == "the-client"
    assert {tp.partition for tp in member.assignment.topic_partitions} == {0, 1}
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    consumer.close()
    listed = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(TIMEOUT_S)
    assert topic in {group.group_id for group in listed.valid}
    admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert topic not in {group.group_id for group in listed.valid}
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_of_a_group_are_altered_from_outside(bootstrap, admin, topic):
    make_topic(admin, topic, 2)
    wanted = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 4)]
    request = [ConsumerGroupTopicPartitions(topic, wanted)]
    refusals = []

    def is_altered():
        """A broker that has just started has no coordinator yet."""
        try:
            admin.alter_consumer_group_offsets(request)[topic].result(TIMEOUT_S)
        except KafkaException as error:
            refusals.append(str(error))
            return False
        return True

    wait_for(is_altered, lambda: f"the offsets are not altered: {refusals[-1:]}")
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])
    found = listed[topic].result(TIMEOUT_S).topic_partitions
    assert sorted((tp.partition, tp.offset) for tp in found) == [(0, 3), (1, 4)]


# kafka-python may leave a socket to the garbage collector, which is to run within this test.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "version",
    [
        None,
        (0, 9),
        *(pytest.param(it, marks=pytest.mark.slow) for it in ((0, 10, 1), (1, 1), (2, 3))),
    ],
)
def test_kafka_python_of_any_age_joins_commits_and_leaves(bootstrap, admin, topic, version):
    make_topic(admin, topic, 2)
    settings = {} if version is None else {"api_version": version}
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=topic,
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        session_timeout_ms=30_000,
        **settings,
    )
    # Unknown metadata cause a second rebalance, which kafka-python 3.0 may never complete.
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while len(consumer.assignment()) != 2 and time.monotonic() < deadline:
        consumer.poll(KAFKA_PYTHON_POLL_MS)
    tp = PythonTopicPartition(topic, 1)
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while True:
        try:
            consumer.commit({tp: OffsetAndMetadata(5, "note", -1)})
            break
        except RebalanceInProgressError:
            # It has just received more partitions in metadata: poll it until it has joined again.
            assert time.monotonic() < deadline
            consumer.poll(KAFKA_PYTHON_POLL_MS)
    assert consumer.committed(tp) == 5
    consumer.close()
    described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    assert described.state == ConsumerGroupState.EMPTY
    del consumer
    gc.collect()


def test_aiokafka_hands_partitions_over_with_their_offsets(bootstrap, admin, topic):
    make_topic(admin, topic, 4)

    async def story():
        settings = {
            "bootstrap_servers": bootstrap,
            "group_id": topic,
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 300,
            "session_timeout_ms": 30_000,
        }
        first, second = (AIOKafkaConsumer(topic, **settings) for _ in range(2))
        await first.start()
        await second.start()
        both = (first, second)

        async def until(condition):
            while not condition():
                for consumer in both:
                    await consumer.getmany(timeout_ms=50)

        await until(lambda: [len(consumer.assignment()) for consumer in both] == [2, 2])
        for consumer in both:
            await consumer.commit({tp: 10 + tp.partition for tp in consumer.assignment()})
        await first.stop()
        while len(second.assignment()) != 4:
            await second.getmany(timeout_ms=50)
        found = [await second.committed(AioTopicPartition(topic, p)) for p in range(4)]
        assert found == [10, 11, 12, 13]
        await second.stop()

    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))
