"""Scheduler: when things run. Callbacks run on one thread; only `call_soon_threadsafe` is
thread-safe.

Contract, shared by the real loop and the simulation: callbacks run one at a time, in the order in
which they became due; equal deadlines fire in the order in which they were set (heap key: deadline,
sequence), so that the same inputs give the same run.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from kctl.runtime.future import Future, Task
from kctl.runtime.watchdog import LoopWatchdog

T = TypeVar("T")


class Timer(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Drop the callback; harmless after it ran."""
        ...


class Scheduler(Protocol):
    """The event loop as its users see it."""

    @property
    def watchdog(self) -> LoopWatchdog:
        """Return the counter of turns and their durations."""
        ...

    def is_turn_spent(self) -> bool:
        """Return whether this turn has taken so long that postponable work should wait: long work
        checks this between two parts, and continues by `call_soon`."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Run `callback(*args)` after the current callback, before waiting for input."""
        ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        """Run `callback(*args)` from another thread's call; wakes the loop."""
        ...

    def call_at(self, when_ms: int, callback: Callable[..., object], *args: object) -> Timer:
        """Run `callback(*args)` once `Clock.monotonic_ms()` reaches `when_ms`."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[..., object], *args: object) -> Timer:
        """Run `callback(*args)` in `delay_ms` milliseconds."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Task[T]:
        """Start `coroutine` at once, up to its first unfinished await."""
        ...

    def future(self) -> Future[Any]:
        """Return a Future whose callbacks run on this scheduler."""
        ...

    def background(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` off the loop (fsync, cleaning, file deletion); its result or exception arrives
        through the Future, on the loop. Jobs of one node run in the order given."""
        ...

    def background_all(self, jobs: Sequence[Callable[[], object]]) -> Future[None]:
        """Run `jobs`, which catch their own errors, off the loop and in parallel, in any order; the
        Future is done when all are. Together they are one job of `background`'s order."""
        ...
