"""Paths that mean the same file in a process that runs in another directory."""

from collections.abc import Iterable
from pathlib import Path

__all__ = ["absolute"]


def absolute(paths: Iterable[str]) -> list[str]:
    """Return absolute paths; a URL stays as it is."""
    return [path if "://" in path else str(Path.cwd() / path) for path in paths]
