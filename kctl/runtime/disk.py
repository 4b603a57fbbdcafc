"""Disk: files as a log needs them, in an order that matters, so every call is synchronous.

A file is written by `append` and `pwrite` straight to the operating system (no user-space
buffer: what was written survives `kill -9`), and is durable only after `fsync`; a created or
renamed name is durable only after `fsync_directory` of its parent.
Every failure is a `kctl.errors.StorageError` that names the path.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class DiskFile(Protocol):
    """One open file. Positions are bytes from the file's start."""

    path: str

    def size(self) -> int:
        """Bytes in the file now (a cached figure for files only we append to)."""
        ...

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` one after the other at the end, in one system call where it can be;
        returns the position of the first byte. All or an error; on an error the file is cut
        back to its old size."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Overwrite (and extend) at `position`."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position`; shorter only at the end of the file."""
        ...

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; how many bytes there were."""
        ...

    def map(self) -> memoryview:
        """A read-only view of the whole file as it is now (mmap), valid until `close`."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend with NULs to `size` bytes."""
        ...

    def fsync(self) -> None:
        """Make the contents durable. A failed fsync is never retried: see reliability."""
        ...

    def fileno(self) -> int:
        """The descriptor for sendfile(2), or -1 where there is none (simulation, closed)."""
        ...

    def close(self) -> None:
        """Close it; FileSlices that still wait to be sent keep their own reference alive."""
        ...


@dataclass(slots=True)
class FileSlice:
    """A range of a file on its way to a socket; `len()` is all that protocol code asks of it.

    The slice stays valid when the file is renamed or unlinked meanwhile, as the open file
    lives until the last slice is gone.
    """

    file: DiskFile
    position: int
    length: int

    def __len__(self) -> int:
        """Bytes in the slice."""
        return self.length


class Disk(Protocol):
    """The file system, or the part of it that a node may see."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open `path`; with `create`, make it if it is not there."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in directory `path`, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Create `path` and its parents; fine if it is there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomically give `old` the name `new`, replacing what was there."""
        ...

    def remove(self, path: str) -> None:
        """Unlink a file; fine if it is gone."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it; fine if it is gone."""
        ...

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: bytes) -> None:
        """Replace `path` durably: write beside it, fsync, rename, fsync the directory."""
        ...

    def fsync_directory(self, path: str) -> None: ...

    def modified_ms(self, path: str) -> int:
        """Last modification in wall milliseconds."""
        ...

    def set_modified_ms(self, path: str, when_ms: int) -> None: ...

    def size(self, path: str) -> int: ...

    def free_bytes(self, path: str) -> int: ...

    def lock(self, path: str) -> "DiskLock":
        """Take the lock file `path` for this process; StorageError if another one has it."""
        ...


class DiskLock(Protocol):
    """A held lock file."""

    def release(self) -> None: ...
