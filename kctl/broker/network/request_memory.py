"""RequestMemory: the memory budget that all requests of a broker share.

Connections are charged with the bytes they hold, from a request's first byte to its response. Small
requests are always accepted: a peer that never finishes a request must not block the others. A
larger one begins or grows while there is room; otherwise its connection waits in line and is not
read. Three rules ensure that connections that send make progress:

- A quarter of the budget is reserved for medium requests, of at most MEDIUM_BYTES_MAX: stalled
  large ones cannot fill it.
- While there is no room, one connection, the finisher, may grow to its end, or all might wait for
  each other. The total is therefore at most the budget and one request.
- While connections wait in line, those that are read must send PROGRESS_BYTES_MIN in PROGRESS_MS;
  those that do not are closed, all in the same sweep. A finisher that has sent nothing in LOOK_MS,
  although it has waited long enough to have data in transit, is closed as well.

Small requests (SMALL_FRAME_MAX) that are not complete have a limit of their own, as 10,000 of them
are 320 MiB: over UNFINISHED_SMALL_BYTES_MAX the connections that began theirs first are closed.

Invariants: the finisher is not in line; a connection for whose request there is room, or that could
become the finisher, leaves the line in the loop's next turn.

Kafka 2.7: org.apache.kafka.common.memory.SimpleMemoryPool; KIP-72
"""

from collections import OrderedDict
from typing import Final, Protocol

from kctl.broker.network.counters import NetworkCounters
from kctl.protocol.framing import SMALL_FRAME_MAX
from kctl.runtime.scheduler import Scheduler, Timer
from kctl.runtime.turns import alone_in_turns
from kctl.work import Work

MEDIUM_BYTES_MAX: Final = 1024 * 1024
# The fraction of the budget that is reserved for medium requests: one in this many parts.
RESERVE_DIVISOR: Final = 4
# Of small requests that have begun and are not complete, over all connections.
UNFINISHED_SMALL_BYTES_MAX: Final = 32 * 1024 * 1024
PROGRESS_MS: Final = 1_000
PROGRESS_BYTES_MIN: Final = 64 * 1024
LOOK_MS: Final = 100
# Connections without progress that are closed in one turn.
EVICTED_PER_TURN: Final = 64


class Holder(Protocol):
    """The view of a connection that RequestMemory needs."""

    @property
    def announced_bytes(self) -> int:
        """Return the size of the request being received, about to begin, or awaiting a
        response."""
        ...

    @property
    def received_bytes(self) -> int:
        """Return the bytes of that request that have arrived."""
        ...

    @property
    def unfinished_small_bytes(self) -> int:
        """Return the bytes held of a small request that is not complete."""
        ...

    @property
    def has_unanswered_request(self) -> bool:
        """Return whether a complete request awaits its response."""
        ...

    def resume(self) -> None:
        """Continue; the connection may request a grant again."""
        ...

    def evict(self, reason: str) -> None:
        """Close the connection and log `reason`."""
        ...


