"""Locks the log directories that files actually belong to, for tools that write without a broker.

A broker locks `.lock` in each of its log directories. A tool may be given another path to the same
files: a symbolic link to a log directory, to a partition's directory or to a segment, or a bind
mount of any of them. So every path is resolved first, and locks are looked for beside and above the
result. If links lead from a log directory to the files, nothing leads back from the files; then the
process reveals itself that has the files open for writing, or the lock of a log directory with a
link to them.

Kafka 2.7: kafka.log.LogManager.lockLogDirs
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from kctl.errors import StorageError, UsageError
from kctl.runtime.disk import Disk, DiskLock
from kctl.storage import layout


def is_log_directory(disk: Disk, directory: str) -> bool:
    """Return whether a broker has used `directory` as a log directory."""
    names = (layout.LOCK_FILE, layout.META_PROPERTIES)
    return any(disk.exists(f"{directory}/{name}") for name in names)


def real_directory(disk: Disk, directory: str) -> str:
    """Return `directory` with its links resolved: the path inside a log directory, if there is one
    among the paths that lead to it."""
    paths = _paths(disk, directory)
    inside = (path for path in paths if is_log_directory(disk, _parent(path)))
    return next(inside, paths[0])


def log_directories(disk: Disk, path: str) -> list[str]:
    """Return the log directories of `path`, which need not exist yet, and of the files directly in
    it, each once."""
    existing = path
    while not disk.exists(existing) and existing not in ("/", "."):
        existing = _parent(existing)
    directories = {disk.real_path(existing): None}
    if disk.is_directory(existing):
        for name in disk.list(existing):
            target = _parent(disk.real_path(f"{existing}/{name}"))
            directories[target] = None
    places = [place for directory in directories for place in _paths(disk, directory)]
    candidates = [it for place in places for it in (place, _parent(place))]
    found = {
        disk.identity(it): it
        for it in dict.fromkeys(candidates)
        if disk.exists(it) and is_log_directory(disk, it)
    }
    return list(found.values())


@contextmanager
def locked_log_directories(disk: Disk, paths: Iterable[str]) -> Iterator[None]:
    """Hold the locks of all log directories that `paths` belong to.

    StorageError if another process holds one of them, or has files of `paths` open for writing.
    """
    paths = list(paths)
    wanted = {disk.identity(it): it for path in paths for it in log_directories(disk, path)}
    locks: list[DiskLock] = []
    try:
        locks.extend(disk.lock(f"{it}/{layout.LOCK_FILE}") for it in sorted(wanted.values()))
        _check_unused(disk, [path for path in paths if disk.is_directory(path)])
        yield
    finally:
        for lock in locks:
            lock.release()


def check_outside(disk: Disk, path: str, what: str) -> None:
    """Raise UsageError if `path`, which need not exist yet, is a log directory or in one: a broker
    does not start with a directory there that is no partition's."""
    existing = path
    while not disk.exists(existing) and existing not in ("/", "."):
        existing = _parent(existing)
    for place in [disk.real_path(path), *disk.other_paths(existing)]:
        _check_no_log_directory(disk, place, what)


def _check_no_log_directory(disk: Disk, path: str, what: str) -> None:
    while path not in ("/", "."):
        if disk.exists(f"{path}/{layout.META_PROPERTIES}"):
            raise UsageError(f"{what} cannot be in the log directory {path}", hint="name another")
        path = _parent(path)


def _check_unused(disk: Disk, directories: Sequence[str]) -> None:
    writers = disk.writers(directories)
    if writers:
        listed = ", ".join(map(str, writers))
        raise StorageError(
            f"{directories[0]}: process {listed} has files open for writing there, or the lock of"
            " a log directory that links there",
            hint="if that is a broker, stop it first",
        )


def _paths(disk: Disk, path: str) -> list[str]:
    return [disk.real_path(path), *disk.other_paths(path)]


def _parent(path: str) -> str:
    if "/" not in path:
        return "."
    return path.rpartition("/")[0] or "/"
