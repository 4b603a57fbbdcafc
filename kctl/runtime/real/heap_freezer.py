"""HeapFreezer: keeps Python's searches for reference cycles short, however many objects there are.

A search stops every thread and takes about 0.4 microseconds for each object that it visits: the new
ones, and in a full search all of them. Here, objects that survive a long search are frozen: later
searches do not visit them, so each visits only what is new since the last freeze.

A frozen object is still freed when its last reference goes, but a cycle among frozen objects is not
found. What a broker holds for long therefore leaves no cycle when it goes, and only cycles that
come from elsewhere stay. Those are found when all objects are thawed, searched, and frozen again.
That takes 0.4 s for a million objects, so it happens only while no client is connected, and once
the number of frozen objects has grown by half.

Thresholds: the youngest objects are searched after NEW_OBJECTS_MAX have been made and not freed,
and together with the survivors of earlier searches every other time.

CPython 3.11: Modules/gcmodule.c (gc.freeze, gc.callbacks)
"""

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kctl.runtime.scheduler import Scheduler

# Objects made and not freed between two searches: more of them take longer, fewer would have
# requests that wait searched again and again.
NEW_OBJECTS_MAX = 5_000
# Searches of younger objects after which the next one includes the older: as few as possible,
# because each adds NEW_OBJECTS_MAX to what a search of older objects visits.
SEARCHES_PER_OLDER = 1
# CPU time of a search of older objects after which they are frozen.
SEARCH_SECONDS_MAX = 0.004
# How often to look whether to thaw.
CHECK_MS = 1_000
# Growth since the last thaw, as a factor and a number of objects besides.
GROWTH, GROWTH_OBJECTS = 1.5, 50_000


class Collector(Protocol):
    """The part of the module `gc` that is used."""

    callbacks: list[Callable[[str, Mapping[str, int]], object]]

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...

    def collect(self) -> int: ...

    def get_freeze_count(self) -> int: ...

    def set_threshold(self, threshold0: int, threshold1: int, threshold2: int, /) -> None: ...


class HeapFreezer:
    """See the module; one for a process."""

    def __init__(
        self,
        scheduler: Scheduler,
        is_anyone_connected: Callable[[], bool],
        collector: Collector | Any = gc,
        now: Callable[[], float] = time.thread_time,
    ) -> None:
        """Create a freezer; `is_anyone_connected` returns whether a client would notice a pause."""
        self._scheduler = scheduler
        self._is_anyone_connected = is_anyone_connected
        self._gc = collector
        self._now = now
        self._began = 0.0
        # Objects that were frozen after the last thaw.
        self._thawed_count = 0

    def start(self) -> None:
        """Freeze what there is, and keep searches short from now on."""
        self._gc.set_threshold(NEW_OBJECTS_MAX, SEARCHES_PER_OLDER, SEARCHES_PER_OLDER)
        self._gc.freeze()
        self._thawed_count = self._gc.get_freeze_count()
        self._gc.callbacks.append(self._on_search)
        self._scheduler.call_later(CHECK_MS, self._check)

    def stop(self) -> None:
        """Freeze nothing more."""
        if self._on_search in self._gc.callbacks:
            self._gc.callbacks.remove(self._on_search)

    def _on_search(self, phase: str, info: Mapping[str, int]) -> None:
        # Called by whichever thread makes the object that is one too many.
        if info["generation"] == 0:
            return
        if phase == "start":
            self._began = self._now()
        elif self._now() - self._began > SEARCH_SECONDS_MAX:
            self._gc.freeze()

    def _check(self) -> None:
        if self._on_search not in self._gc.callbacks:
            return
        # In this order: even to count the objects takes 20 ms for a million of them.
        if not self._is_anyone_connected() and self._has_grown():
            self._thaw()
        self._scheduler.call_later(CHECK_MS, self._check)

    def _has_grown(self) -> bool:
        return self._gc.get_freeze_count() > GROWTH * self._thawed_count + GROWTH_OBJECTS

    def _thaw(self) -> None:
        self._gc.unfreeze()
        self._gc.collect()
        self._gc.freeze()
        self._thawed_count = self._gc.get_freeze_count()
