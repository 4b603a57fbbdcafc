"""Fields of many v0 and v1 messages at once.

Their numbers have fixed widths, so only the sizes inside wrappers are followed one by one; all
other fields are gathered. A wrapper with any irregularity is read one message at a time instead.

Kafka 2.7: org.apache.kafka.common.record.AbstractLegacyRecordBatch; KIP-31, KIP-32
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.columnar_batches import BatchColumns, Int64s, Mask
from kctl.records.columnar_fields import PADDING_BYTES
from kctl.records.columnar_sections import Payload
from kctl.records.legacy import RECORD_OVERHEAD_V0, LegacyBatch
from kctl.records.record_batch import (
    COMPRESSION_MASK,
    INT32,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
)

_ATTRIBUTES_OFFSET = 17
_TIMESTAMP_OFFSET = 18


@dataclass(slots=True)
class Messages:
    """Messages with their real offsets and timestamps, and the positions of their fields."""

    # The batch that each belongs to.
    batch_indexes: Int64s
    offsets: Int64s
    timestamps: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s


class MessageReader:
    """Reads the messages of sections; `failures` holds what cannot be read: (batch, message)."""

    __slots__ = ("_longs", "_numbers", "_payload", "_size", "_u8", "batches", "failures")

    def __init__(self, payload: Payload, batches: BatchColumns) -> None:
        self._payload = payload
        self.batches = batches
        self.failures: list[tuple[int, str]] = []
        self._size = len(payload) - PADDING_BYTES
        self._u8 = np.frombuffer(payload, np.uint8)
        self._numbers = self._column(">i4")
        self._longs = self._column(">i8")

    def _column(self, kind: str) -> NDArray[Any]:
        dtype = np.dtype(kind)
        shape = (len(self._payload) - dtype.itemsize + 1,)
        return np.ndarray(shape, dtype, buffer=self._payload, strides=(1,))

    def read(self, indexes: Int64s, starts: Int64s, ends: Int64s) -> Messages:
        """Return the messages of the batches `indexes`, whose sections are at [starts, ends)."""
        is_wrapper = self.batches.compression_types[indexes] != 0
        plain = ~is_wrapper
        found = [self._plain(indexes[plain], starts[plain], ends[plain])]
        wrappers = zip(
            indexes[is_wrapper].tolist(), starts[is_wrapper].tolist(), ends[is_wrapper].tolist(),
            strict=True,
        )  # fmt: skip
        found += [self._wrapped(*wrapper) for wrapper in wrappers]
        if len(found) == 1:
            return found[0]
        columns = [
            np.concatenate([getattr(messages, name) for messages in found])
            for name in Messages.__slots__
        ]
        order = np.argsort(columns[0], kind="stable")
        return Messages(*(column[order] for column in columns))

    def _plain(self, indexes: Int64s, starts: Int64s, ends: Int64s) -> Messages:
        messages, is_right = self._fields(
            indexes, starts, ends, self.batches.magics[indexes],
            self.batches.base_offsets[indexes], self.batches.max_timestamps[indexes],
        )  # fmt: skip
        if is_right.all():
            return messages
        for index, start in zip(
            indexes[~is_right].tolist(), starts[~is_right].tolist(), strict=True
        ):
            try:
                LegacyBatch(self._payload, start).key_and_value()
            except CorruptDataError as error:
                self.failures.append((index, str(error)))
        return Messages(*(getattr(messages, name)[is_right] for name in Messages.__slots__))

    def _fields(
        self, indexes: Int64s, starts: Int64s, ends: Int64s, magics: Int64s, offsets: Int64s,
        timestamps: Int64s,
    ) -> tuple[Messages, Mask]:  # fmt: skip
        """Return the fields, and which messages are valid: their fields end where the
        message does."""
        size = self._size
        bodies = starts + np.where(magics == 1, _TIMESTAMP_OFFSET + 8, _TIMESTAMP_OFFSET)
        key_lengths = self._numbers[np.minimum(bodies, size)].astype(np.int64)
        key_starts = bodies + 4
        key_ends = key_starts + np.maximum(key_lengths, 0)
        value_lengths = self._numbers[np.minimum(key_ends, size)].astype(np.int64)
        value_starts = key_ends + 4
        is_right = value_starts + np.maximum(value_lengths, 0) == ends
        return Messages(
            indexes, offsets, timestamps, key_starts, np.maximum(key_lengths, -1), value_starts,
            np.maximum(value_lengths, -1),
        ), is_right  # fmt: skip

    def _wrapped(self, index: int, start: int, end: int) -> Messages:
        """Return the messages inside a wrapper."""
        batches = self.batches
        magic, wrapper_offset = int(batches.magics[index]), int(batches.base_offsets[index])
        starts = self._inner_starts(start, end)
        if starts is None:
            return self._one_by_one(index, start, end)
        ends = np.append(starts[1:], end)
        offsets = self._longs[starts].astype(np.int64)
        last = int(offsets[-1])
        is_odd = (self._u8[starts + MAGIC_OFFSET] != magic) | (
            (self._u8[starts + _ATTRIBUTES_OFFSET] & COMPRESSION_MASK) != 0
        )
        if is_odd.any() or (magic == 1 and 0 != wrapper_offset < last):
            return self._one_by_one(index, start, end)
        if magic == 1 and wrapper_offset:
            offsets += wrapper_offset - last
        timestamps = np.full(len(starts), -1)
        if magic == 1 and int(batches.timestamp_types[index]) == LOG_APPEND_TIME:
            timestamps[:] = batches.max_timestamps[index]
        elif magic == 1:
            timestamps = self._longs[starts + _TIMESTAMP_OFFSET].astype(np.int64)
        indexes, magics = np.full(len(starts), index), np.full(len(starts), magic)
        messages, is_right = self._fields(indexes, starts, ends, magics, offsets, timestamps)
        return messages if is_right.all() else self._one_by_one(index, start, end)

    def _inner_starts(self, start: int, end: int) -> Int64s | None:
        """Return where the messages begin; None unless the last one ends exactly at the end."""
        starts: list[int] = []
        size_at = INT32.unpack_from
        while end - start >= LOG_OVERHEAD + RECORD_OVERHEAD_V0:
            starts.append(start)
            size = size_at(self._payload, start + 8)[0]
            if size < RECORD_OVERHEAD_V0:
                return None
            start += LOG_OVERHEAD + size
        return np.array(starts, np.int64) if start == end and starts else None

    def _one_by_one(self, index: int, start: int, end: int) -> Messages:
        """Return the messages that LegacyBatch reads, up to the first damaged one."""
        batches = self.batches
        wrapper = _wrapper(batches, index)
        places: list[tuple[int, int, int, int]] = []
        content = bytes(self._payload[start:end])
        try:
            for message in wrapper.inner_messages(content):
                message.key_and_value()
                at = start + message.position
                places.append((at, at + message.size, message.offset, message.timestamp))
        except CorruptDataError as error:
            self.failures.append((index, str(error)))
        starts, ends, offsets, timestamps = np.array(places, np.int64).reshape(-1, 4).T
        count = len(places)
        magics = np.full(count, batches.magics[index])
        messages, _ = self._fields(np.full(count, index), starts, ends, magics, offsets, timestamps)
        return messages


def _wrapper(batches: BatchColumns, index: int) -> LegacyBatch:
    """Return a view with the wrapper's header, enough to locate its messages."""
    head = bytearray(26)
    wrapper = LegacyBatch(head)
    wrapper.magic = int(batches.magics[index])
    wrapper.offset = int(batches.base_offsets[index])
    wrapper.timestamp = int(batches.max_timestamps[index])
    wrapper.timestamp_type = int(batches.timestamp_types[index])
    return wrapper
