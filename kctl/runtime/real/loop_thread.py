"""LoopThread: a runtime whose loop runs on its own thread, for callers on other threads.

The loop's objects are used on its thread only: `call` passes a function to it and its outcome back.
The thread is a daemon: a process that must end does not wait for it.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from kctl.errors import KctlError, TimedOutError, UsageError
from kctl.runtime.future import Future, Task
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.trace import Trace

if TYPE_CHECKING:
    from concurrent.futures import Future as Outcome

# A timer that far away keeps an idle loop waiting for calls.
_IDLE_MS = 3_600_000


# Guards what callers and the loop share.
new_lock = threading.Lock


class LoopThread:
    """A running loop; `close` ends it."""

    def __init__(self, name: str, trace: Trace) -> None:
        self.runtime: RealRuntime = make_runtime(trace)
        self._is_open = True
        # Outcomes of `submit` that a caller may wait for; a dict, for its order.
        self._waited_for: dict[Outcome[Any], None] = {}
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
        self._check_callable()
        outcomes: SimpleQueue[Future[Any]] = SimpleQueue()
        scheduler = self.runtime.scheduler

        def start() -> None:
            scheduler.spawn(_awaited(function, *args), "call").add_done_callback(outcomes.put)

        scheduler.call_soon_threadsafe(start)
        try:
            return outcomes.get(timeout=timeout_s).result()
        except Empty:
            raise TimedOutError(f"no answer from the loop within {timeout_s:g} s") from None

    @property
    def is_own_thread(self) -> bool:
        """Return whether the caller runs on the loop's thread."""
        return threading.current_thread() is self._thread

    def submit(self, function: Callable[..., Any], *args: object) -> "Outcome[Any]":
        """Run `function(*args)` on the loop and return its outcome at once.

        To cancel the outcome cancels the function at its next await. UsageError when closed, or on
        the loop's own thread, whose caller would wait for itself.
        """
        from concurrent.futures import Future as Outcome

        self._check_callable()
        outcome: Outcome[Any] = Outcome()
        self._waited_for[outcome] = None
        outcome.add_done_callback(self._forget)
        scheduler = self.runtime.scheduler

        def start() -> None:
            if outcome.cancelled():
                return
            task = scheduler.spawn(_awaited(function, *args), "call")
            task.add_done_callback(partial(_pass_on, outcome))
            outcome.add_done_callback(partial(self._cancel, task))

        scheduler.call_soon_threadsafe(start)
        return outcome

    async def call_async(self, function: Callable[..., Any], *args: object) -> Any:
        """Run `function(*args)` on the loop and await its result in asyncio."""
        import asyncio

        return await asyncio.wrap_future(self.submit(function, *args))

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Run `function(*args)` on the loop soon; nothing when closed."""
        if self._is_open:
            self.runtime.scheduler.call_soon_threadsafe(function, *args)

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
        for outcome in list(self._waited_for):
            outcome.set_exception(UsageError("the loop is closed"))

    def _forget(self, outcome: "Outcome[Any]") -> None:
        self._waited_for.pop(outcome, None)

    def _cancel(self, task: Task[Any], outcome: "Outcome[Any]") -> None:
        if outcome.cancelled() and self._is_open:
            self.runtime.scheduler.call_soon_threadsafe(task.cancel)

    def _check_callable(self) -> None:
        if not self._is_open or not self._thread.is_alive():
            raise UsageError("the loop is closed")
        if self.is_own_thread:
            raise UsageError("a call to the loop from the loop's own thread")

    def _stay_awake(self) -> None:
        self.runtime.scheduler.call_later(_IDLE_MS, self._stay_awake)


async def _awaited(function: Callable[..., Any], *args: object) -> Any:
    result = function(*args)
    return await result if hasattr(result, "__await__") else result


def _pass_on(outcome: "Outcome[Any]", task: Future[Any]) -> None:
    """Settle `outcome`, unless its owner no longer waits."""
    from concurrent.futures import InvalidStateError

    error = task.error()
    with suppress(InvalidStateError):
        if error is None:
            outcome.set_result(task.result())
        else:
            outcome.set_exception(error)
