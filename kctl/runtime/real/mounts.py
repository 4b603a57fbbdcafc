"""Other paths of the same file, due to bind mounts and repeated mounts of a file system.

Linux lists its mounts in /proc/self/mountinfo, each with the directory of its file system that it
shows. On other systems no other paths are found.
"""

import os
import re
from typing import NamedTuple

_MOUNTINFO = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mount: its device, the directory of the device that it shows, and its mount point."""

    device: str
    root: str
    point: str


def parse_mounts(text: str) -> list[Mount]:
    """Return the mounts in the text of a mountinfo file, the earliest first."""
    found = []
    for line in text.split("\n"):
        fields = line.split(" ")
        if len(fields) > 4:
            found.append(Mount(fields[2], _unescaped(fields[3]), _unescaped(fields[4])))
    return found


def other_candidates(mounts: list[Mount], real_path: str) -> list[str]:
    """Return the paths at which other mounts show `real_path`, a path without symbolic links.

    Another mount may hide such a path; the caller checks that.
    """
    holder = None
    for mount in mounts:
        # Of several mounts at the same mount point the latest is visible.
        if _below(real_path, mount.point) is not None and (
            holder is None or len(mount.point) >= len(holder.point)
        ):
            holder = mount
    if holder is None:
        return []
    inside = _joined(holder.root, _below(real_path, holder.point) or "")
    candidates = []
    for mount in mounts:
        below = _below(inside, mount.root) if mount.device == holder.device else None
        if below is not None and mount != holder:
            candidates.append(_joined(mount.point, below))
    return [path for path in dict.fromkeys(candidates) if path != real_path]


def other_paths(path: str) -> list[str]:
    """Return the other paths of this machine that lead to the existing file or directory `path`."""
    try:
        with open(_MOUNTINFO, encoding="utf-8", errors="surrogateescape") as file:
            mounts = parse_mounts(file.read())
    except OSError:
        return []
    real = os.path.realpath(path)
    return [it for it in other_candidates(mounts, real) if _is_same(it, real)]


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _below(path: str, directory: str) -> str | None:
    """Return `path` relative to `directory`, "" for itself; None if it is not below."""
    if path == directory:
        return ""
    prefix = directory.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def _joined(directory: str, below: str) -> str:
    return f"{directory.rstrip('/')}/{below}" if below else directory


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
