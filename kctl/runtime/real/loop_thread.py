"""LoopThread: a runtime whose loop runs on its own thread, for callers on other threads.

The loop's objects are used on its thread only: `call` passes a function to it and its outcome back.
The thread is a daemon: a process that must end does not wait for it.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from kctl.errors import KctlError, TimedOutError, UsageError
from kctl.runtime.future import Future
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.trace import Trace

# A timer that far away keeps an idle loop waiting for calls.
_IDLE_MS = 3_600_000


class LoopThread:
    """A running loop; `close` ends it."""

    def __init__(self, name: str, trace: Trace) -> None:
        self.runtime: RealRuntime = make_runtime(trace)
        self._is_open = True
        self._stay_awake()
        self._thread = threading.Thread(
            target=self.runtime.scheduler.run_forever, name=name, daemon=True
        )
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: object, timeout_s: float) -> Any:
        """Run `function(*args)` on the loop, await its result there and return it.

        TimedOutError after `timeout_s` seconds: the function continues. UsageError when closed, or
        on the loop's own thread, which would wait for itself.
        """
        if not self._is_open or not self._thread.is_alive():
            raise UsageError("the loop is closed")
        if threading.current_thread() is self._thread:
            raise UsageError("a call to the loop from the loop's own thread")
        outcomes: SimpleQueue[Future[Any]] = SimpleQueue()
        scheduler = self.runtime.scheduler

        async def run() -> Any:
            result = function(*args)
            return await result if hasattr(result, "__await__") else result

        def start() -> None:
            scheduler.spawn(run(), "call").add_done_callback(outcomes.put)

        scheduler.call_soon_threadsafe(start)
        try:
            return outcomes.get(timeout=timeout_s).result()
        except Empty:
            raise TimedOutError(f"no answer from the loop within {timeout_s:g} s") from None

    def close(self, timeout_s: float) -> None:
        """End the loop and close its descriptors; KctlError if it hangs."""
        if not self._is_open:
            return
        self._is_open = False
        scheduler = self.runtime.scheduler
        scheduler.call_soon_threadsafe(scheduler.stop)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise KctlError(f"the thread {self._thread.name} does not end")
        scheduler.close()

    def _stay_awake(self) -> None:
        self.runtime.scheduler.call_later(_IDLE_MS, self._stay_awake)
