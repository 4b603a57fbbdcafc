"""SimDisk: files in memory with a page cache, so that a power loss can be had at any moment.

What was written is seen at once; what a power loss leaves of it is drawn from what a file system
may do:
- Names (created, renamed, removed) reach the disk later, `NameOrder` tells how. `fsync_directory`
  makes the changes of that directory durable.
- Contents reach the disk sector by sector, in any order: of what was written since the last fsync
  each sector is new, old, or (where the file was shorter) NULs; the size may be any in between,
  and ahead of the data.
fsync makes a file's contents durable. Nothing else does: not closing, not time.

`power_loss` leaves this disk as it is and returns another one, so one moment can be explored many
times; so does `process_loss`, which loses nothing that was written.

Faults: `fail` maps a path's beginning to the words of the error that every write and fsync below
it gets; `capacity` bounds the bytes of all files.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kctl.errors import StorageError
from kctl.runtime.disk import Buffer, DiskFile, DiskLock
from kctl.runtime.entropy import Entropy

SECTOR_BYTES = 512
# So many that nobody counts them.
DEFAULT_CAPACITY_BYTES = 1 << 40


class NameOrder(Enum):
    """In which order changes of names reach the disk."""

    # As on ext4 and XFS: one after the other, and fsync of any file takes all of them along.
    JOURNAL = "journal"
    # One after the other.
    IN_ORDER = "in order"
    # Those of one directory one after the other, but each directory on its own.
    BY_DIRECTORY = "by directory"


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
        """Carry out one change of names, if its directory is there."""
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
    """One change of names, on its way to the disk."""

    kind: str
    path: str
    target: str = ""
    inode: _Inode | None = None
    is_durable: bool = False

    def involves(self, directory: str) -> bool:
        """Whether it is one of the directory's."""
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
        self._disk.changed()


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

    def __init__(self, order: NameOrder = NameOrder.JOURNAL) -> None:
        self.order = order
        # The time that modifications get.
        self.now_ms = 0
        self.fail: dict[str, str] = {}
        self.capacity = DEFAULT_CAPACITY_BYTES
        # Called after everything that changes what a power loss may leave.
        self.on_change: Callable[[], object] | None = None
        self._names = _Names()
        self._durable = _Names()
        # Changes of names behind the durable ones, oldest first.
        self._changes: list[_Change] = []
        self._locks: set[str] = set()

    # --- what a crash leaves -----------------------------------------------------------------

    def power_loss(self, entropy: Entropy) -> "SimDisk":
        """The disk that a machine would find after losing power now."""
        names = self._durable.copy()
        for change in self._surviving_changes(entropy):
            names.apply(change)
        return self._with(names, lambda inode: _survived(inode, entropy))

    def process_loss(self) -> "SimDisk":
        """The disk that a process would find after the one before was killed now."""
        return self._with(self._names.copy(), lambda inode: bytes(inode.data))

    def contents(self) -> dict[str, bytes]:
        """Every file as it is seen now, by its path."""
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
        """StorageError if `path` fails, or if it cannot grow by so many bytes."""
        for prefix, words in self.fail.items():
            if path.startswith(prefix):
                raise StorageError(f"{path}: {words}")
        if not growth or self.capacity == DEFAULT_CAPACITY_BYTES:
            return
        if self.free_bytes("/") < growth:
            raise StorageError(f"{path}: No space left on device")

    def changed(self) -> None:
        """What a power loss may leave is something else now."""
        if self.on_change is not None:
            self.on_change()

    def file_synced(self, inode: _Inode) -> None:
        """A file's contents are durable, perhaps with all names so far."""
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
        """Make names in `path` durable, and with them all older changes if they have an order."""
        self.check(path, 0)
        involved = [n for n, change in enumerate(self._changes) if change.involves(path)]
        if self.order is NameOrder.BY_DIRECTORY:
            self._keep([self._changes[n] for n in involved])
        elif involved:
            self._keep(self._changes[: involved[-1] + 1])
        self.changed()

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
