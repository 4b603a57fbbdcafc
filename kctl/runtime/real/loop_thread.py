"""LoopThread: a runtime whose loop runs on its own thread, for callers on other threads.

The loop's objects are used on its thread only: `call` passes a function to it and its outcome back.
The thread is a daemon: a process that must end does not wait for it. A caller that makes one call
of `run` after the other runs the loop itself meanwhile, which saves both switches (`loop_loan`).
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from kctl.errors import KctlError, TimedOutError, UsageError
from kctl.runtime.future import Future, Task
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.real.interrupts import DelayedInterrupt, may_run_loop
from kctl.runtime.real.loop import LoopStoppedError
from kctl.runtime.real.loop_loan import PAUSE_S, LoopLoan
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
        self._loan = LoopLoan()
        # When the last call of `run` ended, in monotonic seconds.
        self._last_run_s = -PAUSE_S
        self._stay_awake()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
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

        self._pass(start)
        try:
            return outcomes.get(timeout=timeout_s).result()
        except Empty:
            raise TimedOutError(f"no answer from the loop within {timeout_s:g} s") from None

    @property
    def is_own_thread(self) -> bool:
        """Return whether the caller runs on the loop: a callback, for example."""
        return threading.get_ident() == self._thread.ident or self._loan.is_borrower

    def run(self, function: Callable[..., Any], *args: object) -> Any:
        """Run `function(*args)` on the loop, await its result there and return it.

        The caller runs the loop if nothing else does. To interrupt it (Ctrl-C) cancels the function
        at its next await. UsageError when closed, or on the loop's own thread.
        """
        # A loop that can be borrowed is one whose thread lives, and is not the caller's.
        if self._is_open and self._loan.is_free and may_run_loop():
            with DelayedInterrupt() as interrupt:
                if self._loan.take():
                    try:
                        return self._run_here(interrupt, function, *args)
                    finally:
                        self._last_run_s = time.monotonic()
                        self._loan.give_back(resumes=self._has_work())
        is_next = time.monotonic() - self._last_run_s < PAUSE_S
        outcome = self._submit(function, args, pauses=is_next)
        try:
            return outcome.result()
        except BaseException:
            outcome.cancel()
            raise
        finally:
            self._last_run_s = time.monotonic()

    def _run_here(
        self, interrupt: DelayedInterrupt, function: Callable[..., Any], *args: object
    ) -> Any:
        scheduler = self.runtime.scheduler
        try:
            # What came while the loop was paused comes first: a lost connection, for example.
            scheduler.catch_up()
            if not self._is_open:
                raise LoopStoppedError
            outcome = function(*args)
            if type(outcome) is not Future:
                if not hasattr(outcome, "__await__"):
                    return outcome
                outcome = scheduler.spawn(_awaited_result(outcome), "call")
                interrupt.on_interrupt(partial(scheduler.call_soon_threadsafe, outcome.cancel))
            elif not outcome.done:
                # What the caller waits for continues without it.
                stop = partial(self._stop_waiting, outcome)
                interrupt.on_interrupt(partial(scheduler.call_soon_threadsafe, stop))
            return scheduler.run_until(outcome)
        except LoopStoppedError:
            raise UsageError("the loop is closed") from None

    def _stop_waiting(self, outcome: Future[Any]) -> None:
        if not outcome.done:
            self.runtime.scheduler.stop()

    def submit(self, function: Callable[..., Any], *args: object) -> "Outcome[Any]":
        """Run `function(*args)` on the loop and return its outcome at once.

        To cancel the outcome cancels the function at its next await. UsageError when closed, or on
        the loop's own thread, whose caller would wait for itself.
        """
        return self._submit(function, args)

    def _submit(
        self, function: Callable[..., Any], args: tuple[object, ...], *, pauses: bool = False
    ) -> "Outcome[Any]":
        """Submit; `pauses`: afterwards the caller may run the loop, if there is no other call."""
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
            if pauses:
                task.add_done_callback(lambda _: self._pause())
            task.add_done_callback(partial(_pass_on, outcome))
            outcome.add_done_callback(partial(self._cancel, task))

        self._pass(start)
        return outcome

    async def call_async(self, function: Callable[..., Any], *args: object) -> Any:
        """Run `function(*args)` on the loop and await its result in asyncio."""
        import asyncio

        return await asyncio.wrap_future(self.submit(function, *args))

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Run `function(*args)` on the loop soon; nothing when closed."""
        if self._is_open:
            self._pass(function, *args)

    def close(self, timeout_s: float) -> None:
        """End the loop and close its descriptors; KctlError if it hangs."""
        if not self._is_open:
            return
        self._is_open = False
        scheduler = self.runtime.scheduler
        self._pass(scheduler.stop)
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
            self._pass(task.cancel)

    def _pass(self, callback: Callable[..., object], *args: object) -> None:
        self.runtime.scheduler.call_soon_threadsafe(callback, *args)
        self._loan.work_came()

    # The loop's thread

    def _serve(self) -> None:
        while self._is_open:
            self._loan.run(self._run_while_open)
            if self._is_open:
                self._loan.pause(self._has_work)
        # A caller that has borrowed the loop stops at the end of its turn.
        self._loan.run(lambda: None)

    def _run_while_open(self) -> None:
        if self._is_open:
            self.runtime.scheduler.run_forever()

    def _pause(self) -> None:
        """Let callers run the loop, if one call is in progress, which is done; on the loop."""
        if len(self._waited_for) == 1 and not self._loan.is_lent:
            self.runtime.scheduler.stop()

    def _has_work(self) -> bool:
        return bool(self._waited_for) or self.runtime.scheduler.has_callbacks

    def _check_callable(self) -> None:
        if not self._is_open or not self._thread.is_alive():
            raise UsageError("the loop is closed")
        if self.is_own_thread:
            raise UsageError("a call to the loop from the loop's own thread")

    def _stay_awake(self) -> None:
        self.runtime.scheduler.call_later(_IDLE_MS, self._stay_awake)


async def _awaited_result(result: Any) -> Any:
    return await result


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
