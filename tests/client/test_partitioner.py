"""Partitions of records: the same as all of Kafka's clients choose."""

import pytest

from kctl.client.partitioner import StickyPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(text, expected):
    """The values are those of Apache Kafka's own clients."""
    assert murmur2(text.encode()) == expected % 2**32


def test_keys_stay_in_range_and_put():
    chosen = {number: partition_for_key(str(number).encode(), 7) for number in range(100)}

    assert set(chosen.values()) == set(range(7))
    assert chosen == {number: partition_for_key(str(number).encode(), 7) for number in range(100)}


def test_records_without_a_key_share_a_partition_until_the_turn():
    partitioner = StickyPartitioner(3, start=2)

    first = [partitioner.partition(None) for _ in range(3)]
    partitioner.turn()

    assert first == [2, 2, 2]
    assert partitioner.partition(None) == 0
