"""How much work a turn of the loop does, as a number that no clock and no other load changes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# What the longest turn of about 10 ms does on a machine of 2026.
CALLS_PER_TURN_MAX = 30_000


class CallCount:
    """The calls of functions, of Python and of C, while `counted_calls` runs."""

    def __init__(self) -> None:
        self.calls = 0

    def _count(self, _frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


@contextmanager
def counted_calls() -> Iterator[CallCount]:
    """Count the calls of the block. Each resumption of a generator is one, each comparison by an
    operator none."""
    count = CallCount()
    sys.setprofile(count._count)
    try:
        yield count
    finally:
        sys.setprofile(None)


def calls_of_longest_turn(turn: Callable[[], bool], begin: Callable[[], object]) -> int:
    """Return the calls of the turn with the most: `begin()`, or one of the `turn()`s after it,
    until one finds nothing to do."""
    longest = 0
    with counted_calls() as count:
        begin()
    longest = count.calls
    is_busy = True
    while is_busy:
        with counted_calls() as count:
            is_busy = turn()
        longest = max(longest, count.calls)
    return longest
