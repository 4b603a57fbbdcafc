"""Recognizes a log directory by its contents."""

from kctl.runtime.disk import Disk
from kctl.storage import layout


def log_directory_hint(disk: Disk, path: str) -> str | None:
    """Return a hint that names `path`/logs if that is a log directory, as below the directory that
    `kctl serve --data-dir` was given; None otherwise."""
    below = f"{path.rstrip('/')}/logs"
    is_log_directory = (
        disk.exists(below)
        and disk.is_directory(below)
        and any(
            layout.parse_directory_name(name) or layout.parse_file_name(name)
            for name in disk.list(below)
        )
    )
    return f"did you mean {below}?" if is_log_directory else None
