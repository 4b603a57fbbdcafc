"""Watches moving replicas until all are in place: bytes, rates, and the end of kctl's throttle.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (`--verify`, which looks once)
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kctl.admin.reassignment_job import remove_throttle
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.reassignment import MoveProgress
    from kctl.admin.reassignment_cluster import ReassignmentCluster
    from kctl.admin.replication_throttle import Restored
    from kctl.model import TopicPartition


class WatchedMove:
    """A partition since it was first seen on the move."""

    def __init__(self, first: "MoveProgress", now_ms: int) -> None:
        self.now = self._first = first
        self._first_ms = self._now_ms = now_ms
        # Whether it has disappeared from the moves in progress.
        self.is_over = False
        self.looks = 0

    def see(self, progress: "MoveProgress", now_ms: int) -> None:
        """Take its progress at monotonic time `now_ms`."""
        self.now, self._now_ms = progress, now_ms
        self.looks += 1

    @property
    def done_bytes(self) -> int:
        """Return the bytes copied so far, which are all of them at the end."""
        return self.now.total_bytes if self.is_over else self.now.done_bytes

    @property
    def rate(self) -> int:
        """Return bytes per second since the watch began."""
        elapsed_ms = self._now_ms - self._first_ms
        copied = self.now.done_bytes - self._first.done_bytes
        return max(0, copied * 1000 // elapsed_ms) if elapsed_ms else 0

    @property
    def left_ms(self) -> int | None:
        """Return the expected time to the end; None if it is over or the rate is unknown."""
        if self.is_over or self.rate <= 0:
            return None
        return (self.now.total_bytes - self.done_bytes) * 1000 // self.rate


async def watch_moves(
    cluster: "ReassignmentCluster",
    interval_ms: int,
    on_look: Callable[[Sequence[WatchedMove]], object],
    *,
    once: bool = False,
) -> "list[Restored] | None":
    """Look at the moves every `interval_ms` until nothing moves; then remove kctl's throttle.

    Moves are those between brokers and between log directories. `on_look` is called with every move
    seen so far, ordered by partition. With `once`, two looks give the rates, and the throttle
    stays. Return what `remove_throttle` returns, or None with `once`.
    """
    assert cluster.admin is not None, "progress is available by requests only"
    clock = cluster.admin.router.runtime.clock
    watched: dict[tuple[TopicPartition, int | None], WatchedMove] = {}
    while True:
        moving = await cluster.admin.reassignments.progress()
        now_ms = clock.monotonic_ms()
        for it in moving:
            watched.setdefault(it.key, WatchedMove(it, now_ms)).see(it, now_ms)
        for key in watched.keys() - {it.key for it in moving}:
            watched[key].is_over = True
        on_look([watched[key] for key in sorted(watched, key=_place)])
        looks = max((it.looks for it in watched.values()), default=0)
        if not moving or (once and looks > 1):
            return None if once else await remove_throttle(cluster)
        await sleep(cluster.scheduler, interval_ms)


def _place(key: "tuple[TopicPartition, int | None]") -> "tuple[TopicPartition, int]":
    partition, broker_id = key
    return partition, -1 if broker_id is None else broker_id
