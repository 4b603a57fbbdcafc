"""in_turns: work with many elements, done in parts, with turns of the loop for others in between.

The work is a generator: it yields wherever others may have a turn, and returns its result. What it
read before a `yield` may have changed behind it. Work that never yields is done at once, in the
caller's stack.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from kctl.runtime.future import sleep
from kctl.runtime.scheduler import Scheduler

T = TypeVar("T")
Work = Generator[None, None, T]


def in_turns(scheduler: Scheduler, work: Work[T], on_done: Callable[[T], object]) -> None:
    """Do the next part of `work`, later the others; `on_done(result)` after the last."""
    try:
        next(work)
    except StopIteration as stop:
        on_done(stop.value)
    else:
        # By a timer, for the loop serves its descriptors before those.
        scheduler.call_later(0, in_turns, scheduler, work, on_done)


async def done_in_turns(scheduler: Scheduler, work: Work[T]) -> T:
    """The result of `work`; what it raises after the first `yield` is raised here, too."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result
        await sleep(scheduler, 0)


def at_once(work: Work[T]) -> T:
    """The result of `work`, with no turn for anybody."""
    try:
        while True:
            next(work)
    except StopIteration as stop:
        result: T = stop.value
        return result
