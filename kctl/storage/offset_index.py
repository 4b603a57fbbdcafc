"""OffsetIndex: .index, from relative offset to position, 8 bytes an entry.

    offset - base offset  int32 | position in the .log  int32

Sparse: about one entry each `index.interval.bytes`. An entry names the *last* offset of an append
and where the append begins, so a look-up by floor never lands behind the offset sought.

Kafka 2.7: kafka.log.OffsetIndex
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from kctl.storage.index_file import IndexFile

_ENTRY = struct.Struct(">ii")


class OffsetPosition(NamedTuple):
    """An offset, and the position in the segment's file from where to look for it."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """See the module."""

    __slots__ = ()

    entry_size: ClassVar[int] = _ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll before the next entry."""
        return len(self) >= self.entries_max

    def append(self, offset: int, position: int) -> None:
        """Add an entry beyond the last; CorruptDataError if it is not beyond it."""
        raw = self.raw()
        relative = offset - self.base_offset
        if raw and relative <= _ENTRY.unpack_from(raw, len(raw) - 8)[0]:
            raise self._corrupt(
                f"offset {offset} is no larger than the last entry {self.last().offset}"
            )
        self._append(_ENTRY.pack(relative, position))

    def replace_entries(self, entries: Sequence[OffsetPosition]) -> None:
        """These are the entries; the file is written only if it says something else."""
        packed = [_ENTRY.pack(entry.offset - self.base_offset, entry.position) for entry in entries]
        self.replace(bytearray(b"".join(packed)))

    def entries(self) -> Iterator[OffsetPosition]:
        """All entries in order."""
        for relative, position in _ENTRY.iter_unpack(self.raw()):
            yield OffsetPosition(self.base_offset + relative, position)

    def last(self) -> OffsetPosition:
        """The last entry, or the segment's start; reads only these bytes if not loaded."""
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
        """The last entry at or below `offset`, or the segment's start."""
        raw = self.raw()
        relative = offset - self.base_offset
        unpack = _ENTRY.unpack_from
        slot = bisect_right(range(len(raw) // 8), relative, key=lambda i: unpack(raw, i * 8)[0])
        if slot == 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = unpack(raw, slot * 8 - 8)
        return OffsetPosition(self.base_offset + relative, position)

    def upper_bound_offset(self, position: int) -> int | None:
        """The offset of the first entry at or behind `position`; None: no entry is."""
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
