"""SimDisk: files in memory with a page cache, so that power can fail at any moment.

Writes are visible at once. What a power loss leaves of them is drawn from what a file system may
do:
- Names (created, renamed, removed) reach the disk later, in an order given by `NameOrder`.
  `fsync_directory` makes the changes of that directory durable.
- Contents reach the disk sector by sector, in any order: each sector written since the last fsync
  is new, old, or (beyond the old end of the file) NULs. The size may be any in between, and may be
  ahead of the data.

fsync makes a file's contents durable. Nothing else does: neither closing the file nor time.

`power_loss` leaves this disk as it is and returns another one, so one moment can be explored many
times. `process_loss` does the same and loses nothing that was written.

Faults: `fail` maps a path prefix to the message of the error that every write and fsync below it
raises; `capacity` bounds the bytes of all files.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum

from kctl.errors import LockedError, StorageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer
from kctl.runtime.disk import DiskFile, DiskLock
from kctl.runtime.entropy import Entropy
from kctl.storage.damage import SECTOR_BYTES

# Larger than any simulation needs.
DEFAULT_CAPACITY_BYTES = 1 << 40


class NameOrder(Enum):
    """The order in which changes of names reach the disk."""

    # As on ext4 and XFS: in order, and fsync of any file makes all of them durable.
    JOURNAL = "journal"
    # In order.
    IN_ORDER = "in order"
    # The changes of a directory in order; directories are independent of each other.
    BY_DIRECTORY = "by directory"


@dataclass(slots=True)
class _Inode:
    """The contents of a file, under whatever names."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0


@dataclass(slots=True)
class _Names:
    """A tree of names: directories, and file paths with their inodes."""

    directories: set[str] = field(default_factory=lambda: {"/"})
    files: dict[str, _Inode] = field(default_factory=dict)

    def copy(self) -> "_Names":
        return _Names(set(self.directories), dict(self.files))

    def apply(self, change: "_Change") -> None:
        """Apply one change of names, if its directory exists."""
        if _parent(change.path) not in self.directories:
            return
        if change.kind == "create" and change.inode is not None:
            self.files[change.path] = change.inode
        elif change.kind == "mkdir":
            self.directories.add(change.path)
        elif change.kind == "remove":
            self._remove(change.path)
        elif change.kind == "rename":
            self._rename(change.path, change.target)

    def _remove(self, path: str) -> None:
        below = path + "/"
        self.files = {
            name: inode
            for name, inode in self.files.items()
            if name != path and not name.startswith(below)
        }
        self.directories = {
            name for name in self.directories if name != path and not name.startswith(below)
        }

    def _rename(self, old: str, new: str) -> None:
        def moved(name: str) -> str:
            return new + name[len(old) :] if name == old or name.startswith(old + "/") else name

        if old not in self.directories and old not in self.files:
            return
        self.files = {moved(name): inode for name, inode in self.files.items() if name != new}
        self.directories = {moved(name) for name in self.directories}


@dataclass(slots=True)
class _Change:
    """A change of names that has not reached the disk."""

    kind: str
    path: str
    target: str = ""
    inode: _Inode | None = None
    is_durable: bool = False

    def involves(self, directory: str) -> bool:
        """Return whether the change affects an entry of `directory`."""
        return directory == _parent(self.path) or (
            self.target != "" and directory == _parent(self.target)
        )


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class SimFile:
    """An open file; see `kctl.runtime.disk.DiskFile`."""

    def __init__(self, disk: "SimDisk", inode: _Inode, path: str) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._inode.data)

    def append(self, parts: Sequence[Buffer]) -> int:
        """Append `parts` to the file, all or nothing, and return their position."""
        self._disk.check(self.path, sum(map(len, parts)))
        position = len(self._inode.data)
        for part in parts:
            self._inode.data += part
        self._touch()
        return position

    def pwrite(self, data: Buffer, position: int) -> None:
        """Overwrite at `position`, extending the file as needed."""
        self._disk.check(self.path, len(data))
        target = self._inode.data
        if len(target) < position:
            target += bytes(position - len(target))
        target[position : position + len(data)] = data
        self._touch()

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes."""
        return bytes(self._inode.data[position : position + length])

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` and return the number of bytes read."""
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def map(self) -> memoryview:
        """Return a copy of the file's current contents."""
        return memoryview(bytes(self._inode.data))

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with NULs."""
        self._disk.check(self.path, 0)
        data = self._inode.data
        if size <= len(data):
            del data[size:]
        else:
            data += bytes(size - len(data))
        self._touch()

    def fsync(self) -> None:
        """Make the contents durable."""
        self._disk.check(self.path, 0)
        self._disk.file_synced(self._inode)

    def fileno(self) -> int:
        """Return -1: there is no descriptor."""
        return -1

    def close(self) -> None:
        """Close the file; nothing to do."""

    def _touch(self) -> None:
        self._inode.modified_ms = self._disk.now_ms
        self._disk.changed()


class _SimLock:
    """A held lock; released when the process ends."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        self._held.discard(self._path)