class RequestMemory:
    """The memory budget of a broker's requests."""

    def __init__(self, scheduler: Scheduler, counters: NetworkCounters, bytes_max: int) -> None:
        self._scheduler = scheduler
        self._counters = counters
        self._bytes_max = bytes_max
        self._unreserved_bytes = _unreserved(bytes_max)
        # Waiting connections in order of arrival -> their number. Medium requests have their own
        # line.
        self._waiting: OrderedDict[Holder, int] = OrderedDict()
        self._waiting_medium: OrderedDict[Holder, int] = OrderedDict()
        self._arrivals = 0
        # Bytes that medium requests hold, from their first byte to their response.
        self._medium_held: dict[Holder, int] = {}
        self._medium_bytes = 0
        # Bytes held of small requests that are not complete, in the order in which they began.
        self._unfinished_small: OrderedDict[Holder, int] = OrderedDict()
        self._unfinished_small_bytes = 0
        self._finisher: Holder | None = None
        # The connection that is just being resumed from the line.
        self._resumed: Holder | None = None
        self._look_timer: Timer | None = None
        # Connections with an incomplete request -> bytes received at the last sweep, -1 before it.
        self._receiving: dict[Holder, int] = {}
        self._sweep_timer: Timer | None = None

    @property
    def bytes_max(self) -> int:
        """Return the limit; assign a new one at any time."""
        return self._bytes_max

    @bytes_max.setter
    def bytes_max(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._unreserved_bytes = _unreserved(bytes_max)
        self._resume_next()

    @property
    def waiting_count(self) -> int:
        """Return the number of connections in line."""
        return len(self._waiting) + len(self._waiting_medium)

    def is_short(self) -> bool:
        """Return whether medium and large requests must request a `grant`."""
        return self._counters.queued_request_bytes >= self._unreserved_bytes

    def grant(self, holder: Holder) -> bool:
        """Return whether a request may begin or grow although memory is short.

        If not, its connection is resumed when it may request again.
        """
        is_medium = _is_medium(holder)
        if self._has_room(is_medium=is_medium) or self._finisher is holder:
            self._leave_line(holder)
            return True
        if self._finisher is None:
            self._leave_line(holder)
            self._finisher = holder
            # Data that a waiting connection has sent meanwhile is available at once.
            self._look_later(holder, LOOK_MS if self._resumed is holder else PROGRESS_MS)
            return True
        line = self._waiting_medium if is_medium else self._waiting
        if holder not in line:
            self._counters.budget_waits += 1
            self._arrivals += 1
            line[holder] = self._arrivals
            if self._sweep_timer is None:
                self._sweep_later()
        return False

    def charge(self, holder: Holder, change: int) -> None:
        """Count `change` more bytes for a connection."""
        self._counters.queued_request_bytes += change
        self._count_medium(holder, change)
        self._count_unfinished_small(holder)
        if holder.received_bytes and not holder.has_unanswered_request:
            self._receiving.setdefault(holder, -1)
        else:
            self._receiving.pop(holder, None)
        if change < 0:
            # A buffer may be larger than the request in it: only its response counts.
            if holder is self._finisher and not holder.has_unanswered_request:
                self._dismiss_finisher()
            if self.waiting_count:
                # One at a time: the memory that it takes decides about the next.
                self._scheduler.call_soon(self._resume_next)

    def charge_small(self, change: int) -> None:
        """Count `change` more bytes of a small request that arrived whole and alone, until it has
        its response: its connection has nothing else, and is in no line. As `charge`, in a fraction
        of the time."""
        self._counters.queued_request_bytes += change
        if change < 0 and self.waiting_count:
            self._scheduler.call_soon(self._resume_next)

    def forget(self, holder: Holder) -> None:
        """Remove a closed connection."""
        self._leave_line(holder)
        self._receiving.pop(holder, None)
        if holder is self._finisher:
            self._dismiss_finisher()
            self._scheduler.call_soon(self._resume_next)

    # --- room and lines

    def _has_room(self, *, is_medium: bool) -> bool:
        if is_medium and self._medium_bytes < self._bytes_max - self._unreserved_bytes:
            return True
        return not self.is_short()

    def _count_medium(self, holder: Holder, change: int) -> None:
        """Count the bytes of medium requests."""
        held = self._medium_held.pop(holder, 0)
        if held or (holder.announced_bytes > SMALL_FRAME_MAX and _is_medium(holder)):
            left = max(held + change, 0)
            self._medium_bytes += left - held
            if left:
                self._medium_held[holder] = left

    def _count_unfinished_small(self, holder: Holder) -> None:
        held = self._unfinished_small
        size = holder.unfinished_small_bytes
        self._unfinished_small_bytes += size - held.get(holder, 0)
        if size:
            held[holder] = size
        else:
            held.pop(holder, None)
        while self._unfinished_small_bytes > UNFINISHED_SMALL_BYTES_MAX:
            first = next(iter(held))
            self._unfinished_small_bytes -= held.pop(first)
            if first.unfinished_small_bytes:
                first.evict(
                    f"unfinished small requests hold more than {UNFINISHED_SMALL_BYTES_MAX} bytes,"
                    " and this one began first"
                )

    def _is_in_line(self, holder: Holder) -> bool:
        return holder in self._waiting or holder in self._waiting_medium

    def _leave_line(self, holder: Holder) -> None:
        self._waiting.pop(holder, None)
        self._waiting_medium.pop(holder, None)

    def _resume_next(self) -> None:
        holder = self._next_in_line()
        if holder is not None:
            self._leave_line(holder)
            self._resumed = holder
            holder.resume()
            self._resumed = None
            if self.waiting_count:
                self._scheduler.call_soon(self._resume_next)

    def _next_in_line(self) -> Holder | None:
        """Return the next connection to resume: a medium request where only those have room."""
        medium = next(iter(self._waiting_medium), None)
        large = next(iter(self._waiting), None)
        if medium is None or large is None:
            first = large if medium is None else medium
        else:
            is_medium_first = self._waiting_medium[medium] < self._waiting[large]
            first = medium if is_medium_first else large
        if first is None or self._finisher is None or self._has_room(is_medium=False):
            return first
        return medium if self._has_room(is_medium=True) else None

    # --- progress

    def _dismiss_finisher(self) -> None:
        self._finisher = None
        if self._look_timer is not None:
            self._look_timer.cancel()

    def _look_later(self, holder: Holder, delay_ms: int) -> None:
        self._look_timer = self._scheduler.call_later(
            delay_ms, self._look_after, holder, holder.received_bytes
        )

    def _look_after(self, holder: Holder, seen_bytes: int) -> None:
        """Close a finisher that made no progress; the sweep closes slow connections."""
        is_still = holder.received_bytes == seen_bytes and not holder.has_unanswered_request
        if is_still and self.waiting_count:
            self._evict(holder, 0, LOOK_MS)
        else:
            self._look_later(holder, PROGRESS_MS)

    def _sweep_later(self) -> None:
        self._sweep_timer = self._scheduler.call_later(PROGRESS_MS, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        if not self.waiting_count:
            self._receiving = dict.fromkeys(self._receiving, -1)
            return
        self._sweep_later()
        alone_in_turns(self._scheduler, self._evicting())

    def _evicting(self) -> Work[None]:
        """Close the connections that make no progress, EVICTED_PER_TURN in one turn."""
        evicted = 0
        for holder, seen_bytes in list(self._receiving.items()):
            received = holder.received_bytes
            if holder not in self._receiving or self._is_in_line(holder):
                continue
            self._receiving[holder] = received
            if seen_bytes >= 0 and 0 <= received - seen_bytes < PROGRESS_BYTES_MIN:
                self._evict(holder, received - seen_bytes, PROGRESS_MS)
                evicted += 1
                if evicted % EVICTED_PER_TURN == 0:
                    yield

    def _evict(self, holder: Holder, progress: int, period_ms: int) -> None:
        holder.evict(
            f"{progress} bytes of a large request in {period_ms} ms,"
            f" while {self.waiting_count} others wait for memory"
        )


def _unreserved(bytes_max: int) -> int:
    """Return the part of the budget that large requests may use."""
    return bytes_max - bytes_max // RESERVE_DIVISOR


def _is_medium(holder: Holder) -> bool:
    return holder.announced_bytes <= MEDIUM_BYTES_MAX
