"""Paths that mean the same file in another directory, and paths that name a file's directory."""

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["absolute", "with_directory_names"]


def absolute(paths: Iterable[str]) -> list[str]:
    """Return absolute paths; a URL stays as it is."""
    return [path if "://" in path else str(Path.cwd() / path) for path in paths]


def with_directory_names(paths: Iterable[str]) -> list[str]:
    """Return paths that contain the name of the directory that they lead to, or that holds the file
    that they lead to: it names the partition.

    `.`, `..` and a file in the working directory become absolute paths. Other paths stay relative
    or absolute and lose only empty components and dots. URLs stay as they are.
    """
    return [path if "://" in path else _with_directory_name(path) for path in paths]


def _with_directory_name(given: str) -> str:
    if not os.path.exists(given):
        return given  # The reader of the path reports it as it was given.
    path = Path(given)
    is_directory = os.path.isdir(given)
    directory = path if is_directory else path.parent
    if directory.name not in ("", ".."):
        return str(path)
    # What `..` leads to is known only without links.
    resolved = directory.resolve()
    return str(resolved if is_directory else resolved / path.name)
