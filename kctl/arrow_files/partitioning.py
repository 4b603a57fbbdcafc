"""Assigns the rows of a table to partitions: hashes many keys at once, as Kafka's clients do.

A row that names a partition goes there, and a row with a key goes to the partition of its murmur2
hash. Rows without a key go to one partition for a while, then to the next.

Kafka 2.7: org.apache.kafka.clients.producer.internals.DefaultPartitioner; KIP-480
"""

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from kctl.client.partitioner import MULTIPLIER, SEED, murmur2

Int64s = NDArray[np.int64]

# Consecutive rows without a key that go to one partition.
ROWS_TOGETHER = 1000
_SEED = np.uint32(SEED)
_MULTIPLIER = np.uint32(MULTIPLIER)
_SIGN = 0x7FFFFFFF
# Longer keys are rare and are hashed one at a time.
_KEY_BYTES_MAX = 1024


def murmur2_of(keys: pa.Array) -> Int64s:
    """Return the hash of each binary value as an unsigned number; that of null is meaningless."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = keys.buffers()[2]
    padded = np.frombuffer(bytes(data or b"") + bytes(4), np.uint8)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    # The longest first, so that the keys with an n-th 4-byte word are a prefix.
    order = np.argsort(-np.minimum(lengths, _KEY_BYTES_MAX + 1), kind="stable")
    sorted_lengths = lengths[order]
    hashes = _hash(padded, starts[order], np.minimum(sorted_lengths, _KEY_BYTES_MAX))
    for place in range(int(np.searchsorted(-sorted_lengths.clip(max=_KEY_BYTES_MAX + 1),
                                           -_KEY_BYTES_MAX))):  # fmt: skip
        start, length = int(starts[order[place]]), int(sorted_lengths[place])
        hashes[place] = murmur2(padded[start : start + length].tobytes())
    found = np.empty(len(keys), np.int64)
    found[order] = hashes
    return found


def _hash(padded: NDArray[np.uint8], starts: Int64s, lengths: Int64s) -> NDArray[np.uint32]:
    """Hash keys of decreasing lengths; `padded` has four bytes after the last key."""
    four_bytes: NDArray[np.uint32] = np.ndarray(
        (len(padded) - 3,), "<u4", buffer=padded.data, strides=(1,)
    )
    state = _SEED ^ lengths.astype(np.uint32)
    whole = lengths // 4
    for number in range(int(whole.max(initial=0))):
        count = int(np.searchsorted(-whole, -number))
        mixed = four_bytes[starts[:count] + 4 * number] * _MULTIPLIER
        mixed = (mixed ^ mixed >> np.uint32(24)) * _MULTIPLIER
        state[:count] = state[:count] * _MULTIPLIER ^ mixed
    rest = lengths % 4
    tail = four_bytes[starts + 4 * whole] & (
        (np.uint32(1) << (8 * rest).astype(np.uint32)) - np.uint32(1)
    )
    state = np.where(rest > 0, (state ^ tail) * _MULTIPLIER, state)
    state = (state ^ state >> np.uint32(13)) * _MULTIPLIER
    hashed: NDArray[np.uint32] = state ^ state >> np.uint32(15)
    return hashed


def partitions_of(
    keys: pa.Array, named: pa.Array | None, partitions: int, first_row: int
) -> Int64s:
    """Return the partition of each row of a topic.

    `named` holds the partitions that rows name, if any. `first_row` is the number of the first row,
    from which rows without a key take turns.
    """
    rows = np.arange(first_row, first_row + len(keys), dtype=np.int64)
    in_turn = rows // ROWS_TOGETHER % partitions
    hashed = (murmur2_of(keys) & _SIGN) % partitions
    found = np.where(_is_valid(keys), hashed, in_turn)
    if named is not None:
        numbers = named.fill_null(-1).to_numpy(zero_copy_only=False)
        found = np.where(_is_valid(named), numbers, found)
    return found


def _is_valid(column: pa.Array) -> Any:
    return column.is_valid().to_numpy(zero_copy_only=False)
