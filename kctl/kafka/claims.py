"""Claim: a partition that this consumer may deliver, and how far the application is. Pure.

A claim that ends is closed, and never opened again: what an application still does with its last
message moves the position of a closed claim, which nothing commits. The loop opens, closes and
reads claims; the thread of a stream checks and moves them. Neither waits for the other: a thread
looks whether the claim is open before it moves the position, so that a position is at most as far
as what was handed out.

    consumed.offset.moves   the position passes a message
    late (default)          when the application asks for the one after it: at least once
    early                   before it is handed out, as in Java: a crash may lose it
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

from kctl.kafka.rebalance import Lease
from kctl.store.consumer_znodes import ConsumedPartition


class OffsetMoves(StrEnum):
    """The values of `consumed.offset.moves`."""

    LATE = "late"
    EARLY = "early"


class Claim:
    """One ownership of one partition by one stream."""

    __slots__ = ("committed", "is_open", "lease", "partition", "position", "thread")

    def __init__(
        self, partition: ConsumedPartition, thread: int, lease: Lease, committed: int | None
    ) -> None:
        self.partition = partition
        self.thread = thread
        self.lease = lease
        self.is_open = True
        # The offset that the group has committed; None: none.
        self.committed = committed
        # The offset to commit: that after the last consumed message; None: nothing to commit.
        self.position = committed

    def may_deliver(self, now_ms: int) -> bool:
        """Return whether the partition is surely this consumer's at this moment."""
        return self.is_open and self.lease.is_held(now_ms)

    def uncommitted(self) -> int | None:
        """Return the position if it has moved since the last commit."""
        return None if self.position == self.committed else self.position


class Consumption:
    """What one stream has handed out; used by the stream's thread only."""

    def __init__(self, moves: OffsetMoves = OffsetMoves.LATE) -> None:
        self._is_early = moves is OffsetMoves.EARLY
        self._claim: Claim | None = None
        self._next_offset = 0

    def asked_for_next(self) -> None:
        """Note that the application is done with the message that it was handed last."""
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.position = self._next_offset

    def hand_out(self, claim: Claim, next_offset: int, now_ms: int) -> bool:
        """Return whether a message may be handed out; `next_offset` is the one after it."""
        if not claim.may_deliver(now_ms):
            return False
        if self._is_early:
            claim.position = next_offset
        else:
            self._claim, self._next_offset = claim, next_offset
        return True


class Claims:
    """The open claims of one consumer."""

    def __init__(self) -> None:
        self._open: dict[ConsumedPartition, Claim] = {}

    def __iter__(self) -> Iterator[Claim]:
        return iter(list(self._open.values()))

    def open(
        self, partition: ConsumedPartition, thread: int, lease: Lease, committed: int | None
    ) -> Claim:
        """Open a claim; RuntimeError if the partition has one."""
        if partition in self._open:
            raise RuntimeError(f"{partition} is delivered twice")
        claim = self._open[partition] = Claim(partition, thread, lease, committed)
        return claim

    def close(self, partitions: Collection[ConsumedPartition]) -> dict[ConsumedPartition, int]:
        """Close claims; return their positions that are not committed."""
        closed = [claim for it in partitions if (claim := self._open.pop(it, None)) is not None]
        for claim in closed:
            claim.is_open = False
        return {it.partition: at for it in closed if (at := it.uncommitted()) is not None}

    def uncommitted(self) -> dict[ConsumedPartition, int]:
        """Return the positions that are not committed."""
        return {
            it.partition: at for it in self._open.values() if (at := it.uncommitted()) is not None
        }

    def committed(self, offsets: Mapping[ConsumedPartition, int]) -> None:
        """Note that offsets are committed."""
        for partition, offset in offsets.items():
            if partition in self._open:
                self._open[partition].committed = offset
