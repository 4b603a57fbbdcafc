"""Finds other processes that have files of a directory open for writing, from /proc on Linux.

Only root sees processes of other users, and other systems show none: this adds to locks and does
not replace them.
"""

import os
from collections.abc import Iterable

_PROC = "/proc"


def writers_of(directories: Iterable[str]) -> list[int]:
    """Return the ids of the other processes that can write to files directly in `directories`."""
    try:
        files = [path for directory in directories for path in _files(directory)]
        wanted = {(it.st_dev, it.st_ino) for it in map(os.stat, files)}
        names = os.listdir(_PROC)
    except OSError:
        return []
    own = os.getpid()
    pids = sorted(int(name) for name in names if name.isdigit())
    return [pid for pid in pids if pid != own and _writes_any(pid, wanted)]


def _files(directory: str) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.path for entry in entries if entry.is_file()]


def _writes_any(pid: int, wanted: set[tuple[int, int]]) -> bool:
    try:
        numbers = os.listdir(f"{_PROC}/{pid}/fd")
    except OSError:
        return False
    return any(_is_written(pid, number, wanted) for number in numbers)


def _is_written(pid: int, number: str, wanted: set[tuple[int, int]]) -> bool:
    try:
        found = os.stat(f"{_PROC}/{pid}/fd/{number}")
        if (found.st_dev, found.st_ino) not in wanted:
            return False
        with open(f"{_PROC}/{pid}/fdinfo/{number}", encoding="ascii") as file:
            flags = next(line for line in file if line.startswith("flags:"))
    except (OSError, StopIteration):
        # The process, or its descriptor, is gone.
        return False
    return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
