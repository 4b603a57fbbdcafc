"""Future and Task: awaitable results on the event loop, with no hidden clock and no globals.

A `Task` drives a coroutine: it runs until the coroutine awaits a Future that is not done, and
continues when that Future is. Awaiting a done Future costs no turn of the loop, so code over the
embedded store (whose results are ready at once) runs without interruption.

Invariants: a Future is set at most once; its callbacks run on the scheduler (`call_soon`), in the
order added; a Task is a Future of its coroutine's result; an error of a Task that is never
retrieved is reported to the scheduler that spawned it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

T = TypeVar("T")
CallSoon = Callable[..., None]
_PENDING: Final = object()


class CancelledError(Exception):
    """Raised at the await of a Task that was cancelled."""


class Future(Generic[T]):
    """A result that becomes available later."""

    __slots__ = ("_call_soon", "_callbacks", "_error", "_value", "done")

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._value: Any = _PENDING
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], object]] | None = None
        # Whether there is a result or an error; read-only for users.
        self.done = False

    def result(self) -> T:
        """Return the value, or raise the error; RuntimeError if there is neither yet."""
        if self._error is not None:
            raise self._error
        if self._value is _PENDING:
            raise RuntimeError("result() of a Future that is not done")
        value: T = self._value
        return value

    def error(self) -> BaseException | None:
        """Return the error, or None."""
        return self._error

    def set_result(self, value: T) -> None:
        """Finish with `value`; RuntimeError if already done."""
        if self.done:
            raise RuntimeError("a Future is set once")
        self.done = True
        self._value = value
        if self._callbacks is not None:
            self._run_callbacks()

    def set_error(self, error: BaseException) -> None:
        """Finish with `error`; RuntimeError if already done."""
        if self.done:
            raise RuntimeError("a Future is set once")
        self.done = True
        self._error = error
        if self._callbacks is not None:
            self._run_callbacks()

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Call `callback(self)` on the scheduler once done (soon, if it is done already)."""
        if self.done:
            self._call_soon(callback, self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Future[Any], None, T]:
        """Suspend the Task until this Future is done."""
        if not self.done:
            yield self
        return self.result()

    def _run_callbacks(self) -> None:
        callbacks, self._callbacks = self._callbacks or (), None
        for callback in callbacks:
            self._call_soon(callback, self)


class Task(Future[T]):
    """Drives a coroutine; created by `Scheduler.spawn`."""

    __slots__ = ("_cancelled", "_coroutine", "_is_watched", "_on_unseen", "_waiting_for", "name")

    def __init__(
        self,
        call_soon: CallSoon,
        coroutine: Coroutine[Any, Any, T],
        name: str = "",
        on_unseen_error: Callable[[Task[Any], BaseException], object] | None = None,
    ) -> None:
        super().__init__(call_soon)
        self.name = name
        self._coroutine = coroutine
        self._cancelled = False
        self._waiting_for: Future[Any] | None = None
        self._is_watched = False
        self._on_unseen = on_unseen_error
        self._step(None)

    def result(self) -> T:
        """Return the value, or raise the error; RuntimeError if there is neither yet."""
        self._is_watched = True
        return super().result()

    def error(self) -> BaseException | None:
        """Return the error, or None."""
        self._is_watched = True
        return self._error

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Call `callback(self)` on the scheduler once done (soon, if it is done already)."""
        self._is_watched = True
        super().add_done_callback(callback)

    def cancel(self) -> None:
        """Raise CancelledError inside the coroutine at its next step; harmless when done."""
        if not self.done and not self._cancelled:
            self._cancelled = True
            self._call_soon(self._step, None)

    def describe_work(self, *_: object) -> str:
        """Name the task for the loop's watchdog."""
        return f"task {self.name or getattr(self._coroutine, '__qualname__', 'without a name')}"

    def _step(self, woken_by: Future[Any] | None) -> None:
        if self.done:
            return
        cancelled, self._cancelled = self._cancelled, False
        # A Future that was awaited before a cancel may still call back: ignore it.
        if not cancelled and woken_by is not self._waiting_for:
            return
        self._waiting_for = None
        try:
            if cancelled:
                waited_for = self._coroutine.throw(CancelledError())
            else:
                waited_for = self._coroutine.send(None)
        except StopIteration as stop:
            self.set_result(stop.value)
        except CancelledError as cancellation:
            self._is_watched = True
            self.set_error(cancellation)
        except Exception as error:  # noqa: BLE001 - a Task passes every error to its awaiter
            self.set_error(error)
            self._call_soon(self._tell_if_unseen, error)
        else:
            self._waiting_for = waited_for
            waited_for.add_done_callback(self._step)

    def _tell_if_unseen(self, error: BaseException) -> None:
        if not self._is_watched and self._on_unseen is not None:
            self._on_unseen(self, error)


def pass_on(to: Future[T], settled: Future[T]) -> None:
    """Give the result or the error of a future that is done to another one."""
    error = settled.error()
    if error is None:
        to.set_result(settled.result())
    else:
        to.set_error(error)


class _Timer(Protocol):
    def cancel(self) -> None: ...


class _Waits(Protocol):
    """The part of a Scheduler that waiting needs."""

    def call_later(
        self, delay_ms: int, callback: Callable[..., object], *args: object
    ) -> _Timer: ...

    def future(self) -> Future[Any]: ...

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Task[T]: ...


async def sleep(scheduler: _Waits, delay_ms: int) -> None:
    """Wait `delay_ms` milliseconds."""
    future: Future[None] = scheduler.future()
    timer = scheduler.call_later(delay_ms, _ring, future)
    try:
        await future
    finally:
        timer.cancel()


async def gather(scheduler: _Waits, awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Run all concurrently; return their results in order, or raise the first error once all are
    done."""
    tasks = [scheduler.spawn(_await(awaitable)) for awaitable in awaitables]
    first_error: BaseException | None = None
    for task in tasks:
        await _settle(scheduler, task)
        first_error = first_error or task.error()
    if first_error is not None:
        raise first_error
    return [task.result() for task in tasks]


async def wait_at_most(
    scheduler: _Waits, future: Future[T], timeout_ms: int, on_timeout: Exception
) -> T:
    """Return the result of `future`; raise `on_timeout` if there is none within `timeout_ms`. The
    future itself continues."""
    if future.done:
        return future.result()
    either: Future[None] = scheduler.future()
    timer = scheduler.call_later(timeout_ms, _ring, either)
    future.add_done_callback(lambda _: _ring(either))
    await either
    timer.cancel()
    return _result_or(future, on_timeout)


async def wait_for_any(scheduler: _Waits, futures: Iterable[Future[Any]]) -> None:
    """Wait until one of `futures`, of which there is at least one, has a result or an error."""
    either: Future[None] = scheduler.future()
    for future in futures:
        future.add_done_callback(lambda _: _ring(either))
    await either


def _result_or(future: Future[T], otherwise: Exception) -> T:
    if future.done:
        return future.result()
    raise otherwise


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _settle(scheduler: _Waits, future: Future[Any]) -> None:
    if not future.done:
        done: Future[None] = scheduler.future()
        future.add_done_callback(lambda _: done.set_result(None))
        await done


def _ring(future: Future[None]) -> None:
    if not future.done:
        future.set_result(None)
