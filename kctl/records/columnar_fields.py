"""Fields of many v2 records at once: varints decoded from 64-bit words by table look-ups.

Lengths are not trusted: a record counts only if its fields, headers included, end exactly where its
length says. Positions only grow, each varint takes at least a byte, and a gather beyond the payload
is clamped to its end, so garbage cannot pass the check.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecord.readFrom; KIP-82
"""

import numpy as np
from numpy.typing import NDArray

from kctl.lazy_dataclass import dataclass
from kctl.records.columnar_batches import Int64s, Mask
from kctl.records.varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

# Bytes after the last section of a payload, so that a 64-bit gather at its end stays inside.
PADDING_BYTES = 8
# Bytes of a record without key, value and headers, after its length.
_RECORD_BYTES_MIN = 6
# Beyond any position, so that an unterminated varint is detected.
_NOWHERE = 1 << 40

_LOW_16 = np.uint64(0xFFFF)
_U32 = np.uint64(2**32 - 1)


def _two_byte_table() -> NDArray[np.int32]:
    """Return a table for two bytes: the varint's value shifted left by 2, and its length, which is
    0 if it is longer than two bytes."""
    pairs = np.arange(65536, dtype=np.int32)
    low, high = pairs & 255, pairs >> 8
    raw = np.where(low < 128, low, np.where(high < 128, low & 127 | high << 7, 0))
    length = np.where(low < 128, 1, np.where(high < 128, 2, 0))
    value = raw >> 1 ^ -(raw & 1)
    return (value << 2 | length).astype(np.int32)


_VARINTS = _two_byte_table()


class Words:
    """A payload viewed as bytes, 16-bit and 64-bit integers at every position up to `size`."""

    __slots__ = ("bytes", "pairs", "size", "words")

    def __init__(self, payload: bytes | memoryview) -> None:
        """Take `payload`, which ends with PADDING_BYTES bytes that no record has."""
        length = len(payload)
        self.size = length - PADDING_BYTES
        self.bytes: NDArray[np.uint8] = np.frombuffer(payload, np.uint8)
        self.pairs: NDArray[np.uint16] = np.ndarray(
            (length - 1,), "<u2", buffer=payload, strides=(1,)
        )
        self.words: NDArray[np.uint64] = np.ndarray(
            (length - 7,), "<u8", buffer=payload, strides=(1,)
        )

    def varints(
        self, at: Int64s, words: NDArray[np.uint64] | None = None, *, is_long: bool = False
    ) -> tuple[Int64s, Int64s]:
        """Return values and lengths of the varints at `at`, none of which is beyond `size`.

        `words` holds at least their first two bytes, if they have been gathered before.
        """
        pairs = self.pairs[at] if words is None else (words & _LOW_16).astype(np.uint16)
        entries = _VARINTS[pairs].astype(np.int64)
        lengths = entries & 3
        values = entries >> 2
        if not lengths.all():
            longer = np.flatnonzero(lengths == 0)
            values[longer], lengths[longer] = self._long_varints(at[longer], is_long=is_long)
        return values, lengths

    def _long_varints(self, at: Int64s, *, is_long: bool) -> tuple[Int64s, Int64s]:
        raw = np.zeros(len(at), np.uint64)
        lengths = np.zeros(len(at), np.int64)
        active = np.arange(len(at))
        for number in range(MAX_VARLONG_BYTES if is_long else MAX_VARINT_BYTES):
            byte = self.bytes.take(at[active] + number, mode="clip").astype(np.uint64)
            raw[active] |= (byte & np.uint64(127)) << np.uint64(7 * number)
            lengths[active] += 1
            active = active[byte >= 128]
            if not len(active):
                break
        lengths[active] = _NOWHERE
        if not is_long:
            raw &= _U32
        values = (raw >> np.uint64(1)) ^ (~(raw & np.uint64(1)) + np.uint64(1))
        return values.view(np.int64), lengths

    def held(self, at: Int64s) -> Int64s:
        """Return `at`, with positions beyond the payload clamped to its end."""
        return np.minimum(at, self.size, out=at)


