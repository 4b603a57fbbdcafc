"""Registrations, owners and offsets of consumers on ZooKeeper, as Kafka and other clients write
them. The znodes of Kafka 0.7 are a recording of its server and clients."""

import json
from pathlib import Path

import pytest

from kctl.errors import CorruptDataError, UsageError
from kctl.model import TopicPartition
from kctl.store import consumer_znodes
from kctl.store.consumer_znodes import (
    BrokerPartition,
    FilterEscapes,
    Owner,
    Pattern,
    Subscription,
    decode_consumer_offset,
    encode_consumer_offset,
    encode_owner,
    encode_subscription,
    encode_subscription_07,
    parse_partition,
    read_owner,
    read_subscription,
)

RECORDED = json.loads((Path(__file__).parents[1] / "golden/g07/znodes.json").read_text())


def recorded(kind):
    """Path -> data of all recorded znodes of a kind: "ids", "owners" or "offsets"."""
    found = {}
    for moment in RECORDED.values():
        for path, znode in moment.items():
            if f"/{kind}/" in path and path.startswith("/consumers/") and znode["data"] is not None:
                found[path, znode["data"]] = None
    return found


def test_registrations_of_kafka_0_7_are_written_again_byte_for_byte():
    assert len(recorded("ids")) == 4
    for _, data in recorded("ids"):
        assert encode_subscription_07(read_subscription(data.encode())) == data.encode()


def test_owners_of_kafka_0_7_are_written_again_byte_for_byte():
    assert recorded("owners")
    for path, data in recorded("owners"):
        _, group, _, topic, name = path[1:].split("/")
        assert consumer_znodes.owner_path(group, topic, parse_partition(name)) == path
        assert encode_owner(*read_owner(data.encode())).decode() == data


def test_offsets_of_kafka_0_7_are_written_again_byte_for_byte():
    assert len(recorded("offsets")) > 10
    for path, data in recorded("offsets"):
        _, group, _, topic, name = path[1:].split("/")
        partition = parse_partition(name)
        assert isinstance(partition, BrokerPartition)
        assert consumer_znodes.offset_path(group, topic, partition) == path
        assert encode_consumer_offset(decode_consumer_offset(data.encode())).decode() == data


@pytest.mark.parametrize(
    ("data", "subscription"),
    [
        ('{ "t1": 2,"t2": 1 }', Subscription({"t1": 2, "t2": 1})),
        ("{  }", Subscription({})),
        ("*1*t.*|u", Subscription({"t.*|u": 1}, Pattern.WHITE_LIST, None, "t.*|u")),
        ("!12!u*!3!", Subscription({"u*!3!": 12}, Pattern.BLACK_LIST, None, "u*!3!")),
        # A topic that is called as a field of later releases.
        ('{ "subscription": 1 }', Subscription({"subscription": 1})),
    ],
)
def test_what_kafka_0_7_registers_is_read(data, subscription):
    assert read_subscription(data.encode()) == subscription


def test_a_registration_of_kafka_0_8_to_1_1_is_written_again():
    data = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1600000000000"}'
    subscription = read_subscription(data)
    assert subscription == ({"t": 2}, "static", 1_600_000_000_000, None)
    assert encode_subscription(subscription) == data


@pytest.mark.parametrize(
    ("escapes", "text"),
    [(FilterEscapes.ONCE, r"a\\d\\.b"), (FilterEscapes.TWICE, r"a\\\\d\\\\.b")],
)
def test_a_filter_is_read_however_often_it_was_escaped(escapes, text):
    data = (
        '{"version":1,"subscription":{"' + text + '":1},"pattern":"white_list","timestamp":"5"}'
    ).encode()
    subscription = read_subscription(data)
    assert subscription[:3] == ({r"a\d\.b": 1}, Pattern.WHITE_LIST, 5)
    assert subscription.registered_filter == json.loads(f'"{text}"')
    assert encode_subscription(subscription, escapes) == data


def test_a_filter_without_backslashes_is_the_same_with_both_escapes():
    subscription = Subscription({"ord.*|pay.*": 1}, Pattern.BLACK_LIST, 5, "ord.*|pay.*")
    once = encode_subscription(subscription, FilterEscapes.ONCE)
    assert encode_subscription(subscription) == once
    assert read_subscription(once) == subscription


def test_a_filter_that_matches_no_topic_yet_is_static():
    data = b'{"version":1,"subscription":{},"pattern":"white_list","timestamp":"5"}'
    assert read_subscription(data) == ({}, Pattern.STATIC, 5, None)


@pytest.mark.parametrize(
    ("data", "subscription"),
    [
        # kafka-node creates the znode before it sets its data.
        (b"", None),
        (b'{"version":1,"subscription":{"t":1},"pattern":"white_list","timestamp":"1"}',
         Subscription({"t": 1}, Pattern.WHITE_LIST, 1, "t")),
        # wvanbergen/kafka: a timestamp that is a number.
        (b'{"pattern":"static","subscription":{"t":1},"timestamp":1600000000,"version":1}',
         Subscription({"t": 1}, Pattern.STATIC, 1600000000)),
        # pykafka, samsa: the topic.
        (b"my.topic-1", Subscription({"my.topic-1": 1})),
    ],
)  # fmt: skip
def test_what_other_clients_register_is_read(data, subscription):
    assert read_subscription(data) == subscription


@pytest.mark.parametrize(
    "data",
    [b"{", b"[1]", b"\xff\xfe", b'{"t":"many"}', b'{"t":null}', b'{"t":true}', b"*x*t", b"a b",
     b'{"subscription":{"t":1},"pattern":"grey_list"}', b'{"subscription":{},"timestamp":[]}',
     b"[" * 100_000],
)  # fmt: skip
def test_a_registration_of_no_known_client_is_unknown(data):
    assert read_subscription(data) is None


def test_an_owner_is_a_thread_or_a_consumer():
    members = ["g_host-17-0a1b2c3d", "host:aaaa-4"]
    assert read_owner(b"g_host-17-0a1b2c3d-0", members) == Owner("g_host-17-0a1b2c3d", 0)
    # wvanbergen/kafka and kafka-node write the consumer alone, whose id may end as a thread's does.
    assert read_owner(b"host:aaaa-4", members) == Owner("host:aaaa-4", None)
    assert read_owner(b"consumer", members) == Owner("consumer", None)
    assert read_owner(b"", members) == Owner("", None)


def test_names_of_partitions():
    names = ["0", "17", "0-1", "10-2", "", "x", "1-", "-1", "1-2-3", "١", "1_0", "99999999999"]
    parsed = [parse_partition(name) for name in names]
    assert parsed == [0, 17, BrokerPartition(0, 1), BrokerPartition(10, 2)] + [None] * 8
    assert str(BrokerPartition(10, 2)) == "10-2"


@pytest.mark.parametrize("data", [b"x", b"1_0", b"1.5", b"0x1", b"9" * 20])
def test_an_offset_that_is_no_number_is_corrupt(data):
    with pytest.raises(CorruptDataError):
        decode_consumer_offset(data)


def test_offsets_as_other_tools_write_them_are_read():
    assert [decode_consumer_offset(it) for it in (b"", b"0", b"12\n", b"-1")] == [None, 0, 12, -1]


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a\0b"])
def test_a_group_that_is_no_name_of_a_znode_is_refused(group):
    with pytest.raises(UsageError):
        consumer_znodes.consumer_offset_path(group, TopicPartition("t", 0))
