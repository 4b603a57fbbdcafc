"""Purgatory: operations that wait for a key to change or for a deadline. Pure, time passed in.

An operation is watched under each of its keys. After a change of what a key stands for,
`check(key)` tries to complete every operation under it. An operation completes exactly once: when
`try_complete` returns True, or at its deadline.

Thousands of operations may wait for the same key or the same deadline, and each that completes may
read hundreds of partitions. So `check` and `expire` do at most UNITS_PER_TURN of work between two
calls of `next_turn`; what is left waits in `_walks`, or in the heap, for the next one.

Invariants: a completed operation is under no key; every change of a key is followed by an attempt
to complete each operation that was watched under it, in this turn or a later one; the heap may hold
completed operations, which are dropped when they reach its top or when they outnumber the waiting
ones.

Kafka 2.7: kafka.server.DelayedOperationPurgatory.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush
from typing import Final

# Completed operations allowed in the heap, beyond the number of waiting ones, before it is rebuilt.
HEAP_SLACK: Final = 1000
# Work of one turn; a unit is 5 to 10 microseconds: an attempt, or a key of a completed operation.
UNITS_PER_TURN: Final = 500
# What a completion costs besides, mostly the response.
UNITS_PER_COMPLETION: Final = 2


class DelayedOperation:
    """A waiting operation; subclasses define when it completes and what happens then."""

    __slots__ = ("deadline_ms", "is_completed", "keys")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.is_completed = False
        self.keys: tuple[Hashable, ...] = ()

    def try_complete(self) -> bool:
        """Return whether the operation can complete now; must not change anything."""
        raise NotImplementedError

    def try_complete_after(self, _key: Hashable) -> bool:
        """Return the same after a change of one key, all others being known."""
        return self.try_complete()

    def on_complete(self) -> None:
        """Complete it: build and send the response. Called exactly once."""
        raise NotImplementedError


class _Walk:
    """The operations under one key that have not been examined after its change."""

    __slots__ = ("has_changed_again", "operations")

    def __init__(self, operations: Iterable[DelayedOperation]) -> None:
        self.operations = deque(operations)
        # The key changed after some of them had been examined: all must be examined again.
        self.has_changed_again = False


class Purgatory:
    """The waiting operations, by key and by deadline."""

    def __init__(self) -> None:
        # Inner dicts are ordered sets: checked in order of arrival. Read it to skip a `check`.
        self.watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._heap: list[tuple[int, int, DelayedOperation]] = []
        self._sequence = 0
        self._living = 0
        # Units of this turn that are left, and the keys whose operations wait for the next one.
        self._units_left = UNITS_PER_TURN
        self._walks: OrderedDict[Hashable, _Walk] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of waiting operations."""
        return self._living

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Iterable[Hashable]
    ) -> bool:
        """Complete `operation` now if possible and return True; otherwise watch it under `keys`."""
        if operation.try_complete():
            operation.is_completed = True
            operation.on_complete()
            return True
        self.watch(operation, keys)
        return False

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Watch `operation`, which the caller knows cannot complete now."""
        # A request may name a partition twice.
        operation.keys = tuple(dict.fromkeys(keys))
        for key in operation.keys:
            self.watched.setdefault(key, {})[operation] = None
        self._sequence += 1
        heappush(self._heap, (operation.deadline_ms, self._sequence, operation))
        self._living += 1

    def watch_more(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Watch `operation`, which waits already, under more keys; complete it and return True if
        one of them allows it."""
        added: list[Hashable] = []
        is_complete = False
        for key in keys:
            is_complete = operation.try_complete_after(key)
            if is_complete:
                break
            watchers = self.watched.setdefault(key, {})
            if operation not in watchers:
                watchers[operation] = None
                added.append(key)
        operation.keys += tuple(added)
        if is_complete:
            self._finish(operation)
        return is_complete

    def check(self, key: Hashable) -> int:
        """Complete the operations that a change of `key` allows; return how many completed in this
        turn."""
        watchers = self.watched.get(key)
        if not watchers:
            return 0
        walk = self._walks.get(key)
        if walk is not None:
            walk.has_changed_again = True
            return 0
        if self._units_left > 0 and not self._walks:
            if len(watchers) == 1:
                # As for nearly all.
                return self._examine(next(iter(watchers)), key)
            walk = _Walk(watchers)
            completed = self._continue(key, walk)
            if not walk.operations:
                return completed
        else:
            walk, completed = _Walk(watchers), 0
        # A completion may have changed the key again: that walk has all that is left of this one,
        # and what this one examined before.
        self._walks.setdefault(key, walk)
        self._postponed()
        return completed

    def next_turn(self, now_ms: int) -> None:
        """Continue what the last turn has left: first what has expired, then what may complete."""
        self._units_left = UNITS_PER_TURN
        self.expire(now_ms)
        while self._walks and self._units_left > 0:
            key, walk = next(iter(self._walks.items()))
            self._continue(key, walk)
            if walk.operations:
                break
            del self._walks[key]
            if walk.has_changed_again and key in self.watched:
                # Behind the others.
                self._walks[key] = _Walk(self.watched[key])
        if self._walks:
            self._postponed()

    def _continue(self, key: Hashable, walk: _Walk) -> int:
        completed = 0
        while walk.operations and self._units_left > 0:
            # A reply may complete other operations; each is completed at most once.
            completed += self._examine(walk.operations.popleft(), key)
        return completed

    def _examine(self, operation: DelayedOperation, key: Hashable) -> int:
        if operation.is_completed:
            return 0
        self._units_left -= 1
        if self._units_left <= 0:
            self._postponed()
        if not operation.try_complete_after(key):
            return 0
        self._finish(operation)
        return 1

    def _postponed(self) -> None:
        """Arrange that `next_turn` is called, for a subclass that has a clock."""

    def cancel(self, operation: DelayedOperation) -> None:
        """Remove `operation` without completing it (its connection is gone)."""
        if not operation.is_completed:
            self._forget(operation)

    def expire(self, now_ms: int) -> int:
        """Complete operations past their deadline, those that this turn has room for; return how
        many."""
        expired = 0
        while self._heap and self._heap[0][0] <= now_ms and self._units_left > 0:
            operation = heappop(self._heap)[2]
            if not operation.is_completed:
                self._finish(operation)
                expired += 1
        return expired

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` must be called next, or None."""
        heap = self._heap
        if len(heap) > 2 * self._living + HEAP_SLACK:
            self._heap = heap = [entry for entry in heap if not entry[2].is_completed]
            heapify(heap)
        while heap and heap[0][2].is_completed:
            heappop(heap)
        return heap[0][0] if heap else None

    def _finish(self, operation: DelayedOperation) -> None:
        self._units_left -= UNITS_PER_COMPLETION + len(operation.keys)
        if self._units_left <= 0:
            self._postponed()
        self._forget(operation)
        operation.on_complete()

    def _forget(self, operation: DelayedOperation) -> None:
        operation.is_completed = True
        self._living -= 1
        for key in operation.keys:
            watchers = self.watched[key]
            del watchers[operation]
            if not watchers:
                del self.watched[key]
