"""Rows go to the partitions that Kafka's clients would choose."""

import random  # noqa: TID251 - seeded

import pyarrow as pa

from kctl.arrow_files.partitioning import ROWS_TOGETHER, murmur2_of, partitions_of
from kctl.client.partitioner import murmur2, partition_for_key

LENGTHS = [*range(10), 16, 33, 255, 1023, 1024, 1025, 5000]


def test_many_keys_are_hashed_as_one():
    draw = random.Random(1)
    keys = [draw.randbytes(draw.choice(LENGTHS)) for _ in range(500)]
    found = murmur2_of(pa.array([b"before", *keys, b"behind"], pa.binary()).slice(1, 500))
    assert found.tolist() == [murmur2(key) for key in keys]


def test_hash_of_no_rows_is_nothing():
    assert murmur2_of(pa.array([], pa.binary())).tolist() == []
    assert len(murmur2_of(pa.array([None, None], pa.binary()))) == 2


def test_named_partition_takes_precedence_over_the_key():
    keys = pa.array([b"a", b"b", b"c", None], pa.binary())
    named = pa.array([5, None, 0, 3], pa.int32())
    assert partitions_of(keys, named, 7, 0).tolist() == [5, partition_for_key(b"b", 7), 0, 3]


def test_rows_without_a_key_rotate_through_the_partitions():
    keys = pa.nulls(3 * ROWS_TOGETHER, pa.binary())
    found = partitions_of(keys, None, 2, ROWS_TOGETHER).tolist()
    assert found == [1] * ROWS_TOGETHER + [0] * ROWS_TOGETHER + [1] * ROWS_TOGETHER
