"""Temporary directories in memory, where the system has such a place."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

IN_MEMORY = "/dev/shm"


@contextlib.contextmanager
def files_in_memory() -> Iterator[None]:
    """Make temporary directories in memory meanwhile. Work on files takes the same time on every
    machine there: on a disk it grows with what the disk holds, and syncs wait for others."""
    before = tempfile.tempdir
    if os.access(IN_MEMORY, os.W_OK):
        tempfile.tempdir = IN_MEMORY
    try:
        yield
    finally:
        tempfile.tempdir = before
