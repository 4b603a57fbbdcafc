"""TransactionIndex: .txnindex, the aborted transactions that ended in a segment, 34 bytes each.

    version int16 (0) | producerId int64 | firstOffset int64 | lastOffset int64 |
    lastStableOffset int64

`lastOffset` is that of the marker; `lastStableOffset` is the one at that time: a
reader can stop at the first entry whose last stable offset is beyond its fetched range.
The file is created with the first entry; most segments have none.

Kafka 2.7: kafka.log.TransactionIndex, AbortedTxn; KIP-98
"""

import struct
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


class TransactionIndex:
    """The aborted transactions of a segment; entries are read once and kept."""

    __slots__ = ("_disk", "_entries", "base_offset", "is_changed", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int, *, exists: bool = True) -> None:
        """Take `exists`: False if the caller knows that there is no file yet."""
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTransaction] | None = None if exists else []
        # Since it was opened or made durable.
        self.is_changed = False

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries in order; CorruptDataError if the file is invalid."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry and write it."""
        entries = self.entries()
        if entries and entry.last_offset <= entries[-1].last_offset:
            raise CorruptDataError(
                f"{self.path}: last offset {entry.last_offset} is not beyond "
                f"{entries[-1].last_offset} of the entry before"
            )
        file = self._disk.open(self.path, create=True)
        file.append([encode_entries([entry])])
        file.close()
        entries.append(entry)
        self.is_changed = True

    def collect(
        self, fetch_offset: int, upper_bound_offset: int, found: list[AbortedTransaction]
    ) -> bool:
        """Add the entries that overlap [fetch_offset, upper_bound_offset) to `found`; return
        whether later segments need not be searched."""
        for entry in self.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Drop every transaction whose marker is at or above `offset`."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._disk.open(self.path).truncate(len(kept) * _ENTRY.size)
            self._entries = kept
            self.is_changed = True

    def reset(self) -> None:
        """Drop all entries."""
        if self._disk.exists(self.path):
            self._disk.open(self.path).truncate(0)
        self._entries = []

    def durable_file(self) -> DiskFile:
        """Return the open file of a changed index, for the caller to fsync."""
        self.is_changed = False
        return self._disk.open(self.path)

    def renamed(self, path: str) -> None:
        """Note the file's new name."""
        self.path = path

    def _load(self) -> list[AbortedTransaction]:
        if not self._disk.exists(self.path):
            return []
        return decode_entries(self._disk.read_file(self.path), self.path, self.base_offset)


def encode_entries(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the contents of a .txnindex."""
    return b"".join(_ENTRY.pack(_VERSION, *it) for it in entries)


def decode_entries(data: bytes, path: str, base_offset: int) -> list[AbortedTransaction]:
    """Decode the .txnindex of a segment; CorruptDataError naming `path` if it is invalid."""
    if len(data) % _ENTRY.size:
        raise CorruptDataError(f"{path}: {len(data)} bytes are not a number of entries")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction._make(fields)
        if version < _VERSION or entry.last_offset < base_offset:
            raise CorruptDataError(
                f"{path}: last offset {entry.last_offset} of an aborted transaction "
                f"(version {version}) is below the segment's {base_offset}"
            )
        entries.append(entry)
    return entries
