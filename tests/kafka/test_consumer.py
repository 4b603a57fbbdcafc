"""Consumer against a broker of Kafka 2.7: alone, in groups, blocking and for asyncio."""

import asyncio
import threading
from contextlib import suppress

import pytest

from kctl.errors import NotFoundError, UnreachableError, UsageError
from kctl.kafka import (
    Consumer,
    ConsumerConfig,
    ConsumerTimeoutError,
    KeyedMessage,
    Producer,
    TopicPartition,
    aio,
)
from kctl.protocol.error_codes import ApiError
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def kafka():
    with KafkaBroker() as broker:
        yield broker


def settings(kafka, **others):
    named = {name.replace("_", "."): value for name, value in others.items()}
    return {
        "bootstrap.servers": kafka.bootstrap_servers, "auto.offset.reset": "earliest",
        "consumer.timeout.ms": 20_000, **named,
    }  # fmt: skip


def fill(kafka, topic, partitions=1, count=10):
    kafka.create_topic(topic, partitions)
    for number in range(count):
        for partition in range(partitions):
            kafka.produce(topic, str(number), key="k", partition=partition)
    return [TopicPartition(topic, number) for number in range(partitions)]


def take(consumer, count):
    """The values of the next messages, up to `count` and no further."""
    found = []
    for message in consumer:
        found.append(int(message.value))
        if len(found) == count:
            return found
    return found


def committed(kafka, group, partition):
    with Consumer(settings(kafka, group_id=group)) as reader:
        return reader.committed([partition]).get(partition)


def test_assigned_partitions_are_read_without_a_group(kafka):
    (partition,) = fill(kafka, "assigned")
    with Consumer(settings(kafka)) as consumer:
        consumer.assign([partition])
        assert consumer.assignment() == [partition]
        found = consumer.poll(10_000)
        first = found[0]
        assert (first.topic, first.partition, first.offset) == ("assigned", 0, 0)
        assert (first.key, first.value, first.message) == (b"k", b"0", b"0")
        assert consumer.position(partition) == len(found)
        with pytest.raises(UsageError, match=r"group\.id"):
            consumer.commit()


def test_a_position_can_be_set(kafka):
    (partition,) = fill(kafka, "sought")
    with Consumer(settings(kafka)) as consumer:
        consumer.assign([partition])
        assert take(consumer, 3) == [0, 1, 2]
        assert consumer.position(partition) == 3
        consumer.seek(partition, 7)
        assert consumer.position(partition) == 7
        assert take(consumer, 3) == [7, 8, 9]
        consumer.seek_to_beginning(partition)
        assert take(consumer, 2) == [0, 1]
        consumer.seek_to_end()
        assert consumer.position(partition) == 10
        assert consumer.poll(0) == []
        kafka.produce("sought", "10", partition=0)
        assert take(consumer, 1) == [10]
        with pytest.raises(UsageError, match="not assigned"):
            consumer.seek(TopicPartition("sought", 9), 0)


def test_offsets_are_found_by_place_and_time(kafka):
    (partition,) = fill(kafka, "found")
    stamps = [it.timestamp for it in kafka.records("found")]
    with Consumer(settings(kafka)) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        assert consumer.offsets_for_times({partition: stamps[4]})[partition] <= 4
        assert consumer.offsets_for_times({partition: stamps[-1] + 1}) == {partition: 10}
        assert consumer.partitions_for("found") == [0]
        with pytest.raises(NotFoundError, match="No topic lost"):
            consumer.partitions_for("lost")


def test_a_group_continues_where_it_was_closed(kafka):
    (partition,) = fill(kafka, "continued")
    with Consumer(settings(kafka, group_id="continued")) as consumer:
        consumer.subscribe(["continued"])
        assert take(consumer, 4) == [0, 1, 2, 3]
    assert committed(kafka, "continued", partition) == 4
    with Consumer(settings(kafka, group_id="continued")) as consumer:
        consumer.subscribe(["continued"])
        assert take(consumer, 2) == [4, 5]


