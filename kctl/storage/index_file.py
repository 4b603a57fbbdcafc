"""IndexFile: a sorted file of fixed-size entries, in memory only while it is used.

Entries are appended in memory and saved in groups. That suffices: after a crash the indexes of
every segment at or above the recovery point are rebuilt from the log, and a segment's indexes are
saved and fsynced before the recovery point passes it. So an index costs no system call per entry
and no open file, and is never padded on disk, as Kafka's mapped indexes are (10 MiB of NULs after
`kill -9`, KAFKA-10207); Kafka's padding is removed when loading.

Invariants: `_saved` entries are in the file; `_raw`, when loaded, holds all of them and those not
yet saved.

Kafka 2.7: kafka.log.AbstractIndex
"""

from typing import ClassVar

from kctl.errors import CorruptDataError
from kctl.runtime.disk import Disk, DiskFile

DEFAULT_INDEX_BYTES_MAX = 10 * 1024 * 1024
# Entries kept in memory before they are written.
SAVE_EVERY = 256


class IndexFile:
    """The common part of offset and time index; `base_offset` is the segment's."""

    __slots__ = ("_disk", "_raw", "_saved", "base_offset", "entries_max", "is_durable", "path")

    entry_size: ClassVar[int]

    def __init__(
        self,
        disk: Disk,
        path: str,
        base_offset: int,
        *,
        bytes_max: int = DEFAULT_INDEX_BYTES_MAX,
        stored_bytes: int | None = None,
    ) -> None:
        """Take `stored_bytes`, the file's size, if the caller has it; 0 for a file to
        be created."""
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self.entries_max = bytes_max // self.entry_size
        # Whether the file's contents are known to be durable.
        self.is_durable = True
        # Entries in the file; -1: not read yet.
        self._saved = -1
        self._raw: bytearray | None = None
        if stored_bytes is not None:
            self._set_saved(stored_bytes)

    def __len__(self) -> int:
        """Return the number of entries; before the file is loaded padding counts, too."""
        if self._raw is not None:
            return len(self._raw) // self.entry_size
        if self._saved < 0:
            self._set_saved(self._disk.size(self.path) if self._disk.exists(self.path) else 0)
        return self._saved

    def _set_saved(self, stored_bytes: int) -> None:
        self._saved = stored_bytes // self.entry_size
        if not self._saved:
            self._raw = bytearray()

    @property
    def is_loaded(self) -> bool:
        return self._raw is not None

    def raw(self) -> bytearray:
        """Return all entries in the file's format; load them if necessary."""
        if self._raw is None:
            self._raw = self._load() if len(self) else bytearray()
        return self._raw

    def save(self) -> None:
        """Write the entries that are not in the file yet."""
        raw, size = self._raw, self.entry_size
        if raw is None or len(raw) == self._saved * size:
            return
        start = self._saved * size
        file = self._disk.open(self.path, create=True)
        # A damaged or padded end may have to be removed.
        if file.size() > start:
            file.truncate(start)
        file.pwrite(memoryview(raw)[start:], start)
        file.close()
        self.is_durable = False
        self._saved = len(raw) // size

    def replace(self, raw: bytearray) -> None:
        """Replace all entries; the file is written only if it differs."""
        is_there = self._disk.exists(self.path)
        self._raw = raw
        if is_there and self._disk.read_file(self.path) == bytes(raw):
            self._saved = len(raw) // self.entry_size
            return
        self._cut_file(0)
        self.save()

    def durable_file(self) -> DiskFile:
        """Return the open file, for the caller to fsync before anything else is saved."""
        self.is_durable = True
        return self._disk.open(self.path, create=True)

    def release(self) -> None:
        """Save, then drop the entries from memory until they are needed again."""
        self.save()
        if self._saved:
            self._raw = None

    def reset(self) -> None:
        """Drop all entries, in the file too."""
        self._raw = bytearray()
        self._cut_file(0)

    def create(self) -> None:
        """Create the file if it does not exist: Kafka has one for every segment."""
        self._disk.open(self.path, create=True).close()

    def renamed(self, path: str) -> None:
        """Note the file's new name."""
        self.path = path

    def _truncate_entries(self, count: int) -> None:
        raw = self.raw()
        if count * self.entry_size >= len(raw):
            return
        del raw[count * self.entry_size :]
        if self._saved > count:
            self._cut_file(count)

    def _cut_file(self, count: int) -> None:
        file = self._disk.open(self.path, create=True)
        if file.size() > count * self.entry_size:
            file.truncate(count * self.entry_size)
        file.close()
        self._saved = count
        self.is_durable = False

    def _append(self, entry: bytes) -> None:
        raw = self._raw
        if raw is None:
            raw = self.raw()
        raw += entry
        if len(raw) - self._saved * self.entry_size >= SAVE_EVERY * self.entry_size:
            self.save()

    def _load(self) -> bytearray:
        data = bytearray(self._disk.read_file(self.path))
        size = self.entry_size
        excess = len(data) % size
        if excess:
            del data[len(data) - excess :]
        _strip_padding(data, size)
        # Removed padding stays in the file until the next save: a reader changes nothing.
        self._saved = len(data) // size
        self._check(data)
        return data

    def _check(self, data: bytearray) -> None:
        """Raise CorruptDataError unless the first and the last entry are valid."""
        raise NotImplementedError

    def _corrupt(self, what: str) -> CorruptDataError:
        return CorruptDataError(f"{self.path}: {what}")


def _strip_padding(data: bytearray, size: int) -> None:
    """Remove the entries at the end that consist of NULs."""
    used = len(data.rstrip(b"\0"))
    # The last valid entry may itself end with NULs.
    del data[-(-used // size) * size :]
