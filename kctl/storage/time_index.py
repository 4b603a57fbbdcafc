"""TimeIndex: .timeindex, from timestamp to relative offset, 12 bytes an entry.

    timestamp int64 | offset - base offset  int32

An entry means: no record before this offset has a later timestamp. So timestamps rise
from entry to entry though records' timestamps need not. The last entry, added when the segment is
rolled or closed, is its largest timestamp.

Kafka 2.7: kafka.log.TimeIndex; KIP-33
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from kctl.records.record_batch import NO_TIMESTAMP
from kctl.storage.index_file import IndexFile

_ENTRY = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """A timestamp and its offset."""

    timestamp: int
    offset: int


def encode_entries(base_offset: int, entries: Iterable[TimestampOffset]) -> bytes:
    """Return the contents of the .timeindex of a segment."""
    return b"".join(_ENTRY.pack(it.timestamp, it.offset - base_offset) for it in entries)


def decode_columns(data: bytes) -> tuple["array[int]", "array[int]"]:
    """Return timestamps and relative offsets of whole entries, in the order of the file."""
    numbers = array("i", data)
    numbers.byteswap()
    lows = array("I", numbers[1::3].tobytes())
    timestamps = array(
        "q", (high << 32 | low for high, low in zip(numbers[0::3], lows, strict=True))
    )
    return timestamps, numbers[2::3]


class TimeIndex(IndexFile):
    """The time index of a segment; see the module."""

    __slots__ = ()

    entry_size: ClassVar[int] = _ENTRY.size

    @property
    def is_full(self) -> bool:
        """Return whether the segment must roll; the last slot is kept for the entry added on
        closing."""
        return len(self) >= self.entries_max - 1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is beyond the last."""
        raw = self._raw
        if raw is None:
            raw = self.raw()
        last = _ENTRY.unpack_from(raw, len(raw) - 12)[0] if raw else NO_TIMESTAMP
        if timestamp > last:
            self._append(_ENTRY.pack(timestamp, offset - self.base_offset))

    def replace_entries(self, entries: Sequence[TimestampOffset]) -> None:
        """Replace all entries; the file is written only if it differs."""
        self.replace(bytearray(encode_entries(self.base_offset, entries)))

    def entries(self) -> Iterator[TimestampOffset]:
        """Yield all entries in order."""
        for timestamp, relative in _ENTRY.iter_unpack(self.raw()):
            yield TimestampOffset(timestamp, self.base_offset + relative)

    def last(self) -> TimestampOffset:
        """Return the last entry, or (-1, base offset); read only these bytes if not loaded."""
        if self.is_loaded or not len(self):
            raw: bytes | bytearray = self.raw()
        else:
            file = self._disk.open(self.path, read_only=True)
            raw = file.pread(12, (len(self) - 1) * 12)
            if len(raw) < 12 or not raw.strip(b"\0"):
                raw = self.raw()
        if not raw:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = _ENTRY.unpack_from(raw, len(raw) - 12)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry at or below `timestamp`, or (-1, base offset)."""
        raw = self.raw()
        unpack = _ENTRY.unpack_from
        slot = bisect_right(range(len(raw) // 12), timestamp, key=lambda i: unpack(raw, i * 12)[0])
        if slot == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        found, relative = unpack(raw, slot * 12 - 12)
        return TimestampOffset(found, self.base_offset + relative)

    def last_below(self, offset: int) -> TimestampOffset:
        """Return the last entry below `offset`, or (-1, base offset)."""
        slot = self._slot_of(offset)
        if slot == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = _ENTRY.unpack_from(self.raw(), slot * 12 - 12)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""
        self._truncate_entries(self._slot_of(offset))

    def _slot_of(self, offset: int) -> int:
        """Return the number of entries below `offset`."""
        raw = self.raw()
        unpack = _ENTRY.unpack_from
        relative = offset - self.base_offset
        return bisect_left(range(len(raw) // 12), relative, key=lambda i: unpack(raw, i * 12)[1])

    def _check(self, data: bytearray) -> None:
        if not data:
            return
        first_timestamp, first_offset = _ENTRY.unpack_from(data)
        last_timestamp, last_offset = _ENTRY.unpack_from(data, len(data) - 12)
        if first_offset < 0 or last_timestamp < first_timestamp or last_offset < first_offset:
            raise self._corrupt("the time index is not in order")
