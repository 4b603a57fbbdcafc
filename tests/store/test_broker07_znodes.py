"""Znodes of Kafka 0.7's brokers: those of the real server, and what else is read."""

import json

import pytest

from kctl.errors import CorruptDataError
from kctl.store.broker07_znodes import (
    BrokerInfo07,
    broker_ids,
    decode_broker,
    decode_partition_count,
    encode_broker,
    encode_partition_count,
    is_broker07,
    read_partitions,
    topic_broker_path,
)
from kctl.store.consumer_znodes import BrokerPartition
from kctl.store.znodes import topic_path
from tests.support.golden import GOLDEN

MOMENTS = json.loads((GOLDEN / "g07" / "znodes.json").read_text())


def brokers():
    return sorted(
        {
            (int(path.rpartition("/")[2]), znode["data"])
            for moment in MOMENTS.values()
            for path, znode in moment.items()
            if path.startswith("/brokers/ids/")
        }
    )


def test_brokers_of_kafka_07_are_read_and_written_byte_for_byte():
    assert len(brokers()) > 1
    for broker_id, text in brokers():
        broker = decode_broker(broker_id, text.encode())
        assert broker.broker_id == broker_id
        host, _, millis = broker.creator.rpartition("-")
        assert host == broker.host
        assert encode_broker(broker.host, broker.port, int(millis)) == text.encode()
        assert is_broker07(text.encode())


def test_names_that_are_no_ids_of_brokers_are_left_out():
    # The digits of other scripts and exponents are digits for Python, and no ids.
    assert broker_ids(["10", "2", "partitions", "-1", "\u00b2", "\u0663", ""]) == [2, 10]


def test_partitions_are_those_of_the_brokers_that_were_found():
    places = [("t", 1), ("u", 1), ("t", 2)]
    answers = [(b"2", None), None, (b"1", None)]
    assert read_partitions(places, answers) == {
        "t": [BrokerPartition(1, 0), BrokerPartition(1, 1), BrokerPartition(2, 0)]
    }


def test_topics_of_kafka_07_have_a_number_for_each_broker():
    counts = {
        path: znode["data"]
        for moment in MOMENTS.values()
        for path, znode in moment.items()
        if path.startswith("/brokers/topics/") and path.count("/") == 4
    }
    assert counts[topic_broker_path("t", 0)] == "2"
    for path, text in counts.items():
        count = decode_partition_count(path, text.encode())
        assert encode_partition_count(count) == text.encode()
    assert topic_broker_path("t", 0) == topic_path("t") + "/0"


@pytest.mark.parametrize(
    ("data", "broker"),
    [
        (b"10.0.0.1:9092", BrokerInfo07(3, "10.0.0.1", 9092)),
        (b"10.0.0.1-7:10.0.0.1:9092:true", BrokerInfo07(3, "10.0.0.1", 9092, "10.0.0.1-7")),
        (b"#-7:##1:9092", BrokerInfo07(3, "::1", 9092, ":-7")),
    ],
)
def test_brokers_of_other_dialects_are_read(data, broker):
    assert decode_broker(3, data) == broker


def test_an_ipv6_address_is_written_without_colons():
    assert encode_broker("::1", 9092, 7) == b"##1-7:##1:9092"


@pytest.mark.parametrize("data", [b"", b"x", b"a:b", b"c:a:99999", b"c::9092", b'{"port":9092}'])
def test_other_data_are_no_broker(data):
    with pytest.raises(CorruptDataError):
        decode_broker(0, data)


def test_json_is_no_broker_of_kafka_07():
    assert not is_broker07(b'{"version":4}')


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"1.5"])
def test_other_data_are_no_number_of_partitions(data):
    with pytest.raises(CorruptDataError):
        decode_partition_count("/brokers/topics/t/0", data)
