"""HeapFreezer: keeps Python's searches for reference cycles short, however many objects there are.

A search stops every thread and takes about 0.4 microseconds for each object that it visits: the new
ones, and in a full search all of them. Here, objects that survive a long search are frozen: later
searches do not visit them, so each visits only what is new since the last freeze.

A frozen object is still freed when its last reference goes, but a cycle among frozen objects is
never found: Python can only thaw all objects at once, and to search them takes 0.4 s for a million.
What a broker holds for long therefore leaves no cycle when it goes.

Python searches the youngest objects after NEW_OBJECTS_MAX have been made and not freed, and
together with the survivors of earlier searches every other time. It counts what is freed, whatever
its age: while much is deleted, the count hardly rises, and the next search visits tens of thousands
of new objects. Much is only done in parts, so a search is also made after a part, if the loop has
worked for long enough since the last one.

CPython 3.11: Modules/gcmodule.c (gc.freeze, gc.callbacks, PyObject_GC_Del)
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kctl.runtime.real.loop import RealScheduler

# Objects made and not freed between two searches: more of them take longer, fewer would have
# requests that wait searched again and again.
NEW_OBJECTS_MAX = 5_000
# Searches of younger objects after which the next one includes the older: as few as possible,
# because each adds NEW_OBJECTS_MAX to what a search of older objects visits.
SEARCHES_PER_OLDER = 1
# CPU time of a search of older objects after which they are frozen.
SEARCH_SECONDS_MAX = 0.004
# CPU time since the last search after which one follows a part of long work.
WORK_SECONDS_MAX = 0.01


class Collector(Protocol):
    """The part of the module `gc` that is used."""

    callbacks: list[Callable[[str, Mapping[str, int]], object]]

    def freeze(self) -> None: ...

    def collect(self, generation: int = 2, /) -> int: ...

    def get_count(self) -> tuple[int, int, int]: ...

    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None: ...


class HeapFreezer:
    """See the module; one for a process."""

    def __init__(
        self,
        scheduler: RealScheduler | Any,
        collector: Collector | Any = gc,
        now: Callable[[], float] = time.thread_time,
    ) -> None:
        self._scheduler = scheduler
        self._gc = collector
        self._now = now
        self._began = 0.0
        # When the last search ended.
        self._searched = 0.0

    def start(self) -> None:
        """Freeze what there is, and keep searches short from now on."""
        self._gc.set_threshold(NEW_OBJECTS_MAX, SEARCHES_PER_OLDER, SEARCHES_PER_OLDER)
        self._gc.freeze()
        self._gc.callbacks.append(self._on_search)
        self._scheduler.on_part = self._on_part

    def stop(self) -> None:
        """Freeze nothing more."""
        if self._on_search in self._gc.callbacks:
            self._gc.callbacks.remove(self._on_search)
            self._scheduler.on_part = _nothing

    def _on_search(self, phase: str, info: Mapping[str, int]) -> None:
        # Called by whichever thread makes the object that is one too many.
        now = self._now()
        if phase == "start":
            self._began = now
            return
        self._searched = now
        if info["generation"] and now - self._began > SEARCH_SECONDS_MAX:
            self._gc.freeze()

    def _on_part(self) -> None:
        if self._now() - self._searched > WORK_SECONDS_MAX:
            self._gc.collect(self._due_generation())

    def _due_generation(self) -> int:
        """Return the oldest generation whose turn it is, as Python chooses it."""
        _, young, older = self._gc.get_count()
        if young <= SEARCHES_PER_OLDER:
            return 0
        return 1 if older <= SEARCHES_PER_OLDER else 2


def _nothing() -> None:
    """Do nothing after a part of work."""
