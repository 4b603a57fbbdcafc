"""StopSignals: the first SIGTERM or SIGINT stops a process cleanly, the next one ends it at once.

So does SIGHUP, when the terminal is closed, unless it is ignored (`nohup`) or asks a server to read
its files again (`on_hang_up`).

Process groups, `timeout` and service managers often send the same signal twice in quick
succession, so a second one counts only after REPEAT_MS. It takes effect in the signal handler, even
while the loop is busy.
"""

import os
import signal
import time
from collections.abc import Callable

from kctl.runtime.real.loop import RealScheduler

# Signals that arrive sooner after the first than this are the same request.
REPEAT_MS = 1_000
# The exit status of a process that a signal ends: this plus the signal's number.
STATUS_BASE = 128
NUMBERS = (signal.SIGTERM, signal.SIGINT)


class FirstSignal:
    """The time of the first signal, by which a later one is the same request or a new one."""

    def __init__(self) -> None:
        self._first_ms: int | None = None

    def is_followed(self, now_ms: int) -> bool:
        """Take in a signal that arrives at `now_ms`; return whether it is a second request."""
        if self._first_ms is None:
            self._first_ms = now_ms
        return now_ms - self._first_ms >= REPEAT_MS


def monotonic_ms() -> int:
    """Return the time for signal handlers: they run outside the loop and its clock."""
    return time.monotonic_ns() // 1_000_000


class StopSignals:
    """Handles SIGTERM and SIGINT of this process while `scheduler` is open."""

    def __init__(
        self,
        scheduler: RealScheduler,
        stop: Callable[[], object],
        before_end: Callable[[], object] | None = None,
    ) -> None:
        """Call `stop` on the loop for every signal, and `before_end` in the signal handler before
        the process is ended."""
        self._before_end = before_end
        self._first = FirstSignal()
        hang_up = (signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL else ()
        for number in (*NUMBERS, *hang_up):
            scheduler.on_signal(number, stop, self._arrived)

    def _arrived(self, number: int) -> None:
        if self._first.is_followed(monotonic_ms()):
            self._end(number)

    def _end(self, number: int) -> None:
        name = signal.Signals(number).name
        os.write(2, f"Second signal ({name}): stopped at once, not cleanly\n".encode())
        try:
            if self._before_end is not None:
                self._before_end()
        finally:
            os._exit(STATUS_BASE + number)


def on_hang_up(scheduler: RealScheduler, callback: Callable[[], object]) -> None:
    """Call `callback` when SIGHUP arrives, which asks a server to read its files again."""
    scheduler.on_signal(signal.SIGHUP, callback)
