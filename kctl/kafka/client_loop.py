"""ClientLoop: the event loop of one client, on its own thread, for blocking and `async` callers.

The clients of `kctl.kafka` are coroutines of kctl's runtime. `run` waits for one of them from any
other thread; `run_async` awaits it in asyncio. A caller that stops waiting (Ctrl-C, a cancelled
task) cancels the coroutine at its next step.

What a client logs goes to the logger `kctl.kafka`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from kctl.errors import TimedOutError
from kctl.runtime.real.loop_thread import LoopThread, new_lock
from kctl.runtime.real.trace import LoggerTrace
from kctl.runtime.runtime import Runtime

LOGGER = "kctl.kafka"
# How long `close` waits for the thread: its callbacks take milliseconds.
_END_TIMEOUT_S = 10.0


class ClientLoop:
    """A running loop; `close` ends it. Its thread is a daemon."""

    def __init__(self, name: str = LOGGER) -> None:
        self._thread = LoopThread(name, LoggerTrace(LOGGER))
        self._thread.runtime.scheduler.watchdog.be_silent()

    @property
    def runtime(self) -> Runtime:
        """Return the runtime, whose objects are used on the loop only."""
        return self._thread.runtime

    @property
    def is_own_thread(self) -> bool:
        """Return whether the caller runs on the loop: a hook, for example."""
        return self._thread.is_own_thread

    @staticmethod
    def new_lock() -> AbstractContextManager[object]:
        """Return a lock for what the loop shares with other threads."""
        return new_lock()

    def run(
        self, function: Callable[..., Any], *args: object, timeout_s: float | None = None
    ) -> Any:
        """Run `function(*args)` on the loop, await its result there and return it.

        TimedOutError after `timeout_s` seconds (None: wait without a limit); the function is
        cancelled. UsageError if the loop is closed, or on the loop's own thread.
        """
        outcome = self._thread.submit(function, *args)
        try:
            return outcome.result(timeout_s)
        except TimeoutError:
            outcome.cancel()
            raise TimedOutError(f"no result within {timeout_s:g} s") from None
        except BaseException:
            outcome.cancel()
            raise

    def run_here(self, function: Callable[..., Any], *args: object) -> Any:
        """Do the same without a limit of time, on the caller's own thread if the loop is idle.

        For calls that follow each other: between two of them, what the loop does by itself may wait
        for some milliseconds.
        """
        return self._thread.run(function, *args)

    async def run_async(self, function: Callable[..., Any], *args: object) -> Any:
        """Do the same from a coroutine of asyncio."""
        return await self._thread.call_async(function, *args)

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Run `function(*args)` on the loop soon, without waiting; nothing if it is closed."""
        self._thread.post(function, *args)

    def close(self) -> None:
        """End the loop; what is still running there ends with it."""
        self._thread.close(_END_TIMEOUT_S)
