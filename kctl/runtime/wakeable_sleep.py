"""WakeableSleep: the sleep of a loop that has nothing to do, until a time or until it is woken.

One task sleeps and others wake it. A wake while the task does not sleep has no effect: before each
sleep the task looks at all that it is woken for, without an `await` in between.
"""

from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler


class WakeableSleep:
    """The sleep of one task."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # Set while the task sleeps.
        self._sleeping: Future[None] | None = None

    def wake(self) -> None:
        """End the sleep, if the task sleeps."""
        sleeping, self._sleeping = self._sleeping, None
        if sleeping is not None:
            sleeping.set_result(None)

    async def until(self, due_ms: int | None) -> None:
        """Sleep until `Clock.monotonic_ms()` reaches `due_ms` (None: without a limit) or `wake`.
        A time in the past gives up one turn of the loop."""
        sleeping: Future[None] = self._scheduler.future()
        self._sleeping = sleeping
        timer = None if due_ms is None else self._scheduler.call_at(due_ms, self.wake)
        await sleeping
        if timer is not None:
            timer.cancel()