def test_a_message_whose_processing_failed_is_read_again(kafka):
    (partition,) = fill(kafka, "failed")

    def process():
        with Consumer(settings(kafka, group_id="failed")) as consumer:
            consumer.subscribe(["failed"])
            for message in consumer:
                if message.offset == 3:
                    raise ValueError(message.offset)

    with pytest.raises(ValueError, match="3"):
        process()
    assert committed(kafka, "failed", partition) == 3


def test_an_explicit_commit_covers_what_was_handed_out(kafka):
    (partition,) = fill(kafka, "explicit")
    with Consumer(settings(kafka, group_id="explicit", enable_auto_commit="false")) as consumer:
        consumer.subscribe(["explicit"])
        assert take(consumer, 6) == [0, 1, 2, 3, 4, 5]
        consumer.commit()
        assert consumer.committed([partition]) == {partition: 6}
        consumer.commit({partition: 2})
        assert take(consumer, 1) == [6]
    assert committed(kafka, "explicit", partition) == 2


def test_automatic_commits_exclude_the_message_in_hand(kafka):
    (partition,) = fill(kafka, "automatic")
    given = settings(kafka, group_id="automatic", auto_commit_interval_ms=1, max_poll_records=1)
    with Consumer(given) as consumer:
        consumer.subscribe(["automatic"])
        assert take(consumer, 5) == [0, 1, 2, 3, 4]
        # The poll of message 4 committed what was processed before it, at most.
        assert (committed(kafka, "automatic", partition) or 0) <= 4


def test_members_share_the_partitions_and_take_them_over(kafka):
    partitions = fill(kafka, "shared", partitions=4, count=5)
    first = Consumer(settings(kafka, group_id="shared", heartbeat_interval_ms=100))
    second = Consumer(settings(kafka, group_id="shared", heartbeat_interval_ms=100))
    stop, seen = threading.Event(), []

    def run(consumer):
        consumer.subscribe(["shared"])
        while not stop.is_set():
            seen.extend((it.partition, it.offset) for it in consumer.poll(100))

    def shares():
        return [it.assignment() for it in (first, second)]

    threads = [threading.Thread(target=run, args=(it,)) for it in (first, second)]
    for it in threads:
        it.start()
    wait_for(lambda: sorted(map(len, shares())) == [2, 2], lambda: str(shares()))
    wait_for(lambda: len(set(seen)) == 20, lambda: str(seen))
    stop.set()
    for it in threads:
        it.join()
    second.close()
    wait_for(lambda: bool(first.poll(100)) or first.assignment() == partitions, lambda: "")
    first.close()


def polled(consumer):
    """What the next poll hands out."""
    return consumer.poll(100)


def iterated(consumer):
    """What the iteration hands out next."""
    try:
        return [next(iter(consumer))]
    except ConsumerTimeoutError:
        return []


class Reader(threading.Thread):
    """Polls until it is stopped; an error is followed by the next poll."""

    def __init__(self, consumer, topic):
        super().__init__()
        self.consumer = consumer
        self.topic = topic
        self.found = []
        self.is_stopped = False

    def run(self):
        self.consumer.subscribe([self.topic])
        while not self.is_stopped:
            with suppress(ApiError):
                self.found += self.consumer.poll(100)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_stopped = True
        self.join()
        self.consumer.close()


def fails(consumer, found):
    """Whether the next poll raises an ApiError; what it returns is added to `found`."""
    try:
        found += consumer.poll(100)
    except ApiError:
        return True
    return False


def places(messages):
    return [(it.partition, it.offset) for it in messages]


@pytest.mark.parametrize("next_of", [polled, iterated])
def test_what_was_fetched_before_a_rebalance_is_read_by_its_new_owner(kafka, next_of):
    topic = f"moved-{next_of.__name__}"
    fill(kafka, topic, partitions=2)
    given = settings(kafka, group_id=topic, heartbeat_interval_ms=50, consumer_timeout_ms=100)
    # The buffer of polls is tested with one record a poll, that of the iteration with all.
    first = Consumer({**given, "max.poll.records": 1 if next_of is polled else 500})
    first.subscribe([topic])
    found = []
    while not found:
        found += next_of(first)
    with first, Reader(Consumer(given), topic) as second:
        wait_for(lambda: first._core._member.must_rejoin, lambda: "no rebalance")

        def are_read():
            found.extend(next_of(first))
            return len(found) + len(second.found) >= 20

        wait_for(are_read, lambda: str((found, second.found)))
        shares = [it.assignment() for it in (first, second.consumer)]
    assert sorted(map(len, shares)) == [1, 1]
    assert sorted(places(found) + places(second.found)) == [
        (partition, offset) for partition in range(2) for offset in range(10)
    ]


