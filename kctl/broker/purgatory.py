"""Purgatory: operations that wait for a key to change or for a deadline. Pure, time passed in.

An operation is watched under each of its keys. After a change of what a key stands for,
`check(key)` tries to complete every operation under it. An operation completes exactly once: when
`try_complete` returns True, or at its deadline.

Invariants: a completed operation is under no key; the heap may hold completed operations, which are
dropped when they reach its top or when they outnumber the waiting ones.

Kafka 2.7: kafka.server.DelayedOperationPurgatory.
"""

from collections.abc import Hashable, Iterable
from heapq import heapify, heappop, heappush

# Completed operations allowed in the heap, beyond the number of waiting ones, before it is rebuilt.
HEAP_SLACK = 1000


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

    def on_complete(self) -> None:
        """Complete it: build and send the response. Called exactly once."""
        raise NotImplementedError


class Purgatory:
    """The waiting operations, by key and by deadline."""

    def __init__(self) -> None:
        # Inner dicts are ordered sets: checked in order of arrival. Read it to skip a `check`.
        self.watched: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._heap: list[tuple[int, int, DelayedOperation]] = []
        self._sequence = 0
        self._living = 0

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

    def check(self, key: Hashable) -> int:
        """Complete the operations that a change of `key` allows; return how many."""
        watchers = self.watched.get(key)
        if not watchers:
            return 0
        completed = 0
        for operation in list(watchers):
            # A reply may complete other operations; each is completed at most once.
            if not operation.is_completed and operation.try_complete():
                self._finish(operation)
                completed += 1
        return completed

    def cancel(self, operation: DelayedOperation) -> None:
        """Remove `operation` without completing it (its connection is gone)."""
        if not operation.is_completed:
            self._forget(operation)

    def expire(self, now_ms: int) -> int:
        """Complete operations past their deadline; return how many."""
        expired = 0
        while self._heap and self._heap[0][0] <= now_ms:
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
