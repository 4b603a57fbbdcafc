"""SimDisk: files in memory with a page cache, so that a power loss can be had at any moment.

What was written is seen at once; what a power loss leaves of it is drawn from what a file system
may do:
- Names (created, renamed, removed) reach the disk in order, as a journal does it: a crash keeps a
  prefix of the changes. `fsync_directory` makes all changes up to the last one in that directory
  durable; with `fsync_keeps_names`, as on ext4 and XFS, fsync of any file does it for all so far.
- Contents reach the disk sector by sector, in any order: of what was written since the last fsync
  each sector is new, old, or (where the file was shorter) NULs; the size may be any in between,
  and ahead of the data.
fsync makes a file's contents durable. Nothing else does: not closing, not time.

A process that is killed loses nothing: go on with the same SimDisk. `power_loss` leaves this disk
as it is and returns another one, so one moment can be explored many times.

Faults: `fail` maps a path's beginning to the words of the error that every write and fsync below
it gets; `capacity` bounds the bytes of all files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kctl.errors import StorageError
from kctl.runtime.disk import Buffer, DiskFile, DiskLock
from kctl.runtime.entropy import Entropy

SECTOR_BYTES = 512
DEFAULT_CAPACITY_BYTES = 1 << 40


@dataclass(slots=True)
class _Inode:
    """A file's contents, however it is named."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0


