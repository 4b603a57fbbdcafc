"""WorkQueue: long work of many requests, in turns with each other and with everything else.

A piece of work is a generator that yields after each step of a few milliseconds and returns its
result (see `turns`). The first step is done at once, so that short work has no latency. Of all
active work, one step is done per turn of the loop: however many requests need long work, other
clients wait for one step. A turn that is spent already (`Scheduler.is_turn_spent`) starts no work
and does no step, but of two such turns in a row the second does one, so that all work is done.

Memory: at most ACTIVE_MAX pieces of work are active at a time; the others wait in order of arrival.
A piece of work yields EXCLUSIVE before it holds more than `HELD_BYTES_MAX` of one thing, and is
suspended until no other such work is left. All work together holds about ACTIVE_MAX times a stored
batch and `HELD_BYTES_MAX`, and what the largest piece holds.

Invariants: `on_done` or `on_error` is called exactly once for each piece of work, unless its result
is no longer wanted (`is_wanted`); then neither is, and the work is closed before its next step.
Suspended work is resumed when the holder ends: the holder itself waits for nothing.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from kctl.runtime.scheduler import Scheduler
from kctl.work import EXCLUSIVE, ClaimingWork

T = TypeVar("T")

# Pieces of work that are active at a time, suspended ones included.
ACTIVE_MAX: Final = 8


def _always() -> bool:
    return True


class _Entry(NamedTuple):
    """A piece of work, its callbacks, and whether to continue."""

    work: ClaimingWork[Any]
    on_done: Callable[[Any], object]
    on_error: Callable[[Exception], object]
    is_wanted: Callable[[], bool]


class WorkQueue:
    """The queue of a broker; see the module."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._active: deque[_Entry] = deque()
        self._waiting: deque[_Entry] = deque()
        # The only piece of work that may hold much, and those that wait to.
        self._holder: _Entry | None = None
        self._suspended: deque[_Entry] = deque()
        self._has_turn = False
        self._has_passed = False

    def start(
        self,
        work: ClaimingWork[T],
        on_done: Callable[[T], object],
        on_error: Callable[[Exception], object],
        is_wanted: Callable[[], bool] = _always,
    ) -> None:
        """Do `work`; then call `on_done(result)`, or `on_error(error)` if it raised.

        Both may be called before this method returns. `is_wanted()` is checked before each further
        step; if it is false, the work ends there.
        """
        entry = _Entry(work, on_done, on_error, is_wanted)
        if self._is_full():
            self._waiting.append(entry)
            return
        if self._scheduler.is_turn_spent():
            self._active.append(entry)
            self._next_turn()
            return
        try:
            self._step(entry)
        finally:
            self._next_turn()

    def _is_full(self) -> bool:
        return len(self._active) + len(self._suspended) >= ACTIVE_MAX

    def _next_turn(self) -> None:
        if self._active and not self._has_turn:
            self._has_turn = True
            # By a timer: the loop serves its descriptors before its timers.
            self._scheduler.call_later(0, self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        self._has_passed = not self._has_passed and self._scheduler.is_turn_spent()
        if self._has_passed:
            self._next_turn()
            return
        entry = self._active.popleft()
        try:
            if entry.is_wanted():
                self._step(entry)
            else:
                entry.work.close()
                self._release(entry)
        finally:
            while self._waiting and not self._is_full():
                self._active.append(self._waiting.popleft())
            self._next_turn()

    def _step(self, entry: _Entry) -> None:
        try:
            claim = next(entry.work)
        except StopIteration as stop:
            result = stop.value
        except Exception as error:  # noqa: BLE001 - the requester decides what its error means
            self._release(entry)
            entry.on_error(error)
            return
        else:
            if claim is EXCLUSIVE and self._holder is not None and self._holder is not entry:
                self._suspended.append(entry)
                return
            if claim is EXCLUSIVE:
                self._holder = entry
            self._active.append(entry)
            return
        # Outside the `except`, as in kctl.runtime.turns.
        self._release(entry)
        entry.on_done(result)

    def _release(self, entry: _Entry) -> None:
        """Let the next piece of work hold much, if `entry` did."""
        if self._holder is entry:
            self._holder = self._suspended.popleft() if self._suspended else None
            if self._holder is not None:
                self._active.append(self._holder)
