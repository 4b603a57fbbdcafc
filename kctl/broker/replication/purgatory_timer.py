"""PurgatoryTimer: a Purgatory with a clock and a single timer for all its operations."""

from collections.abc import Hashable, Iterable

from kctl.broker.purgatory import DelayedOperation, Purgatory
from kctl.runtime.runtime import Runtime


class PurgatoryTimer(Purgatory):
    """A Purgatory that expires its operations; its timer is set for the earliest deadline."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__()
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        # When the timer fires; None: it is not set. It may fire without an expired operation, which
        # is cheaper than cancelling it whenever an operation completes early.
        self._rings_at_ms: int | None = None
        # Whether `next_turn` will be called.
        self._has_turn = False

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> None:
        """Watch `operation`; see `Purgatory.watch`."""
        super().watch(operation, keys)
        if self._rings_at_ms is None or operation.deadline_ms < self._rings_at_ms:
            self._set(operation.deadline_ms)

    def _set(self, deadline_ms: int) -> None:
        self._rings_at_ms = deadline_ms
        self._scheduler.call_at(deadline_ms, self._ring, deadline_ms)

    def _postponed(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            # By a timer: the loop serves its descriptors before its timers. Not by `call_later(0)`,
            # with which long work continues: here the units of many short turns may have been used
            # up, after which a search for cycles is not worth its time.
            self._scheduler.call_at(self._clock.monotonic_ms(), self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        self.next_turn(self._clock.monotonic_ms())

    def _ring(self, deadline_ms: int) -> None:
        if deadline_ms != self._rings_at_ms:
            return  # an earlier deadline was added meanwhile and has its own timer
        self._rings_at_ms = None
        try:
            self.expire(self._clock.monotonic_ms())
        finally:
            # After an unexpected error, too: the others still expire.
            following = self.next_deadline_ms()
            if following is not None and self._rings_at_ms is None:
                self._set(following)
