"""Scheduler: when things run. One thread decides; nothing here is thread-safe but
`call_soon_threadsafe`.

Contract, shared by the real loop and the simulation: callbacks run one at a time, in the order
in which they became due; equal deadlines fire in the order in which they were set (heap key:
deadline, sequence), so that the same inputs give the same run.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from kctl.runtime.future import Future, Task

T = TypeVar("T")


class Timer(Protocol):
    """A callback that waits for its deadline."""

    def cancel(self) -> None:
        """Forget the callback; harmless once it ran."""
        ...


class Scheduler(Protocol):
    """The event loop as its users see it."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Run `callback(*args)` after the current callback, before waiting for input."""
        ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        """The same from another thread; wakes the loop."""
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
        """A Future whose callbacks run on this scheduler."""
        ...

    def background(self, job: Callable[[], T]) -> Future[T]:
        """Run `job` off the loop (fsync, cleaning, file deletion); its result or exception
        arrives through the Future, on the loop. Jobs of one node run in the order given."""
        ...

    def background_all(self, jobs: Sequence[Callable[[], object]]) -> Future[None]:
        """Run `jobs`, which catch their own errors, off the loop and side by side, in any order;
        done when all are. Together they are one job of `background`'s order."""
        ...
