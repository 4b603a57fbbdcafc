"""Timers of one coordinator shard: cheap to postpone, fired by the owner of the clock. Pure.

A session is extended by every heartbeat and rarely expires. A deadline that moves *later* is
therefore only noted on the timer; the heap keeps the old time, and when that comes the timer is
queued at its true deadline. Only a deadline that moves *earlier* changes the heap.

A cancelled timer leaves its heap entry, for up to five minutes if a new member waits. The entry
drops its reference to the timer at once, and thereby to the member and its metadata.

A timer that raises an error is a bug. The outcome has the error, the other timers fire, as they
belong to other groups, and the timer fires again later: without it a session would never end.

Invariants: a timer has at most one live heap entry, never later than its deadline; a dead entry
refers to no timer; timers with equal times fire in the order in which they were armed.

Kafka 2.7: kafka.server.DelayedOperationPurgatory with kafka.utils.timer.TimingWheel.
"""

import heapq
from collections.abc import Callable

from kctl.broker.coordinator.outcome import Moment, Outcome

NEVER = 2**63 - 1
# Dead heap entries kept before the heap is rebuilt without them.
DEAD_ENTRIES_MAX = 512
# Timers fired by one call of `fire_due`; the next call, due at once, continues.
FIRED_PER_CALL_MAX = 250
# When a timer that raised an error fires again: each time is logged.
RETRY_MS = 10_000


class Timer:
    """One deadline; `fire(moment, outcome)` adds its consequences to the outcome."""

    __slots__ = ("deadline_ms", "entry", "fire")

    def __init__(self, fire: Callable[[Moment, Outcome], None]) -> None:
        self.fire = fire
        # When it fires (monotonic), or NEVER.
        self.deadline_ms = NEVER
        # Its entry in the heap, if it has one.
        self.entry: _Entry | None = None

    @property
    def is_set(self) -> bool:
        """Return whether it will fire unless it is changed."""
        return self.deadline_ms != NEVER


class _Entry:
    """An entry of the heap; its timer is None once it is dead."""

    __slots__ = ("armed_ms", "timer")

    def __init__(self, armed_ms: int, timer: Timer) -> None:
        self.armed_ms = armed_ms
        self.timer: Timer | None = timer


class TimerQueue:
    """The timers of one shard."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Entry]] = []
        self._sequence = 0
        self._dead = 0

    def set(self, timer: Timer, deadline_ms: int) -> None:
        """Make `timer` fire at `deadline_ms` and at no other time."""
        timer.deadline_ms = deadline_ms
        entry = timer.entry
        if entry is None or deadline_ms < entry.armed_ms:
            self._arm(timer)

    def cancel(self, timer: Timer) -> None:
        """Prevent `timer` from firing."""
        timer.deadline_ms = NEVER
        self._disarm(timer)

    def next_ms(self) -> int:
        """Return when to call `fire_due` next, or NEVER; possibly too early, never too late."""
        return self._heap[0][0] if self._heap else NEVER

    def fire_due(self, moment: Moment, outcome: Outcome) -> None:
        """Fire due timers; one that is set to now or earlier meanwhile waits for the next call."""
        due: list[Timer] = []
        heap = self._heap
        while heap and heap[0][0] <= moment.monotonic_ms and len(due) < FIRED_PER_CALL_MAX:
            timer = heapq.heappop(heap)[2].timer
            if timer is None:
                self._dead -= 1
                continue
            timer.entry = None
            if timer.deadline_ms <= moment.monotonic_ms:
                due.append(timer)
            elif timer.deadline_ms != NEVER:
                self._arm(timer)
        for timer in due:
            # A timer that fired before it may have postponed or cancelled it.
            if timer.deadline_ms <= moment.monotonic_ms:
                timer.deadline_ms = NEVER
                try:
                    timer.fire(moment, outcome)
                except Exception as error:  # noqa: BLE001 - one timer's bug must not lose others
                    outcome.errors.append(error)
                    if not timer.is_set:
                        self.set(timer, moment.monotonic_ms + RETRY_MS)

    def _arm(self, timer: Timer) -> None:
        self._disarm(timer)
        self._sequence += 1
        entry = timer.entry = _Entry(timer.deadline_ms, timer)
        heapq.heappush(self._heap, (entry.armed_ms, self._sequence, entry))

    def _disarm(self, timer: Timer) -> None:
        if timer.entry is None:
            return
        timer.entry.timer = None
        timer.entry = None
        self._dead += 1
        if self._dead > DEAD_ENTRIES_MAX + len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2].timer is not None]
            heapq.heapify(self._heap)
            self._dead = 0
