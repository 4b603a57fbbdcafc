"""The queue of an asynchronous producer: messages and the time in, batches out. Pure.

Two parts, because they belong to two threads. SendQueue is where callers of `send` put messages: it
is bounded in messages and bytes, and its owner holds a lock around every call. BatchCollector
belongs to the sender, and decides when a batch is dispatched.

A batch is due when `batch_count` messages are there, or `linger_ms` after the last dispatch. Times
without messages count, so that a message never waits longer than `linger_ms`.

Without a hook, messages stay in the queue until they are due, and a sender that is behind may take
up to `take_max` at once. With a hook each message is shown to it when it is taken, and what it
returns is collected; None is shown to it when the time is over. What the sender has collected no
longer counts as queued, as in Kafka: at most one batch.

Invariants: messages leave in the order in which they came. A message is in the queue, or collected,
or dispatched. `count` and `bytes` are those of the messages in the queue.

Kafka: kafka.producer.async.{AsyncProducer, ProducerSendThread} of 0.7 to 1.1
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")
# Called with an item, or with None when the time is over; returns the items to collect.
Hook = Callable[[T | None], Sequence[T]]


class Offer(Enum):
    """What became of an item that was offered."""

    FULL = "full"
    ADDED = "added"
    # Added; the sender must look at the queue.
    WAKES = "wakes"


class SendQueue(Generic[T]):
    """A bounded queue. An item that is larger than all the bytes is taken when it is alone."""

    def __init__(
        self, *, count_max: int, bytes_max: int, batch_count: int, size_of: Callable[[T], int]
    ) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._batch_count = batch_count
        self._size_of = size_of
        self._items: list[T] = []
        self.bytes = 0

    @property
    def count(self) -> int:
        """Return the number of items in the queue."""
        return len(self._items)

    def offer(self, item: T) -> Offer:
        """Add `item`, unless the queue is full."""
        items = self._items
        size = self._size_of(item)
        count = len(items)
        if count and (count >= self._count_max or self.bytes + size > self._bytes_max):
            return Offer.FULL
        items.append(item)
        self.bytes += size
        # The first item starts the sender's timer, and a full batch is due at once.
        return Offer.WAKES if not count or count + 1 == self._batch_count else Offer.ADDED

    def take(self, count_max: int) -> list[T]:
        """Remove and return the oldest items, at most `count_max`."""
        items = self._items
        if len(items) <= count_max:
            self._items, self.bytes = [], 0
            return items
        taken = items[:count_max]
        del items[:count_max]
        self.bytes -= sum(map(self._size_of, taken))
        return taken


class BatchCollector(Generic[T]):
    """The sender's side: how many items to take now, and when to dispatch."""

    def __init__(
        self,
        *,
        linger_ms: int,
        batch_count: int,
        take_max: int,
        now_ms: int,
        hook: Hook[T] | None = None,
    ) -> None:
        self._linger_ms = linger_ms
        self._batch_count = batch_count
        self._take_max = max(take_max, batch_count)
        self._hook = hook
        self._dispatched_ms = now_ms
        self._collected: list[T] = []

    @property
    def collected(self) -> int:
        """Return the number of items that wait here for their dispatch."""
        return len(self._collected)

    def room(self, queued: int, now_ms: int, *, is_urgent: bool = False) -> int:
        """Return how many of `queued` items to take now; 0 means to wait until `due_ms`.

        `is_urgent` is a flush, or the end: everything is due.
        """
        if self._hook is not None:
            return max(self._batch_count - len(self._collected), 0)
        if queued >= self._batch_count or is_urgent or self._is_due(now_ms):
            return self._take_max
        return 0

    def due_ms(self, queued: int) -> int | None:
        """Return when to look again if nothing is offered before; None: there is nothing to wait
        for."""
        if not queued and not self._collected and (self._hook is None or not self._linger_ms):
            return None
        return self._dispatched_ms + self._linger_ms

    def collect(self, items: Sequence[T], now_ms: int, *, is_urgent: bool = False) -> list[T]:
        """Add items that were taken and return the batch to dispatch, perhaps an empty one. The
        hook raises nothing."""
        is_due = self._is_due(now_ms)
        if self._hook is None:
            self._collected += items
        else:
            for item in items:
                self._collected += self._hook(item)
            if is_due and len(self._collected) < self._batch_count:
                self._collected += self._hook(None)
        if is_due:
            self._begin_again(now_ms)
        elif len(self._collected) < self._batch_count and not is_urgent:
            return []
        else:
            self._dispatched_ms = now_ms
        batch, self._collected = self._collected, []
        return batch

    def take_all(self) -> list[T]:
        """Remove and return what was collected, for an end that sends nothing more."""
        left, self._collected = self._collected, []
        return left

    def _is_due(self, now_ms: int) -> bool:
        return now_ms >= self._dispatched_ms + self._linger_ms

    def _begin_again(self, now_ms: int) -> None:
        """Count the time from the last tick: an idle queue ticks, too."""
        if self._linger_ms:
            self._dispatched_ms = now_ms - (now_ms - self._dispatched_ms) % self._linger_ms
        else:
            self._dispatched_ms = now_ms
