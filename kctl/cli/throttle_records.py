"""Records of throttles that kctl put on clusters, as files that outlive it.

`$XDG_STATE_HOME/kctl/throttles/<cluster id>.json`, by default in ~/.local/state. Written whole and
synced before anything is changed, removed when everything is back.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.admin.replication_throttle import ThrottleRecord


def load(cluster_id: str) -> "ThrottleRecord | None":
    """The throttle in force on a cluster, if it is kctl's; CorruptDataError."""
    from kctl.admin.replication_throttle import ThrottleRecord

    path = _path(cluster_id)
    try:
        return ThrottleRecord.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def save(record: "ThrottleRecord") -> Path:
    """Keep it; where."""
    path = _path(record.cluster_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(handle, record.to_json().encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    new.replace(path)
    return path


def remove(cluster_id: str) -> None:
    """All is back."""
    _path(cluster_id).unlink(missing_ok=True)


def _path(cluster_id: str) -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    directory = Path(base) if base else Path.home() / ".local" / "state"
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in cluster_id)
    return directory / "kctl" / "throttles" / f"{name}.json"
