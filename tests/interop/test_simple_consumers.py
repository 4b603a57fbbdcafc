"""B4: kctl's SimpleConsumer reads kctl, Apache Kafka 1.1.1 and 2.7.2 alike.

`test_old_brokers.py` has 0.8.2 and 0.9; `tests/serve/test_kafka07.py` has Kafka 0.7.
"""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.kafka import (
    EARLIEST_TIME,
    LATEST_TIME,
    FetchRequest,
    OffsetsStorage,
    SimpleConsumer,
    TopicPartition,
)
from kctl.protocol.error_codes import ApiError, ErrorCode
from tests.support.kafka_versions import filled_broker

CODECS = ("none", "gzip", "snappy", "lz4")
PER_CODEC = 100
LARGE = b"x" * 40_000
END = PER_CODEC * len(CODECS) + 1


@pytest.fixture(
    params=[
        "kctl",
        pytest.param("1.1.1", marks=pytest.mark.kafka),
        pytest.param("2.7.2", marks=pytest.mark.kafka),
    ],
    scope="module",
)
def address(request, tmp_path_factory):
    if request.param == "1.1.1":
        with filled_broker("1.1.1", tmp_path_factory.mktemp("old"), topics=[]) as broker:
            yield broker.address
    elif request.param == "2.7.2":
        yield request.getfixturevalue("apache_broker")
    else:
        yield request.getfixturevalue("kctl_broker").address


@pytest.fixture(scope="module")
def partition(address):
    """A partition with messages of every codec, and a large one at its end."""
    name = "simple-consumers"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 50}
        )
        for number in range(PER_CODEC):
            producer.produce(name, f"{codec} {number}", key=str(number))
        producer.flush()
    producer.produce(name, LARGE)
    producer.flush()
    return TopicPartition(name, 0)


@pytest.fixture
def consumer(address):
    host, port = address.split(":")
    with SimpleConsumer(host, int(port)) as consumer:
        yield consumer


def test_every_message_of_every_codec_is_read(consumer, partition):
    found, offset = [], 0
    while offset < END:
        messages = consumer.fetch(FetchRequest(*partition, offset, 3_000), max_wait_ms=100)
        found += messages
        assert messages.next_offset > offset
        offset = messages.next_offset
    assert [it.offset for it in found] == list(range(END))
    texts = [(f"{codec} {n}", str(n)) for codec in CODECS for n in range(PER_CODEC)]
    assert [(it.message.decode(), it.key.decode()) for it in found[:-1]] == texts
    assert found[-1].message == LARGE


def test_each_fetch_has_its_own_error(consumer, partition):
    requests = [
        FetchRequest(*partition, END - 1), FetchRequest(*partition, END),
        FetchRequest(*partition, END + 1), FetchRequest("no-such-topic", 0, 0),
    ]  # fmt: skip
    last, nothing, beyond, unknown = consumer.multifetch(requests)
    assert [it.message for it in last] == [LARGE]
    assert (list(nothing), nothing.high_watermark) == ([], END)
    for broken, code in ((beyond, "OFFSET_OUT_OF_RANGE"), (unknown, "UNKNOWN_TOPIC_OR_PARTITION")):
        with pytest.raises(ApiError) as caught:
            list(broken)
        assert caught.value.code == ErrorCode[code]


def test_offsets_are_listed_and_kept_in_both_stores(consumer, partition):
    assert consumer.get_offsets_before(*partition, LATEST_TIME, 5) == [END, 0]
    assert consumer.get_offsets_before(*partition, EARLIEST_TIME, 5) == [0]
    for number, storage in enumerate(OffsetsStorage):
        consumer.commit_offsets("simple", {partition: number + 5}, storage)
    stored = [consumer.fetch_offsets("simple", [partition], it) for it in OffsetsStorage]
    assert stored == [{partition: 5}, {partition: 6}]
