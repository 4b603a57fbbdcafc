"""TransactionIndex: .txnindex, the aborted transactions that ended in a segment, 34 bytes each.

    version int16 (0) | producerId int64 | firstOffset int64 | lastOffset int64 |
    lastStableOffset int64

`lastOffset` is that of the marker; `lastStableOffset` is the one at that time: a
reader can stop at the first entry whose last stable offset is beyond its fetched range.
The file is created with the first entry; most segments have none.

Kafka 2.7: kafka.log.TransactionIndex, AbortedTxn; KIP-98
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.runtime.disk import Disk, DiskFile

_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """One aborted transaction in this partition."""

    producer_id: int
    first_offset: int
    # The marker's offset. Inclusive.
    last_offset: int
    last_stable_offset: int


class IndexContent(NamedTuple):
    """What the index of a segment held at some time; it can be decoded on any thread."""

    data: bytes
    path: str
    base_offset: int

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries in order; CorruptDataError if they are invalid."""
        return decode_entries(self.data, self.path, self.base_offset)


class TransactionIndex:
    """The aborted transactions of a segment; the file is read once and kept.

    A client decides how many transactions it aborts, so nothing that serves clients decodes all of
    them: `collect` looks for its first entry by halves.
    """

    __slots__ = ("_data", "_disk", "base_offset", "is_changed", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int, *, exists: bool = True) -> None:
        """Take `exists`: False if the caller knows that there is no file yet."""
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._data: bytearray | None = None if exists else bytearray()
        # Since it was opened or made durable.
        self.is_changed = False

    def content(self) -> IndexContent:
        """Return a copy of what the index holds now; CorruptDataError if it has part of an
        entry."""
        return IndexContent(bytes(self._content()), self.path, self.base_offset)

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries in order; CorruptDataError if the file is invalid."""
        return self.content().entries()

    def is_empty(self) -> bool:
        """Return whether no transaction that ended in the segment was aborted."""
        return not self._content()

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry and write it."""
        data = self._content()
        if data:
            last_offset = self._entry(data, len(data) // ENTRY_BYTES - 1).last_offset
            if entry.last_offset <= last_offset:
                raise CorruptDataError(
                    f"{self.path}: last offset {entry.last_offset} is not beyond "
                    f"{last_offset} of the entry before"
                )
        encoded = encode_entries([entry])
        file = self._disk.open(self.path, create=True)
        file.append([encoded])
        file.close()
        data += encoded
        self.is_changed = True

    def collect(
        self, fetch_offset: int, upper_bound_offset: int, found: list[AbortedTransaction]
    ) -> bool:
        """Add the entries that overlap [fetch_offset, upper_bound_offset) to `found`; return
        whether later segments need not be searched."""
        data = self._content()
        for number in range(self._first_ending_at(data, fetch_offset), len(data) // ENTRY_BYTES):
            entry = self._entry(data, number)
            if entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Drop every transaction whose marker is at or above `offset`."""
        data = self._content()
        size = self._first_ending_at(data, offset) * ENTRY_BYTES
        if size < len(data):
            self._disk.open(self.path).truncate(size)
            del data[size:]
            self.is_changed = True

    def reset(self) -> None:
        """Drop all entries."""
        if self._disk.exists(self.path):
            self._disk.open(self.path).truncate(0)
        self._data = bytearray()

    def durable_file(self) -> DiskFile:
        """Return the open file of a changed index, for the caller to fsync."""
        self.is_changed = False
        return self._disk.open(self.path)

    def renamed(self, path: str) -> None:
        """Note the file's new name."""
        self.path = path

    def _content(self) -> bytearray:
        data = self._data
        if data is None:
            exists = self._disk.exists(self.path)
            data = self._data = bytearray(self._disk.read_file(self.path) if exists else b"")
        if len(data) % ENTRY_BYTES:
            raise _partial(len(data), self.path)
        return data

    def _first_ending_at(self, data: bytearray, offset: int) -> int:
        """Return the number of the first entry whose marker is at or above `offset`."""
        numbers = range(len(data) // ENTRY_BYTES)
        return bisect_left(numbers, offset, key=lambda number: self._entry(data, number)[2])

    def _entry(self, data: bytearray, number: int) -> AbortedTransaction:
        return _checked(_ENTRY.unpack_from(data, number * ENTRY_BYTES), self.path, self.base_offset)


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the contents of a .txnindex."""
    return b"".join(_ENTRY.pack(_VERSION, *it) for it in entries)


def decode_entries(data: bytes, path: str, base_offset: int) -> list[AbortedTransaction]:
    """Decode the .txnindex of a segment; CorruptDataError naming `path` if it is invalid."""
    if len(data) % ENTRY_BYTES:
        raise _partial(len(data), path)
    return [_checked(fields, path, base_offset) for fields in _ENTRY.iter_unpack(data)]


def _checked(fields: tuple[int, ...], path: str, base_offset: int) -> AbortedTransaction:
    version, producer_id, first_offset, last_offset, last_stable_offset = fields
    if version < _VERSION or last_offset < base_offset:
        raise CorruptDataError(
            f"{path}: last offset {last_offset} of an aborted transaction "
            f"(version {version}) is below the segment's {base_offset}"
        )
    return AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)


def _partial(size: int, path: str) -> CorruptDataError:
    return CorruptDataError(f"{path}: {size} bytes are not a number of entries")
