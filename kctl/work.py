"""Work with many elements that is done in parts, so that the loop can serve others in between.

There are two forms. `Work` is a generator: it yields wherever others may run and returns its
result. `Pace` is for coroutines: they call `spend` for each element, and wait a turn whenever they
have spent enough. In both a value that was read before the turn may have changed after it.

This module does not depend on the loop: `kctl.runtime.turns` drives work on it.
"""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
KeyT = TypeVar("KeyT")
StepT = TypeVar("StepT")


class Claim(bytes):
    """An empty step, after which work holds more than HELD_BYTES_MAX until it ends.

    A driver with a memory bound (`kctl.runtime.work_queue`) resumes such work only while no other
    work holds as much. Empty bytes, so that a stream of chunks may carry it.
    """


EXCLUSIVE = Claim()
# Bytes that work may hold of a single object (a window, a record) without a claim.
HELD_BYTES_MAX = 2 * 1024 * 1024

Work = Generator[None, None, T]
# Work that may yield EXCLUSIVE, and otherwise None.
ClaimingWork = Generator[Claim | None, None, T]


def parts(items: Sequence[T], count_max: int) -> Iterator[Sequence[T]]:
    """Yield `items` in order, at most `count_max` at a time."""
    for start in range(0, len(items), max(count_max, 1)):
        yield items[start : start + count_max]


def nested_parts(
    groups: Iterable[tuple[KeyT, Sequence[T]]], units_max: int
) -> Iterator[tuple[KeyT, Sequence[T]] | None]:
    """Yield (key, some of its items) of each group, in order, and None where the caller gives
    others a turn. A group and an item are a unit each, so groups without items take turns, too;
    between two turns there are at most `units_max` units and one group.
    """
    units = 0
    for key, items in groups:
        if units >= units_max:
            yield None
            units = 0
        units += 1
        for part in parts(items, units_max):
            if units + len(part) > units_max:
                yield None
                units = 0
            units += len(part)
            yield key, part


def at_once(work: ClaimingWork[T]) -> T:
    """Return the result of `work`, without giving others a turn."""
    try:
        while True:
            next(work)
    except StopIteration as stop:
        result: T = stop.value
        return result


def while_wanted(
    work: Generator[StepT, None, T], is_wanted: Callable[[], bool]
) -> Generator[StepT, None, T | None]:
    """Do `work` and return its result, or None if it is no longer wanted after one of its turns."""
    while True:
        try:
            step = next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result
        yield step
        if not is_wanted():
            work.close()
            return None


async def finished(work: Work[T], turn: Callable[[], Awaitable[None]]) -> T:
    """Return the result of `work`, awaiting `turn()` at each of its yields."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: T = stop.value
            return result
        await turn()


class Pace:
    """Counts the work of a coroutine, or of several that run in sequence.

    A unit is about 5 microseconds.

    Invariant: there are at most UNITS_PER_TURN units and one call of `spend` between two turns.
    """

    UNITS_PER_TURN = 1_000
    # Calls of `spend` in a turn of `over`: each waits, so one for each element would be a tenth of
    # the work.
    PARTS_PER_TURN = 10

    def __init__(self, turn: Callable[[], Awaitable[None]]) -> None:
        """Await `turn()` to give others a turn of the loop."""
        self._turn = turn
        self._left = self.UNITS_PER_TURN

    async def spend(self, units: int = 1) -> None:
        """Count `units` of work; wait for the next turn if this one is used up."""
        self._left -= units
        if self._left < 0:
            self._left = self.UNITS_PER_TURN
            await self._turn()

    async def over(self, items: Iterable[T]) -> AsyncIterator[Sequence[T]]:
        """Yield `items` in parts, a unit for each item; the last one may be followed by a turn."""
        remaining = iter(items)
        count_max = max(1, self.UNITS_PER_TURN // self.PARTS_PER_TURN)
        while part := tuple(islice(remaining, count_max)):
            await self.spend(len(part))
            yield part
