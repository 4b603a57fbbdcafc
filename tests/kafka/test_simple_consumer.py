"""SimpleConsumer against a broker of Kafka 2.7."""

import pytest

from kctl.errors import UnreachableError
from kctl.kafka import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchRequest,
    OffsetsStorage,
    SimpleConsumer,
    TopicPartition,
)
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.testing.kafka_broker import KafkaBroker


@pytest.fixture(scope="module")
def broker():
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def consumer(broker):
    host, port = broker.bootstrap_servers.split(":")
    with SimpleConsumer(host, int(port)) as consumer:
        yield consumer


def fill(broker, topic, count=5, partitions=1, **settings):
    broker.create_topic(topic, partitions, **settings)
    for number in range(count):
        for partition in range(partitions):
            broker.produce(topic, f"{partition}-{number}", key="k", partition=partition)


def values(found):
    return [it.message for it in found]


def test_messages_from_an_offset_on_are_fetched(broker, consumer):
    fill(broker, "fetched")
    found = consumer.fetch(FetchRequest("fetched", 0, 3))
    assert [(it.offset, it.next_offset, it.message, it.key) for it in found] == [
        (3, 4, b"0-3", b"k"), (4, 5, b"0-4", b"k"),
    ]  # fmt: skip
    assert (found.next_offset, found.high_watermark) == (5, 5)
    assert all(it.timestamp_ms > 0 for it in found)


def test_each_fetch_of_a_multifetch_has_its_own_error(broker, consumer):
    fill(broker, "several", partitions=2)
    requests = [
        FetchRequest("several", 0, 0), FetchRequest("several", 1, 3),
        FetchRequest("several", 0, 4), FetchRequest("several", 0, 99),
        FetchRequest("no-such-topic", 0, 0),
    ]  # fmt: skip
    found = consumer.multifetch(requests)
    assert [it.request._replace(fetch_size=None) for it in found] == requests
    assert values(found[0]) == [b"0-0", b"0-1", b"0-2", b"0-3", b"0-4"]
    assert values(found[1]) == [b"1-3", b"1-4"]
    assert values(found[2]) == [b"0-4"]
    for broken, code in ((3, "OFFSET_OUT_OF_RANGE"), (4, "UNKNOWN_TOPIC_OR_PARTITION")):
        with pytest.raises(ApiError) as caught:
            list(found[broken])
        assert caught.value.code == ErrorCode[code]
    assert consumer.multifetch([]) == []


def test_offsets_of_segments_are_listed(broker, consumer):
    fill(broker, "listed", 3)
    assert consumer.get_offsets_before("listed", 0, LATEST_TIME, 10) == [3, 0]
    assert consumer.get_offsets_before("listed", 0, EARLIEST_TIME, 10) == [0]
    with pytest.raises(ApiError):
        consumer.get_offsets_before("listed", 7, LATEST_TIME, 1)


@pytest.mark.parametrize("storage", OffsetsStorage)
def test_committed_offsets_are_read_back(broker, consumer, storage):
    topic = f"committed-{storage.value}"
    broker.create_topic(topic, 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.commit_offsets("g", {first: 3}, storage)
    assert consumer.fetch_offsets("g", [first, second], storage) == {first: 3}
    other = next(it for it in OffsetsStorage if it is not storage)
    assert consumer.fetch_offsets("g", [first], other) == {}


def test_a_commit_that_fails_names_the_partition(consumer):
    with pytest.raises(ApiError, match="not committed: nowhere-0"):
        consumer.commit_offsets("g", {TopicPartition("nowhere", 0): 1})


def test_a_broker_that_is_not_there_is_an_error():
    with SimpleConsumer("127.0.0.1", 1, 1_000) as consumer, pytest.raises(UnreachableError):
        consumer.fetch(FetchRequest("t", 0, 0))
