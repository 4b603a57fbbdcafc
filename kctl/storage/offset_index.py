"""OffsetIndex: .index, from relative offset to position, 8 bytes an entry.

    offset - base offset  int32 | position in the .log  int32

Sparse: about one entry each `index.interval.bytes`. An entry names the *last* offset of an append
and where the append begins, so a look-up by floor never returns a position after the offset.

Kafka 2.7: kafka.log.OffsetIndex
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from kctl.storage.index_file import IndexFile

_ENTRY = struct.Struct(">ii")
# Of an offset to the base offset of its segment; the segment must roll before it is exceeded.
RELATIVE_OFFSET_MAX = 2**31 - 1

# The default of index.interval.bytes: the bytes of log between two entries.
INDEX_INTERVAL_BYTES = 4096


class OffsetPosition(NamedTuple):
    """An offset, and the position in the segment's file from which to search for it."""

    offset: int
    position: int


def encode_entries(base_offset: int, entries: Iterable[OffsetPosition]) -> bytes:
    """Return the contents of the .index of a segment."""
    return b"".join(_ENTRY.pack(it.offset - base_offset, it.position) for it in entries)


def decode_columns(data: bytes) -> tuple["array[int]", "array[int]"]:
    """Return relative offsets and positions of whole entries, in the order of the file."""
    numbers = array("i", data)
    numbers.byteswap()
    return numbers[0::2], numbers[1::2]


class OffsetIndex(IndexFile):
    """The offset index of a segment; see the module."""

    __slots__ = ()

    entry_size: ClassVar[int] = _ENTRY.size

    @property
    def is_full(self) -> bool:
        """Return whether the segment must roll before the next entry."""
        return len(self) >= self.entries_max

    def append(self, offset: int, position: int) -> None:
        """Add an entry; CorruptDataError unless its offset is above the last."""
        raw = self.raw()
        relative = offset - self.base_offset
        if raw and relative <= _ENTRY.unpack_from(raw, len(raw) - 8)[0]:
            raise self._corrupt(
                f"offset {offset} is no larger than the last entry {self.last().offset}"
            )
        self._append(_ENTRY.pack(relative, position))

    def replace_entries(self, entries: Sequence[OffsetPosition]) -> None:
        """Replace all entries; the file is written only if it differs."""
        self.replace(bytearray(encode_entries(self.base_offset, entries)))

    def entries(self) -> Iterator[OffsetPosition]:
        """Yield all entries in order."""
        for relative, position in _ENTRY.iter_unpack(self.raw()):
            yield OffsetPosition(self.base_offset + relative, position)

    def last(self) -> OffsetPosition:
        """Return the last entry, or the segment's start; read only these bytes if not loaded."""
        if self.is_loaded or not len(self):
            raw: bytes | bytearray = self.raw()
        else:
            file = self._disk.open(self.path, read_only=True)
            raw = file.pread(8, (len(self) - 1) * 8)
            if len(raw) < 8 or not raw[4:].strip(b"\0"):
                raw = self.raw()
        if not raw:
            return OffsetPosition(self.base_offset, 0)
        relative, position = _ENTRY.unpack_from(raw, len(raw) - 8)
        return OffsetPosition(self.base_offset + relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry at or below `offset`, or the segment's start."""
        raw = self.raw()
        relative = offset - self.base_offset
        unpack = _ENTRY.unpack_from
        slot = bisect_right(range(len(raw) // 8), relative, key=lambda i: unpack(raw, i * 8)[0])
        if slot == 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = unpack(raw, slot * 8 - 8)
        return OffsetPosition(self.base_offset + relative, position)

    def upper_bound_offset(self, position: int) -> int | None:
        """Return the offset of the first entry at or after `position`, or None."""
        raw = self.raw()
        unpack = _ENTRY.unpack_from
        count = len(raw) // 8
        slot = bisect_left(range(count), position, key=lambda i: unpack(raw, i * 8)[1])
        if slot == count:
            return None
        relative: int = unpack(raw, slot * 8)[0]
        return self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""
        raw = self.raw()
        unpack = _ENTRY.unpack_from
        relative = offset - self.base_offset
        slot = bisect_left(range(len(raw) // 8), relative, key=lambda i: unpack(raw, i * 8)[0])
        self._truncate_entries(slot)

    def _check(self, data: bytearray) -> None:
        if not data:
            return
        first_offset, first_position = _ENTRY.unpack_from(data)
        last_offset, last_position = _ENTRY.unpack_from(data, len(data) - 8)
        is_rising = last_offset > first_offset and last_position > first_position
        if first_offset < 0 or first_position < 0 or (len(data) > 8 and not is_rising):
            raise self._corrupt("the offset index is not in order")
