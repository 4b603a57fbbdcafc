"""Drives work that is done in parts (`kctl.work`) on a loop, which serves others in between.

Work that never yields is done at once, in the caller's stack.
"""

from collections.abc import Callable
from typing import TypeVar

from kctl.runtime.future import Future, sleep
from kctl.runtime.scheduler import Scheduler
from kctl.work import Pace, Work, finished

T = TypeVar("T")


def in_turns(
    scheduler: Scheduler,
    work: Work[T],
    on_done: Callable[[T], object],
    on_error: Callable[[Exception], object],
) -> None:
    """Do the first part of `work` now and the others in later turns; then call `on_done(result)`.

    What the first part raises is raised here, as the caller's stack is still there to handle it.
    What a later part or a later `on_done` raises goes to `on_error`: the waiter
    must learn that there is no result. `fail_loudly` is for work that nothing waits for.
    """
    if _is_done(work, on_done):
        return
    # By a timer: the loop serves its descriptors before its timers.
    scheduler.call_later(0, _in_turns, scheduler, work, on_done, on_error)


def alone_in_turns(scheduler: Scheduler, work: Work[object]) -> None:
    """Do `work` as `in_turns` does, for no one: its result is dropped, and what a later part raises
    is logged."""
    in_turns(scheduler, work, _drop, fail_loudly)


def _drop(_result: object) -> None:
    """Do nothing with a result that no one waits for."""


def _in_turns(
    scheduler: Scheduler,
    work: Work[T],
    on_done: Callable[[T], object],
    on_error: Callable[[Exception], object],
) -> None:
    try:
        is_done = _is_done(work, on_done)
    except Exception as error:  # noqa: BLE001 - `on_error` decides what an error means
        on_error(error)
    else:
        if not is_done:
            scheduler.call_later(0, _in_turns, scheduler, work, on_done, on_error)


def _is_done(work: Work[T], on_done: Callable[[T], object]) -> bool:
    """Do one part of `work`."""
    try:
        next(work)
    except StopIteration as stop:
        result: T = stop.value
    else:
        return False
    # Outside the `except`: a traceback of what `on_done` raises would otherwise begin with `stop`,
    # that is with all of the result (a request, and the passwords in it).
    on_done(result)
    return True


def fail_loudly(error: Exception) -> None:
    """Raise `error`, which the loop logs."""
    raise error


async def done_in_turns(scheduler: Scheduler, work: Work[T]) -> T:
    """Return the result of `work`; what it raises after the first `yield` is raised here, too."""
    return await finished(work, lambda: sleep(scheduler, 0))


def pace_of(scheduler: Scheduler) -> Pace:
    """Return a Pace whose turns are those of the loop."""
    return Pace(lambda: next_turn(scheduler))


def next_turn(scheduler: Scheduler) -> Future[None]:
    """Return a future that is done in the loop's next turn, after its input has been served."""
    future: Future[None] = scheduler.future()
    # By a timer: callbacks of `call_soon` run in the same turn.
    scheduler.call_later(0, future.set_result, None)
    return future
