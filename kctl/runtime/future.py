"""Future and Task: awaitable results on our own loop, with no hidden clock and no globals.

A coroutine is driven by `Task`: it runs until it awaits a Future that is not done, and goes on
when that Future is. Awaiting a done Future costs no turn of the loop, so code over the embedded
store (whose answers are ready at once) runs straight through.

Invariants: a Future is set at most once; its callbacks run on the scheduler (`call_soon`), in the
order added; a Task is a Future of what its coroutine returns.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
CallSoon = Callable[..., None]
_PENDING = object()


class CancelledError(Exception):
    """Raised at the await of a Task that was cancelled."""


class Future(Generic[T]):
    """A result that will be there later."""

    __slots__ = ("_call_soon", "_callbacks", "_error", "_value")

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._value: object = _PENDING
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], object]] = []

    @property
    def done(self) -> bool:
        """Whether a result or an error is there."""
        return self._value is not _PENDING or self._error is not None

    def result(self) -> T:
        """The value, or raises the error; RuntimeError if neither is there yet."""
        if self._error is not None:
            raise self._error
        if self._value is _PENDING:
            raise RuntimeError("result() of a Future that is not done")
        return cast(T, self._value)

    def error(self) -> BaseException | None:
        """The error, if that is how it ended."""
        return self._error

    def set_result(self, value: T) -> None:
        """Finish with `value`; RuntimeError if already done."""
        self._check_pending()
        self._value = value
        self._run_callbacks()

    def set_error(self, error: BaseException) -> None:
        """Finish with `error`; RuntimeError if already done."""
        self._check_pending()
        self._error = error
        self._run_callbacks()

    def add_done_callback(self, callback: Callable[["Future[T]"], object]) -> None:
        """Call `callback(self)` on the scheduler once done (soon, if it is done already)."""
        if self.done:
            self._call_soon(callback, self)
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator["Future[Any]", None, T]:
        """Give the Task this Future to wait for, unless it is done."""
        if not self.done:
            yield self
        return self.result()

    def _check_pending(self) -> None:
        if self.done:
            raise RuntimeError("a Future is set once")

    def _run_callbacks(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call_soon(callback, self)


class Task(Future[T]):
    """Drives a coroutine; made by `Scheduler.spawn`."""

    __slots__ = ("_cancelled", "_coroutine", "_waiting_for", "name")

    def __init__(
        self, call_soon: CallSoon, coroutine: Coroutine[Any, Any, T], name: str = ""
    ) -> None:
        super().__init__(call_soon)
        self.name = name
        self._coroutine = coroutine
        self._cancelled = False
        self._waiting_for: Future[Any] | None = None
        self._step(None)

    def cancel(self) -> None:
        """Raise CancelledError inside the coroutine at its next step; harmless when done."""
        if not self.done and not self._cancelled:
            self._cancelled = True
            self._waiting_for = None
            self._call_soon(self._step, None)

    def _step(self, woken_by: Future[Any] | None) -> None:
        # A Future that was waited for before a cancel may still ring: not for us any more.
        if self.done or woken_by is not self._waiting_for:
            return
        self._waiting_for = None
        try:
            if self._cancelled:
                self._cancelled = False
                waited_for = self._coroutine.throw(CancelledError())
            else:
                waited_for = self._coroutine.send(None)
        except StopIteration as stop:
            self.set_result(stop.value)
        except Exception as error:  # noqa: BLE001 - a Task hands every error to its awaiter
            self.set_error(error)
        else:
            self._waiting_for = waited_for
            waited_for.add_done_callback(self._step)
