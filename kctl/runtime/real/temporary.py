"""Temporary directories."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def temporary_directory(prefix: str) -> Iterator[str]:
    """Create a directory whose name begins with `prefix`, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        yield name