@dataclass(slots=True)
class _Names:
    """A tree of names: directories, and files' paths with their inodes."""

    directories: set[str] = field(default_factory=lambda: {"/"})
    files: dict[str, _Inode] = field(default_factory=dict)

    def copy(self) -> "_Names":
        return _Names(set(self.directories), dict(self.files))

    def apply(self, change: "_Change") -> None:
        """Carry out one change of names."""
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


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of names, on its way to the disk."""

    kind: str
    path: str
    target: str = ""
    inode: _Inode | None = None

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(_parent(path) for path in (self.path, self.target) if path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class SimFile:
    """An open file; see `kctl.runtime.disk.DiskFile`."""

    def __init__(self, disk: "SimDisk", inode: _Inode, path: str) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def size(self) -> int:
        """Bytes in the file now."""
        return len(self._inode.data)

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` at the end, all or nothing."""
        self._disk.check(self.path, sum(map(len, parts)))
        position = len(self._inode.data)
        for part in parts:
            self._inode.data += part
        self._touch()
        return position

    def pwrite(self, data: Buffer, position: int) -> None:
        """Overwrite and extend."""
        self._disk.check(self.path, len(data))
        target = self._inode.data
        if len(target) < position:
            target += bytes(position - len(target))
        target[position : position + len(data)] = data
        self._touch()

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes."""
        return bytes(self._inode.data[position : position + length])

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer`; how many bytes there were."""
        data = self.pread(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def map(self) -> memoryview:
        """A copy of the file as it is now."""
        return memoryview(bytes(self._inode.data))

    def truncate(self, size: int) -> None:
        """Cut or extend with NULs."""
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
        """There is no descriptor."""
        return -1

    def close(self) -> None:
        """Nothing to do."""

    def _touch(self) -> None:
        self._inode.modified_ms = self._disk.now_ms


class _SimLock:
    """A held lock; gone with the process."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        """Let go."""
        self._held.discard(self._path)


class SimDisk:
    """See the module; paths are absolute."""

    def __init__(self, *, fsync_keeps_names: bool = True) -> None:
        self.fsync_keeps_names = fsync_keeps_names
        # The time that modifications get.
        self.now_ms = 0
        self.fail: dict[str, str] = {}
        self.capacity = DEFAULT_CAPACITY_BYTES
        self._names = _Names()
        self._durable = _Names()
        # Changes of names that are not durable yet, oldest first.
        self._changes: list[_Change] = []
        self._locks: set[str] = set()

    # --- power loss --------------------------------------------------------------------------

    def power_loss(self, entropy: Entropy) -> "SimDisk":
        """The disk that a machine would find after losing power now."""
        after = SimDisk(fsync_keeps_names=self.fsync_keeps_names)
        after.now_ms, after.capacity = self.now_ms, self.capacity
        names = self._durable.copy()
        for change in self._changes[: entropy.random_below(len(self._changes) + 1)]:
            names.apply(change)
        survivors: dict[int, _Inode] = {}
        for inode in names.files.values():
            if id(inode) not in survivors:
                data = _survived(inode, entropy)
                survivors[id(inode)] = _Inode(bytearray(data), data, inode.modified_ms)
        names.files = {path: survivors[id(inode)] for path, inode in names.files.items()}
        after._names = names
        after._durable = names.copy()
        return after

    def kill(self) -> None:
        """The process is gone: its locks are free, nothing else changes."""
        self._locks.clear()

    def check(self, path: str, growth: int) -> None:
        """StorageError if `path` fails, or if it cannot grow by so many bytes."""
        for prefix, words in self.fail.items():
            if path.startswith(prefix):
                raise StorageError(f"{path}: {words}")
        if growth and self.free_bytes("/") < growth:
            raise StorageError(f"{path}: No space left on device")

    def file_synced(self, inode: _Inode) -> None:
        """A file's contents are durable, perhaps with all names so far."""
        inode.durable = bytes(inode.data)
        if self.fsync_keeps_names:
            self._keep(len(self._changes))

    def _keep(self, count: int) -> None:
        for change in self._changes[:count]:
            self._durable.apply(change)
        del self._changes[:count]

    def _change(self, change: _Change) -> None:
        self.check(change.path, 0)
        self._names.apply(change)
        self._changes.append(change)

    # --- Disk --------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> DiskFile:
        """Open `path`; with `create`, make it if it is not there."""
        inode = self._names.files.get(path)
        if inode is None:
            if not create or read_only or _parent(path) not in self._names.directories:
                raise StorageError(f"{path}: No such file or directory")
            inode = _Inode(modified_ms=self.now_ms)
            self._change(_Change("create", path, inode=inode))
        return SimFile(self, inode, path)

    def exists(self, path: str) -> bool:
        """Whether `path` is there."""
        return path in self._names.files or path in self._names.directories

    def is_directory(self, path: str) -> bool:
        """Whether `path` is a directory."""
        return path in self._names.directories

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        if path not in self._names.directories:
            raise StorageError(f"{path}: No such file or directory")
        start = path.rstrip("/") + "/"
        names = (*self._names.files, *self._names.directories)
        found = {name[len(start) :] for name in names if name.startswith(start)}
        return sorted(name for name in found if name and "/" not in name)

    def make_directory(self, path: str) -> None:
        """Create `path` and its parents."""
        if path in self._names.directories:
            return
        if _parent(path) != path:
            self.make_directory(_parent(path))
        self._change(_Change("mkdir", path))

    def rename(self, old: str, new: str) -> None:
        """Atomically replace `new` by `old`."""
        if not self.exists(old):
            raise StorageError(f"{old}: No such file or directory")
        self._change(_Change("rename", old, new))

    def remove(self, path: str) -> None:
        """Unlink a file; fine if it is gone."""
        if path in self._names.files:
            self._change(_Change("remove", path))

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it."""
        if self.exists(path):
            self._change(_Change("remove", path))

    def read_file(self, path: str) -> bytes:
        """The whole file."""
        file = self.open(path, read_only=True)
        return file.pread(file.size(), 0)

    def write_file(self, path: str, data: bytes) -> None:
        """Replace `path` durably."""
        file = self.open(path + ".tmp", create=True)
        file.truncate(0)
        file.append([data])
        file.fsync()
        self.rename(path + ".tmp", path)
        self.fsync_directory(_parent(path))

    def fsync_directory(self, path: str) -> None:
        """Make names in `path` durable, and with them all older changes."""
        self.check(path, 0)
        involved = [n for n, change in enumerate(self._changes) if path in change.parents]
        if involved:
            self._keep(involved[-1] + 1)

    def modified_ms(self, path: str) -> int:
        """Last modification."""
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, when_ms: int) -> None:
        """Set the last modification."""
        self._inode(path).modified_ms = when_ms

    def size(self, path: str) -> int:
        """Bytes in the file now."""
        return len(self._inode(path).data)

    def free_bytes(self, path: str) -> int:
        """What may still be written; one file system holds all."""
        del path
        return self.capacity - sum(len(inode.data) for inode in self._names.files.values())

    def lock(self, path: str) -> DiskLock:
        """Take the lock file `path`."""
        self.open(path, create=True)
        if path in self._locks:
            raise StorageError(f"{path} is locked by another process")
        self._locks.add(path)
        return _SimLock(self._locks, path)

    def _inode(self, path: str) -> _Inode:
        inode = self._names.files.get(path)
        if inode is None:
            raise StorageError(f"{path}: No such file or directory")
        return inode


def _survived(inode: _Inode, entropy: Entropy) -> bytes:
    """What a power loss leaves of a file's contents."""
    new, old = bytes(inode.data), inode.durable
    if new == old or entropy.random_below(4) == 0:
        return old
    if entropy.random_below(3) == 0:
        return new
    low, high = sorted((len(old), len(new)))
    size = low + entropy.random_below(high - low + 1)
    if entropy.random_below(2):
        # The size reached the disk whole, ahead of the data.
        size = len(new)
    result = bytearray(old[:size].ljust(size, b"\0"))
    for start in range(0, size, SECTOR_BYTES):
        end = min(start + SECTOR_BYTES, size)
        if new[start:end] != result[start:end] and entropy.random_below(2):
            result[start:end] = new[start:end].ljust(end - start, b"\0")
    return bytes(result)
