"""Replica: how far a follower has fetched and when it last was caught up. Pure.

Kafka 2.7: kafka.cluster.Replica; KIP-107 (log start offset), KAFKA-7128 (epoch start).
"""

from typing import Final

from kctl.lazy_dataclass import dataclass

UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True)
class Replica:
    """A follower as its leader sees it."""

    broker_id: int
    # The offset of the follower's last fetch, where its log ends. Exclusive.
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    # The leader's log end offset and the time at the follower's last fetch, or when the leader
    # began to track it.
    leader_end_offset_at_last_fetch: int = 0
    last_fetch_ms: int = 0
    # The last time t for which the follower has reached the end that the leader's log had at t.
    # Members of the ISR count as caught up when a leader begins.
    last_caught_up_ms: int = 0

    def update_fetch_state(
        self,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
    ) -> None:
        """Record a fetch from `fetch_offset`, below which the follower has everything."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_offset_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.leader_end_offset_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms

    def forget(self, now_ms: int) -> None:
        """Forget how far the follower is, until its next fetch."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.leader_end_offset_at_last_fetch = 0
        self.last_fetch_ms = now_ms

    def is_caught_up(self, *, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower may stay in the ISR (`replica.lag.time.max.ms`)."""
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= max_lag_ms
        )
