"""Interrupt: the first Ctrl-C or SIGTERM stops a command cleanly, the second one at once.

The first signal cancels the task at its next await, so that its `finally` blocks can still commit
offsets and leave a group. A second one within REPEAT_MS is the same request: `timeout -s INT` sends
one to the command and one to its process group. It takes effect in the signal handler, even while
the loop is busy or waits for the reader of the output.
"""

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.cli.pipes import leave_stdout
from kctl.runtime.future import CancelledError
from kctl.runtime.real.signals import FirstSignal, monotonic_ms

if TYPE_CHECKING:
    from kctl.runtime.future import Task
    from kctl.runtime.real.loop import RealScheduler

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Handles the signals for one task."""

    def __init__(self, scheduler: "RealScheduler") -> None:
        # 128 plus the number of the received signal; 0 without one.
        self.status = 0
        self._scheduler = scheduler
        self._task: Task[Any] | None = None
        self._first = FirstSignal()

    def guard(self, task: "Task[Any]") -> None:
        """Cancel `task` when a signal arrives."""
        self._task = task
        for number in _SIGNALS:
            self._scheduler.on_signal(
                number, lambda number=number: self._stop(number), self._arrived
            )

    def on_hang_up(self, callback: Callable[[], object]) -> None:
        """Call `callback` when SIGHUP arrives, instead of ending."""
        self._scheduler.on_signal(signal.SIGHUP, callback)

    def run(self, work: Callable[[], T]) -> T | None:
        """Run `work` and return its result, or None if a signal cancelled it."""
        try:
            return work()
        except CancelledError:
            if not self.status:
                raise
            return None

    def _arrived(self, _number: int) -> None:
        if self._first.is_followed(monotonic_ms()):
            leave_stdout()
            raise KeyboardInterrupt

    def _stop(self, number: int) -> None:
        if self.status:
            return
        self.status = 128 + number
        if self._task is not None:
            self._task.cancel()
