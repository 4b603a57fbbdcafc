"""Disk: files as a log needs them; their order matters, so every call is synchronous.

`append` and `pwrite` write directly to the operating system (there is no user-space buffer: written
data survives `kill -9`). Data is durable only after `fsync`; a created or renamed name is durable
only after `fsync_directory` of its parent. Every failure is a `kctl.errors.StorageError` that names
the path.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer


class DiskFile(Protocol):
    """An open file. Positions are bytes from the file's start."""

    path: str

    def size(self) -> int:
        """Return the size in bytes (cached for files that only this process appends to)."""
        ...

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` in order at the end, in one system call where possible; return the position
        of the first byte. After an error the file is truncated to its old size."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Overwrite (and extend) at `position`."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; return the number of bytes read."""
        ...

    def map(self) -> memoryview:
        """Return a read-only view of the whole current file (mmap), valid until `close`."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate, or extend with NULs, to `size` bytes."""
        ...

    def fsync(self) -> None:
        """Make the contents durable. A failed fsync is never retried: the page cache may have
        dropped the data."""
        ...

    def fileno(self) -> int:
        """Return the descriptor for sendfile(2), or -1 without one (simulation, closed)."""
        ...

    def close(self) -> None:
        """Close the file; queued FileSlices keep their own references to it."""
        ...


@dataclass(slots=True)
class FileSlice:
    """A range of a file to be sent to a socket; protocol code only calls `len()`.

    The slice stays valid when the file is renamed or unlinked meanwhile: the open file lasts until
    the last slice is gone.
    """

    file: DiskFile
    position: int
    length: int

    def __len__(self) -> int:
        """Return the number of bytes in the slice."""
        return self.length


class Disk(Protocol):
    """The file system, or the part of it that a node may access."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open `path`; with `create`, create it if it does not exist."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Return the names in directory `path`, sorted."""
        ...

    def make_directory(self, path: str) -> bool:
        """Create `path` and its parents; return False if it is a directory already."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename `old` to `new` atomically, replacing an existing file."""
        ...

    def remove(self, path: str) -> None:
        """Unlink a file; a missing file is no error."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it; a missing directory is no error."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Replace `path` durably: write a temporary file, fsync, rename, fsync the directory. With
        `is_private` only its owner can read it."""
        ...

    def make_private(self, path: str) -> None:
        """Let only the owner use the file or directory `path`."""
        ...

    def fsync_directory(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int:
        """Return the time of the last modification, in wall milliseconds."""
        ...

    def set_modified_ms(self, path: str, when_ms: int) -> None: ...

    def size(self, path: str) -> int: ...

    def free_bytes(self, path: str) -> int: ...

    def real_path(self, path: str) -> str:
        """Return the absolute path without symbolic links; missing parts of it stay as they are."""
        ...

    def other_paths(self, path: str) -> Sequence[str]:
        """Return the known other paths of the existing `path` (bind mounts)."""
        ...

    def identity(self, path: str) -> Hashable:
        """Return a value that all paths of one existing file or directory share."""
        ...

    def writers(self, directories: Sequence[str]) -> Sequence[int]:
        """Return the known ids of other processes that have files directly in `directories` open
        for writing, or the lock file of a directory with an entry that leads to one of them."""
        ...

    def lock(self, path: str) -> "DiskLock":
        """Take the lock file `path` for this process; raise LockedError if another one holds it."""
        ...


class DiskLock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...


def make_durably(disk: Disk, path: str) -> None:
    """Create directory `path` and its parents unless they exist, and make their names durable."""
    missing, parents = path, []
    while missing and not disk.exists(missing):
        missing = missing.rpartition("/")[0]
        parents.append(missing or ("/" if path.startswith("/") else "."))
    if parents:
        disk.make_directory(path)
    for parent in parents:
        disk.fsync_directory(parent)