def test_a_coroutine_gives_up_what_was_fetched_before_a_rebalance(kafka):
    fill(kafka, "moved-async", partitions=2)
    given = settings(kafka, group_id="moved-async", heartbeat_interval_ms=50)

    async def main():
        async with aio.Consumer(given) as first:
            await first.subscribe(["moved-async"])
            found = [await anext(aiter(first))]
            with Reader(Consumer(given), "moved-async") as second:
                wait_for(lambda: first._core._member.must_rejoin, lambda: "no rebalance")
                while len(found) + len(second.found) < 20:
                    found += await first.poll(100)
                return places(found) + places(second.found)

    assert sorted(asyncio.run(main())) == [
        (partition, offset) for partition in range(2) for offset in range(10)
    ]


def test_nothing_is_read_of_an_assignment_that_is_over_while_the_new_one_cannot_begin(kafka):
    partitions = fill(kafka, "unbegun", partitions=2)
    given = settings(kafka, group_id="unbegun", heartbeat_interval_ms=50)
    with Consumer(given) as first:
        first.subscribe(["unbegun"])
        found = []
        while len(found) < 20:
            found += first.poll(100)
        assert first.assignment() == partitions
        with Reader(Consumer(given), "unbegun") as second:
            with kafka.inject_error("OffsetFetch", "UNKNOWN_SERVER_ERROR", times=None):
                wait_for(lambda: fails(first, found), lambda: "no rebalance")
                assert first.assignment() == []
            for partition in range(2):
                kafka.produce("unbegun", "10", key="k", partition=partition)

            def are_read():
                found.extend(first.poll(100))
                return len(found) + len(second.found) >= 22

            wait_for(are_read, lambda: str((found, second.found)))
            shares = [it.assignment() for it in (first, second.consumer)]
    assert sorted(map(len, shares)) == [1, 1]
    assert sorted(places(found) + places(second.found)) == [
        (partition, offset) for partition in range(2) for offset in range(11)
    ]


def test_what_was_fetched_earlier_does_not_put_off_automatic_commits(kafka):
    for next_of, count in ((polled, 1), (iterated, 500)):
        group = f"punctual-{next_of.__name__}"
        (partition,) = fill(kafka, group)
        given = settings(kafka, group_id=group, auto_commit_interval_ms=1, max_poll_records=count)
        with Consumer(given) as consumer:
            consumer.subscribe([group])
            found = []
            while len(found) < 9 and not consumer.committed([partition]).get(partition):
                found += next_of(consumer)
            assert 0 < consumer.committed([partition])[partition] < len(found) < 9


def test_another_subscription_commits_only_what_was_handed_out(kafka):
    (partition,) = fill(kafka, "left")
    with Consumer(settings(kafka, group_id="left")) as consumer:
        consumer.subscribe(["left"])
        assert take(consumer, 3) == [0, 1, 2]
        consumer.subscribe(["shared"])
        assert consumer.committed([partition]) == {partition: 3}
    with Consumer(settings(kafka, group_id="left")) as consumer:
        consumer.subscribe(["left"])
        assert take(consumer, 1) == [3]
        with pytest.raises(UsageError, match="list"):
            consumer.subscribe("left")
        assert take(consumer, 1) == [4]


def test_a_member_leaves_between_polls_that_are_far_apart_but_not_during_a_poll(kafka):
    fill(kafka, "paused", count=0)
    given = settings(kafka, group_id="paused", max_poll_interval_ms=500)
    left = kafka.request_count("LeaveGroup")
    with Consumer(given) as consumer:
        consumer.subscribe(["paused"])
        assert consumer.poll(1_200) == []
        assert kafka.request_count("LeaveGroup") == left
        wait_for(lambda: kafka.request_count("LeaveGroup") > left, lambda: "it stays")
        kafka.produce("paused", "1")
        assert take(consumer, 1) == [1]