@dataclass(slots=True)
class HeaderColumns:
    """The headers of all records, in order; a length of -1 is a null value."""

    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s

    @classmethod
    def none(cls) -> "HeaderColumns":
        """Return no headers."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, empty)

    def take(self, which: Mask) -> "HeaderColumns":
        """Return the headers selected by a mask."""
        return HeaderColumns(
            self.key_starts[which], self.key_lengths[which],
            self.value_starts[which], self.value_lengths[which],
        )  # fmt: skip


@dataclass(slots=True)
class RecordFields:
    """Where the fields of records are in their payload, and which records are valid."""

    timestamp_deltas: Int64s
    offset_deltas: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s
    # The number of headers of each record.
    header_counts: Int64s
    headers: HeaderColumns
    is_right: Mask


def record_fields(words: Words, starts: Int64s) -> RecordFields:
    """Return the fields of the v2 records that begin at `starts`."""
    size, length = words.varints(starts)
    bodies = starts + length
    ends = bodies + size
    at = words.held(bodies + 1)
    word = words.words[at]
    timestamp_deltas, first = words.varints(at, word, is_long=True)
    at = words.held(at + first)
    # A word also holds the next varint while two of its bytes are left for it.
    if int(first.max(initial=0)) > 6:
        word = words.words[at]
        second_shift = np.zeros_like(first)
    else:
        word >>= (first << 3).astype(np.uint64)
        second_shift = first
    offset_deltas, second = words.varints(at, word)
    at = words.held(at + second)
    if int((second_shift + second).max(initial=0)) > 6:
        word = words.words[at]
    else:
        word >>= (second << 3).astype(np.uint64)
    key_lengths, length = words.varints(at, word)
    key_starts = words.held(at + length)
    key_ends = words.held(key_starts + np.maximum(key_lengths, 0))
    value_lengths, length = words.varints(key_ends)
    value_starts = key_ends + length
    at = words.held(value_starts + np.maximum(value_lengths, 0))
    has_headers = words.bytes[at] != 0
    is_right = (at + 1 == ends) & (size >= _RECORD_BYTES_MIN)
    header_counts = np.zeros(len(starts), np.int64)
    headers = HeaderColumns.none()
    if has_headers.any():
        which = np.flatnonzero(has_headers)
        counts, headers, right = _header_fields(words, at[which], ends[which])
        header_counts[which] = counts
        is_right[which] = right & (size[which] >= _RECORD_BYTES_MIN)
    np.maximum(key_lengths, -1, out=key_lengths)
    np.maximum(value_lengths, -1, out=value_lengths)
    return RecordFields(
        timestamp_deltas, offset_deltas, key_starts, key_lengths, value_starts, value_lengths,
        header_counts, headers, is_right,
    )  # fmt: skip


def _header_fields(words: Words, at: Int64s, ends: Int64s) -> tuple[Int64s, HeaderColumns, Mask]:
    """Return counts and headers of the records whose header count is at `at`, and which are valid.

    All k-th headers are read together; invalid records cost no extra time.
    """
    counts, length = words.varints(at)
    at = at + length
    # A header takes at least two bytes.
    is_right = (counts >= 0) & (counts * 2 <= ends - at)
    counts[~is_right] = 0
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    headers = HeaderColumns(*(np.zeros(total, np.int64) for _ in range(4)))
    active = np.flatnonzero(counts)
    number = 0
    while len(active):
        key_lengths, length = words.varints(words.held(at[active]))
        is_right[active] &= key_lengths >= 0
        key_starts = at[active] + length
        key_ends = words.held(key_starts + np.maximum(key_lengths, 0))
        value_lengths, length = words.varints(key_ends)
        value_starts = key_ends + length
        index = firsts[active] + number
        headers.key_starts[index], headers.key_lengths[index] = key_starts, key_lengths
        headers.value_starts[index] = value_starts
        headers.value_lengths[index] = np.maximum(value_lengths, -1)
        at[active] = value_starts + np.maximum(value_lengths, 0)
        is_right[active] &= at[active] <= ends[active]
        number += 1
        active = active[(counts[active] > number) & is_right[active]]
    return counts, headers, is_right & (at == ends)
