"""RequestMemory: what all requests of a broker may take of memory together.

Connections charge it with the bytes they hold, from a request's first byte to its answer. While it
is short, small requests are taken all the same: a peer that never finishes what it began must not
keep everybody else from speaking. But a large one neither begins nor grows, and its connection
waits in line and reads nothing; except for one, the finisher, whose request may grow to its end,
or all might wait for each other. So no more is held than the limit and one request.

A finisher for whom others wait must send PROGRESS_BYTES_MIN in PROGRESS_MS or is closed: many who
send little or nothing (slowloris) can delay large requests, and no more.

Invariants: the finisher is not in line; nobody waits in line while there is memory, or while there
is no finisher, longer than until the loop's next turn.

Kafka 2.7: org.apache.kafka.common.memory.SimpleMemoryPool; KIP-72
"""

from typing import Protocol

from kctl.broker.network.counters import NetworkCounters
from kctl.runtime.scheduler import Scheduler, Timer

PROGRESS_MS = 10_000
PROGRESS_BYTES_MIN = 1024 * 1024


class Holder(Protocol):
    """A connection, as far as memory goes."""

    @property
    def received_bytes(self) -> int:
        """Bytes of the large request that is on its way."""
        ...

    @property
    def has_unanswered_request(self) -> bool:
        """Whether a whole request waits for its answer."""
        ...

    def resume(self) -> None:
        """Go on; it may ask for a grant again."""
        ...

    def evict(self, words: str) -> None:
        """Close it, and say why."""
        ...


class RequestMemory:
    """A budget, the line of those who wait for it, and the finisher."""

    def __init__(self, scheduler: Scheduler, counters: NetworkCounters, bytes_max: int) -> None:
        self._scheduler = scheduler
        self._counters = counters
        self._bytes_max = bytes_max
        # In the order in which they came.
        self._waiting: dict[Holder, None] = {}
        self._finisher: Holder | None = None
        # What the finisher had received when it was last looked at, and when it is next.
        self._seen_bytes = 0
        self._timer: Timer | None = None

    @property
    def bytes_max(self) -> int:
        """The limit; assign a new one at any time."""
        return self._bytes_max

    @bytes_max.setter
    def bytes_max(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._resume_next()

    @property
    def waiting_count(self) -> int:
        """Connections in line."""
        return len(self._waiting)

    def is_short(self) -> bool:
        """Whether large requests have to ask for a `grant`."""
        return self._counters.queued_request_bytes >= self._bytes_max

    def grant(self, holder: Holder) -> bool:
        """Whether a large request may begin or grow although memory is short; if not, its
        connection is resumed when it may ask again."""
        if self._finisher is None:
            self._waiting.pop(holder, None)
            self._finisher = holder
            self._watch(holder)
        if self._finisher is holder:
            return True
        if holder not in self._waiting:
            self._counters.budget_waits += 1
            self._waiting[holder] = None
        return False

    def charge(self, holder: Holder, change: int) -> None:
        """A connection holds `change` bytes more than before."""
        self._counters.queued_request_bytes += change
        if change < 0:
            # A buffer may be larger than the request in it: only its answer counts.
            if holder is self._finisher and not holder.has_unanswered_request:
                self._dismiss_finisher()
            if self._waiting:
                # One at a time: what it takes in decides about the next.
                self._scheduler.call_soon(self._resume_next)

    def forget(self, holder: Holder) -> None:
        """A connection is gone."""
        self._waiting.pop(holder, None)
        if holder is self._finisher:
            self._dismiss_finisher()
            self._scheduler.call_soon(self._resume_next)

    def _dismiss_finisher(self) -> None:
        self._finisher = None
        if self._timer is not None:
            self._timer.cancel()

    def _resume_next(self) -> None:
        waiting = self._waiting
        if waiting and (self._finisher is None or not self.is_short()):
            holder = next(iter(waiting))
            del waiting[holder]
            holder.resume()
            if waiting:
                self._scheduler.call_soon(self._resume_next)

    def _watch(self, holder: Holder) -> None:
        self._seen_bytes = holder.received_bytes
        self._timer = self._scheduler.call_later(PROGRESS_MS, self._look_after, holder)

    def _look_after(self, holder: Holder) -> None:
        progress = holder.received_bytes - self._seen_bytes
        is_slow = progress < PROGRESS_BYTES_MIN and not holder.has_unanswered_request
        if is_slow and self._waiting:
            holder.evict(
                f"{progress} bytes of a large request in {PROGRESS_MS} ms,"
                f" while {len(self._waiting)} others wait for memory"
            )
        else:
            self._watch(holder)
