"""Which partitions the rows of a table go to: many keys hashed at once, as Kafka's clients do.

A row that names its partition goes there; one with a key goes where murmur2 says; rows without
a key stay together for a while and then go to the next partition.

Kafka 2.7: org.apache.kafka.clients.producer.internals.DefaultPartitioner; KIP-480
"""

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from kctl.admin.partitioner import murmur2

Int64s = NDArray[np.int64]

# Rows without a key that go to one partition before it is the next one's turn.
ROWS_TOGETHER = 1000
_SEED = np.uint32(0x9747B28C)
_MULTIPLIER = np.uint32(0x5BD1E995)
_SIGN = 0x7FFFFFFF
# Longer keys are rare, and are hashed one by one.
_KEY_BYTES_MAX = 1024


def murmur2_of(keys: pa.Array) -> Int64s:
    """The hash of each binary value as an unsigned number; that of null means nothing."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = keys.buffers()[2]
    padded = np.frombuffer(bytes(data or b"") + bytes(4), np.uint8)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    # The longest first: those that have an n-th word are then the first so many.
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
    """Of keys whose lengths fall; `padded` has four bytes behind the last."""
    words: NDArray[np.uint32] = np.ndarray(
        (len(padded) - 3,), "<u4", buffer=padded.data, strides=(1,)
    )
    state = _SEED ^ lengths.astype(np.uint32)
    whole = lengths // 4
    for number in range(int(whole.max(initial=0))):
        count = int(np.searchsorted(-whole, -number))
        word = words[starts[:count] + 4 * number] * _MULTIPLIER
        word = (word ^ word >> np.uint32(24)) * _MULTIPLIER
        state[:count] = state[:count] * _MULTIPLIER ^ word
    rest = lengths % 4
    tail = words[starts + 4 * whole] & (
        (np.uint32(1) << (8 * rest).astype(np.uint32)) - np.uint32(1)
    )
    state = np.where(rest > 0, (state ^ tail) * _MULTIPLIER, state)
    state = (state ^ state >> np.uint32(13)) * _MULTIPLIER
    mixed: NDArray[np.uint32] = state ^ state >> np.uint32(15)
    return mixed


def partitions_of(
    keys: pa.Array, named: pa.Array | None, partitions: int, first_row: int
) -> Int64s:
    """The partition of each row of a topic with so many; `named` are those that rows name, and
    `first_row` is the number of the first, so that rows without a key take turns."""
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
