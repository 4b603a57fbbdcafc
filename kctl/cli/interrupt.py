"""Interrupt: a first Ctrl-C (or SIGTERM) asks a command to stop in good order, a second makes it.

The task is cancelled at its next await, so that its `finally` can still commit and leave a group.
"""

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kctl.runtime.future import CancelledError

if TYPE_CHECKING:
    from kctl.runtime.future import Task
    from kctl.runtime.real.loop import RealScheduler

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Takes signals for one task."""

    def __init__(self, scheduler: "RealScheduler") -> None:
        # 128 and the signal's number, once one came.
        self.status = 0
        self._scheduler = scheduler
        self._task: Task[Any] | None = None

    def guard(self, task: "Task[Any]") -> None:
        """From now on, signals cancel `task`."""
        self._task = task
        for number in _SIGNALS:
            self._scheduler.on_signal(number, lambda number=number: self._stop(number))

    def run(self, work: Callable[[], object]) -> None:
        """Run `work`; that it was interrupted is no error."""
        try:
            work()
        except CancelledError:
            if not self.status:
                raise

    def _stop(self, number: int) -> None:
        if self.status:
            raise KeyboardInterrupt
        self.status = 128 + number
        if self._task is not None:
            self._task.cancel()
