"""Partitioners choose as Apache Kafka's do, for 30,000 keys."""

import pytest

from kctl.client.partitioner import partition_for_key
from kctl.errors import UsageError
from kctl.kafka.partitioners import (
    ByteArrayPartitioner,
    DefaultPartitioner,
    Murmur2Partitioner,
    hash_code,
)
from tests.support.golden import GOLDEN

PARTITIONS = 31
COUNT = 10_000


class Keys:
    """The keys of tests/golden/partitioners/Partitioners.java."""

    def __init__(self):
        self._state = 1

    def next(self):
        self._state = (self._state * 1103515245 + 12345) & 0x7FFFFFFF
        return self._state >> 8

    def text(self):
        units = [self.next() for _ in range(self.next() % 20)]
        return "".join(chr(0x1F600 + it % 64 if it % 50 == 0 else it % 0x500) for it in units)

    def integer(self):
        value = (self.next() * 65536 + self.next()) & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value

    def bytes(self):
        return bytes(self.next() & 0xFF for _ in range(self.next() % 20))


def chosen(partitioner, keys):
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return "".join(digits[partitioner.partition(key, PARTITIONS)] for key in keys)


def test_text_integers_and_bytes_go_where_the_producer_of_kafka_1_1_1_sends_them():
    lines = (GOLDEN / "partitioners/kafka-1.1.1.txt").read_text().split()
    keys = Keys()
    # The hash of this word, and this integer, have no absolute value.
    texts = ["polygenelubricants", *(keys.text() for _ in range(COUNT - 1))]
    integers = [-(2**31), *(keys.integer() for _ in range(COUNT - 1))]
    contents = [keys.bytes() for _ in range(COUNT)]

    assert chosen(DefaultPartitioner(), texts) == lines[0]
    assert chosen(DefaultPartitioner(), integers) == lines[1]
    assert chosen(ByteArrayPartitioner(), contents) == lines[2]
    assert chosen(DefaultPartitioner(), contents) == lines[2]


@pytest.mark.parametrize("key", [1.5, None, ("a", 1), 1 << 64])
def test_a_key_without_a_hash_that_clients_agree_on_is_refused(key):
    with pytest.raises(UsageError, match="no hash"):
        hash_code(key)


def test_the_default_of_today_is_murmur2_over_bytes_or_text():
    assert Murmur2Partitioner().partition("alice", 7) == partition_for_key(b"alice", 7)
    with pytest.raises(UsageError, match="neither"):
        Murmur2Partitioner().partition(7, 7)


def test_the_partitioner_for_bytes_refuses_other_keys():
    with pytest.raises(UsageError, match="not bytes"):
        ByteArrayPartitioner().partition("alice", 7)