class SimDisk:
    """A simulated disk; see the module. Paths are absolute."""

    def __init__(self, order: NameOrder = NameOrder.JOURNAL) -> None:
        self.order = order
        # The modification time that changed files get.
        self.now_ms = 0
        self.fail: dict[str, str] = {}
        self.capacity = DEFAULT_CAPACITY_BYTES
        # Called after every change of what a power loss may leave.
        self.on_change: Callable[[], object] | None = None
        self._names = _Names()
        self._durable = _Names()
        # Changes of names that are not durable yet, oldest first.
        self._changes: list[_Change] = []
        self._locks: set[str] = set()

    # --- what a crash leaves -----------------------------------------------------------------

    def power_loss(self, entropy: Entropy) -> "SimDisk":
        """Return the disk that the machine finds after a power loss now."""
        names = self._durable.copy()
        for change in self._surviving_changes(entropy):
            names.apply(change)
        return self._with(names, lambda inode: _survived(inode, entropy))

    def process_loss(self) -> "SimDisk":
        """Return the disk that the next process finds if this one is killed now."""
        return self._with(self._names.copy(), lambda inode: bytes(inode.data))

    def contents(self) -> dict[str, bytes]:
        """Return the current contents of every file, by path."""
        return {path: bytes(inode.data) for path, inode in sorted(self._names.files.items())}

    def _surviving_changes(self, entropy: Entropy) -> list[_Change]:
        changes = self._changes
        if self.order is not NameOrder.BY_DIRECTORY:
            return changes[: entropy.random_below(len(changes) + 1)]
        survivors: list[_Change] = []
        is_lost: dict[str, bool] = {}
        for change in changes:
            directory = _parent(change.path)
            if not change.is_durable and not is_lost.get(directory):
                is_lost[directory] = entropy.random_below(4) == 0
            if change.is_durable or not is_lost[directory]:
                survivors.append(change)
        return survivors

    def _with(self, names: _Names, contents: Callable[[_Inode], bytes]) -> "SimDisk":
        after = SimDisk(self.order)
        after.now_ms, after.capacity = self.now_ms, self.capacity
        survivors: dict[int, _Inode] = {}
        for inode in names.files.values():
            if id(inode) not in survivors:
                data = contents(inode)
                survivors[id(inode)] = _Inode(bytearray(data), data, inode.modified_ms)
        names.files = {path: survivors[id(inode)] for path, inode in names.files.items()}
        after._names = names
        after._durable = names.copy()
        return after

    def check(self, path: str, growth: int) -> None:
        """Raise StorageError if `path` is set to fail, or if the disk lacks room for `growth`
        bytes.
        """
        for prefix, message in self.fail.items():
            if path.startswith(prefix):
                raise StorageError(f"{path}: {message}")
        if not growth or self.capacity == DEFAULT_CAPACITY_BYTES:
            return
        if self.free_bytes("/") < growth:
            raise StorageError(f"{path}: No space left on device")

    def changed(self) -> None:
        """Report that a power loss may now leave other contents."""
        if self.on_change is not None:
            self.on_change()

    def file_synced(self, inode: _Inode) -> None:
        """Mark a file's contents durable, and with NameOrder.JOURNAL all names so far."""
        inode.durable = bytes(inode.data)
        if self.order is NameOrder.JOURNAL:
            self._keep(self._changes)
        self.changed()

    def _keep(self, durable: Sequence[_Change]) -> None:
        for change in durable:
            change.is_durable = True
        kept = 0
        for change in self._changes:
            if not change.is_durable:
                break
            self._durable.apply(change)
            kept += 1
        del self._changes[:kept]

    def _change(self, change: _Change) -> None:
        self.check(change.path, 0)
        self._names.apply(change)
        self._changes.append(change)
        self.changed()

    # --- Disk --------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open `path`; with `create`, create it if it does not exist."""
        inode = self._names.files.get(path)
        if inode is None:
            if not create or read_only or _parent(path) not in self._names.directories:
                raise StorageError(f"{path}: No such file or directory")
            inode = _Inode(modified_ms=self.now_ms)
            self._change(_Change("create", path, inode=inode))
        return SimFile(self, inode, path)

    def exists(self, path: str) -> bool:
        """Return whether `path` exists."""
        return path in self._names.files or path in self._names.directories

    def is_directory(self, path: str) -> bool:
        """Return whether `path` is a directory."""
        return path in self._names.directories

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        if path not in self._names.directories:
            raise StorageError(f"{path}: No such file or directory")
        start = path.rstrip("/") + "/"
        names = (*self._names.files, *self._names.directories)
        found = {name[len(start) :] for name in names if name.startswith(start)}
        return sorted(name for name in found if name and "/" not in name)

    def make_directory(self, path: str) -> bool:
        """Create `path` and its parents; return False if it is a directory already."""
        if path in self._names.directories:
            return False
        if _parent(path) != path:
            self.make_directory(_parent(path))
        self._change(_Change("mkdir", path))
        return True

    def rename(self, old: str, new: str) -> None:
        """Replace `new` by `old` atomically."""
        if not self.exists(old):
            raise StorageError(f"{old}: No such file or directory")
        self._change(_Change("rename", old, new))

    def remove(self, path: str) -> None:
        """Unlink a file; a missing file is no error."""
        if path in self._names.files:
            self._change(_Change("remove", path))

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything below it."""
        if self.exists(path):
            self._change(_Change("remove", path))

    def read_file(self, path: str) -> bytes:
        """Return the whole file."""
        file = self.open(path, read_only=True)
        return file.pread(file.size(), 0)

    def write_file(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        """Replace the file at `path` durably; `is_private` is ignored, as there are
        no other users.
        """
        del is_private
        file = self.open(path + ".tmp", create=True)
        file.truncate(0)
        file.append([data])
        file.fsync()
        self.rename(path + ".tmp", path)
        self.fsync_directory(_parent(path))

    def fsync_directory(self, path: str) -> None:
        """Make the names in `path` durable, and all older changes too if changes reach the disk in
        order.
        """
        self.check(path, 0)
        involved = [n for n, change in enumerate(self._changes) if change.involves(path)]
        if self.order is NameOrder.BY_DIRECTORY:
            self._keep([self._changes[n] for n in involved])
        elif involved:
            self._keep(self._changes[: involved[-1] + 1])
        self.changed()

    def modified_ms(self, path: str) -> int:
        """Return the time of the last modification."""
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, when_ms: int) -> None:
        """Set the time of the last modification."""
        self._inode(path).modified_ms = when_ms

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return len(self._inode(path).data)

    def free_bytes(self, path: str) -> int:
        """Return the bytes that may still be written; one file system holds all paths."""
        del path
        return self.capacity - sum(len(inode.data) for inode in self._names.files.values())

    def make_private(self, path: str) -> None:
        """Do nothing if `path` exists: there are no other users."""
        if not self.is_directory(path):
            self._inode(path)

    def real_path(self, path: str) -> str:
        """Return `path`: there are no symbolic links."""
        return path

    def other_paths(self, path: str) -> Sequence[str]:
        """Return nothing: there are no mounts."""
        del path
        return ()

    def identity(self, path: str) -> str:
        """Return `path`: every file has one path."""
        return path

    def writers(self, directories: Sequence[str]) -> Sequence[int]:
        """Return nothing: there are no other processes."""
        del directories
        return ()

    def lock(self, path: str) -> DiskLock:
        """Take the lock file `path`; raise LockedError if it is taken."""
        self.open(path, create=True)
        if path in self._locks:
            raise LockedError(f"{path} is locked by another process")
        self._locks.add(path)
        return _SimLock(self._locks, path)

    def _inode(self, path: str) -> _Inode:
        inode = self._names.files.get(path)
        if inode is None:
            raise StorageError(f"{path}: No such file or directory")
        return inode


def _survived(inode: _Inode, entropy: Entropy) -> bytes:
    """Return what a power loss leaves of a file's contents."""
    new, old = bytes(inode.data), inode.durable
    if new == old or entropy.random_below(4) == 0:
        return old
    if entropy.random_below(3) == 0:
        return new
    low, high = sorted((len(old), len(new)))
    size = low + entropy.random_below(high - low + 1)
    if entropy.random_below(2):
        # The size reached the disk in full, ahead of the data.
        size = len(new)
    result = bytearray(old[:size].ljust(size, b"\0"))
    for start in range(0, size, SECTOR_BYTES):
        end = min(start + SECTOR_BYTES, size)
        if new[start:end] != result[start:end] and entropy.random_below(2):
            result[start:end] = new[start:end].ljust(end - start, b"\0")
    return bytes(result)