def test_no_message_in_time_is_an_error_of_the_iteration(kafka):
    (partition,) = fill(kafka, "silent", count=0)
    with Consumer(settings(kafka, consumer_timeout_ms=50)) as consumer:
        consumer.assign([partition])
        with pytest.raises(ConsumerTimeoutError):
            next(iter(consumer))
        kafka.produce("silent", "1")
        assert [it.value for it in consumer.poll(20_000)] == [b"1"]


def test_without_a_position_and_a_reset_there_is_an_error(kafka):
    (partition,) = fill(kafka, "unset")
    with Consumer(settings(kafka, group_id="unset", auto_offset_reset="none")) as consumer:
        with pytest.raises(NotFoundError, match="no committed offset for unset-0"):
            consumer.assign([partition])
        consumer.commit({partition: 99})
        consumer.assign([partition])
        with pytest.raises(NotFoundError, match="before 99"):
            consumer.poll(20_000)


def test_settings_are_checked(kafka):
    for wrong in (
        {}, {"bootstrap.servers": "b", "auto.offset.reset": "first"},
        {"bootstrap.servers": "b", "heartbeat.interval.ms": 20_000},
        {"bootstrap.servers": "b", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        {"bootstrap.servers": "b", "broker.version.fallback": "first"},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            Consumer(wrong)
    assert ConsumerConfig({"bootstrap.servers": "b"})["reset"] == "latest"
    with Consumer(settings(kafka)) as consumer:
        with pytest.raises(UsageError, match="subscribe or assign"):
            consumer.poll(10)
        with pytest.raises(UsageError, match=r"group\.id"):
            consumer.subscribe(["t"])
    with Consumer(settings(kafka, group_id="g")) as consumer:
        with pytest.raises(UsageError, match="list"):
            consumer.subscribe("t")
        with pytest.raises(ApiError, match="not committed: t-0"):
            consumer.commit({TopicPartition("t", 0): 1})


def test_a_cluster_that_is_not_there_is_an_error():
    given = {"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": 500}
    with Consumer(given) as consumer, pytest.raises(UnreachableError):
        consumer.assign([TopicPartition("t", 0)])


def test_a_login_is_used(kafka_broker_factory):
    broker = kafka_broker_factory(topics=["secret"], users={"alice": "a-secret"})
    broker.produce("secret", "tea")
    given = {"auto.offset.reset": "earliest", "security.protocol": "SASL_PLAINTEXT"}
    given |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "a-secret"}
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, **given}) as consumer:
        consumer.assign([TopicPartition("secret", 0)])
        assert [it.value for it in consumer.poll(20_000)] == [b"tea"]


def test_coroutines_of_asyncio_read_and_write(kafka):
    kafka.create_topic("async", 2)

    async def main():
        given = settings(kafka, group_id="async")
        async with aio.Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
            for number in range(6):
                await producer.send(KeyedMessage("async", b"%d" % number, partition=number % 2))
            await producer.flush()
        found = []
        async with aio.Consumer(given) as consumer:
            await consumer.subscribe(["async"])
            async for message in consumer:
                found.append(int(message.value))
                if len(found) == 6:
                    break
            assert await consumer.assignment() == [("async", 0), ("async", 1)]
            await consumer.commit()
            return sorted(found), await consumer.committed([TopicPartition("async", 1)])

    assert asyncio.run(main()) == ([0, 1, 2, 3, 4, 5], {("async", 1): 3})


def test_what_a_producer_writes_a_consumer_reads(kafka):
    kafka.create_topic("both", 3)
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        for number in range(2_000):
            producer.send(KeyedMessage("both", b"%d" % number, key=b"%d" % (number % 7)))
    with Consumer(settings(kafka, group_id="both")) as consumer:
        consumer.subscribe(["both"])
        assert sorted(take(consumer, 2_000)) == list(range(2_000))
