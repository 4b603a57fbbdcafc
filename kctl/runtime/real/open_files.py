"""Finds other processes that use a directory, from /proc on Linux: those that have files of it open
for writing, and those that hold the lock file of a directory with a link to it.

A broker does not have the files of every partition open, but always the lock of its log directory.
Only root sees processes of other users, and other systems show none: this adds to locks and does
not replace them.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

_PROC = "/proc"
_LOCK_FILE = "/.lock"

# Device and inode number.
Identity = tuple[int, int]


def writers_of(directories: Iterable[str]) -> list[int]:
    """Return the ids of the other processes that can write to files directly in `directories`, or
    hold a lock file beside an entry that leads to one of `directories`."""
    directories = list(directories)
    try:
        files = {_identity(path) for directory in directories for path in _files(directory)}
        wanted = {_identity(directory) for directory in directories}
        names = os.listdir(_PROC)
    except OSError:
        return []
    own = os.getpid()
    pids = sorted(int(name) for name in names if name.isdigit())
    return [pid for pid in pids if pid != own and _uses_any(pid, files, wanted)]


def _identity(path: str) -> Identity:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _files(directory: str) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.path for entry in entries if entry.is_file()]


def _uses_any(pid: int, files: set[Identity], directories: set[Identity]) -> bool:
    try:
        numbers = os.listdir(f"{_PROC}/{pid}/fd")
    except OSError:
        return False
    return any(
        _is_written(pid, number, files) or _is_lock_of_any(pid, number, directories)
        for number in numbers
    )


def _is_written(pid: int, number: str, wanted: set[Identity]) -> bool:
    try:
        if _identity(f"{_PROC}/{pid}/fd/{number}") not in wanted:
            return False
        with open(f"{_PROC}/{pid}/fdinfo/{number}", encoding="ascii") as file:
            flags = next(line for line in file if line.startswith("flags:"))
    except (OSError, StopIteration):
        # The process, or its descriptor, is gone.
        return False
    return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _is_lock_of_any(pid: int, number: str, wanted: set[Identity]) -> bool:
    try:
        path = os.readlink(f"{_PROC}/{pid}/fd/{number}")
        if not path.endswith(_LOCK_FILE):
            return False
        # As the process sees it: a container has mounts of its own.
        root = f"{_PROC}/{pid}/root"
        with os.scandir(root + path.removesuffix(_LOCK_FILE)) as entries:
            found = [entry.path for entry in entries]
    except OSError:
        return False
    return any(_leads_to(path, root, wanted) for path in found)


def _leads_to(path: str, root: str, wanted: set[Identity]) -> bool:
    """Return whether the entry `path` is one of `wanted`; a link may be absolute below `root`."""
    with suppress(OSError):
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return _identity(path) in wanted
        target = os.readlink(path)
        return _identity(root + target if target.startswith("/") else path) in wanted
    return False
