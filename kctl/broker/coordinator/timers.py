"""Timers of one coordinator shard: cheap to put off, fired by whoever owns the clock. Pure.

A session is extended by every heartbeat and hardly ever expires, so a deadline that moves *later*
is only noted on the timer; the heap keeps the old instant, and when that comes the timer is put
back at its true deadline. Only a deadline that moves *earlier* touches the heap.

Invariants: a timer has at most one live heap entry (`armed_ms`, `sequence` tell which), never
later than its deadline; equal instants fire in the order in which they were armed.

Kafka 2.7: kafka.server.DelayedOperationPurgatory with kafka.utils.timer.TimingWheel.
"""

import heapq
from collections.abc import Callable

from kctl.broker.coordinator.outcome import Moment, Outcome

NEVER = 2**63 - 1
# Dead heap entries kept before the heap is rebuilt without them.
DEAD_ENTRIES_MAX = 512


class Timer:
    """One deadline; `fire(moment, outcome)` adds to the outcome what its passing entails."""

    __slots__ = ("armed_ms", "deadline_ms", "fire", "sequence")

    def __init__(self, fire: Callable[[Moment, Outcome], None]) -> None:
        self.fire = fire
        # When it is to fire (monotonic), or NEVER.
        self.deadline_ms = NEVER
        # Where it is in the heap, or NEVER if it is not.
        self.armed_ms = NEVER
        self.sequence = 0

    @property
    def is_set(self) -> bool:
        """Whether it will fire, if nothing happens."""
        return self.deadline_ms != NEVER


class TimerQueue:
    """The timers of one shard."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._dead = 0

    def set(self, timer: Timer, deadline_ms: int) -> None:
        """Let `timer` fire at `deadline_ms` and at no other time."""
        timer.deadline_ms = deadline_ms
        if deadline_ms < timer.armed_ms:
            self._arm(timer)

    def cancel(self, timer: Timer) -> None:
        """Let it not fire."""
        timer.deadline_ms = NEVER
        if timer.armed_ms != NEVER:
            timer.armed_ms = NEVER
            self._note_dead()

    def next_ms(self) -> int:
        """When to look again, or NEVER; maybe too early, never too late."""
        return self._heap[0][0] if self._heap else NEVER

    def fire_due(self, moment: Moment, outcome: Outcome) -> None:
        """Fire what is due; a timer set to now or earlier meanwhile waits for the next call."""
        due: list[Timer] = []
        heap = self._heap
        while heap and heap[0][0] <= moment.monotonic_ms:
            armed_ms, sequence, timer = heapq.heappop(heap)
            if timer.armed_ms != armed_ms or timer.sequence != sequence:
                self._dead -= 1
                continue
            timer.armed_ms = NEVER
            if timer.deadline_ms <= moment.monotonic_ms:
                due.append(timer)
            elif timer.deadline_ms != NEVER:
                self._arm(timer)
        for timer in due:
            # What fired before it may have put it off or cancelled it.
            if timer.deadline_ms <= moment.monotonic_ms:
                timer.deadline_ms = NEVER
                timer.fire(moment, outcome)

    def _arm(self, timer: Timer) -> None:
        if timer.armed_ms != NEVER:
            self._note_dead()
        self._sequence += 1
        timer.armed_ms = timer.deadline_ms
        timer.sequence = self._sequence
        heapq.heappush(self._heap, (timer.armed_ms, self._sequence, timer))

    def _note_dead(self) -> None:
        self._dead += 1
        if self._dead > DEAD_ENTRIES_MAX + len(self._heap) // 2:
            self._heap = [e for e in self._heap if e[2].armed_ms == e[0] and e[2].sequence == e[1]]
            heapq.heapify(self._heap)
            self._dead = 0
