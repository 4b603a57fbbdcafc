"""LinkedPartition: a partition led here that is a copy of a partition of another cluster.

    WAITING -- leader known, epoch raised --> FOLLOWING -- would lose or mix --> STOPPED
       ^----------- another leader -------------+                                  |
       +------ mirror.resume=N:stop -----------------------------------------------+
       +------ all replicas are empty -- RESTARTING <-- mirror.resume=N:restart ---+
    any -- mirror.state=failover --> PREPARING -- epoch raised, markers committed --> READY

A partition that is ready and whose link says `following` again follows as before. What cannot be
done now is tried again: the partition waits, and says why.
"""

import json
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.broker.replication.partition import Partition
from kctl.configs.link_configs import Link
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.broker.links.link_loop import LinkLoop
    from kctl.broker.links.source_cluster import SourceLeader

# Of what a partition waits for, in `mirror.status.N`.
DETAIL_BYTES_MAX = 400


class PartitionPhase(StrEnum):
    """What the leader of a linked partition does."""

    WAITING = "waiting"
    FOLLOWING = "following"
    STOPPED = "stopped"
    RESTARTING = "restarting"
    PREPARING = "preparing"
    READY = "ready"


_ACTIVE = {PartitionPhase.WAITING, PartitionPhase.RESTARTING, PartitionPhase.PREPARING}
NEXT_PHASES = {
    PartitionPhase.WAITING: {*_ACTIVE, PartitionPhase.FOLLOWING},
    # Of another leader, or of the same one with the log of another directory.
    PartitionPhase.FOLLOWING: {*_ACTIVE, PartitionPhase.FOLLOWING, PartitionPhase.STOPPED},
    PartitionPhase.STOPPED: _ACTIVE,
    PartitionPhase.RESTARTING: {PartitionPhase.WAITING},
    PartitionPhase.PREPARING: {PartitionPhase.WAITING, PartitionPhase.READY},
    PartitionPhase.READY: {
        PartitionPhase.WAITING,
        PartitionPhase.FOLLOWING,
        PartitionPhase.RESTARTING,
    },
}


@dataclass(slots=True)
class LinkedPartition:
    """A partition led here that is a copy."""

    partition: Partition
    link: Link
    phase: PartitionPhase = PartitionPhase.WAITING
    detail: str = ""
    # The source's high watermark; -1: unknown.
    source_end: int = -1
    # Monotonic: when the copy had all that the source had, as of the last look.
    caught_up_ms: int = 0
    # At the last response.
    had_all: bool = False
    # The last records that were removed because the source does not have them: (before, after).
    truncated: tuple[int, int] | None = None
    # Where it is fetched from.
    loop: "LinkLoop | None" = None
    followed: "SourceLeader | None" = None
    # The leader epoch that a failover began; -1: none yet.
    own_epoch: int = -1
    # A coroutine raises its epoch or prepares it.
    is_busy: bool = False

    def move_to(self, phase: PartitionPhase, detail: str = "") -> None:
        """Change the phase, for the reason `detail`. Raise RuntimeError if NEXT_PHASES has no such
        move."""
        if phase not in NEXT_PHASES[self.phase]:
            raise RuntimeError(f"a copy cannot move from {self.phase.name} to {phase.name}")
        self.phase, self.detail = phase, detail

    def lag(self) -> int | None:
        """Return how many offsets of the source are not copied; None if its end is unknown."""
        log = self.partition.log
        if self.source_end < 0 or log is None:
            return None
        return max(self.source_end - log.log_end_offset, 0)

    def lag_ms(self, now_ms: int) -> int:
        """Return how long ago the copy had all that the source had; 0: it has."""
        return 0 if self.is_caught_up() else max(now_ms - self.caught_up_ms, 0)

    def is_caught_up(self) -> bool:
        """Return whether the copy follows its source, and nothing is left to copy."""
        return self.phase is PartitionPhase.FOLLOWING and self.lag() == 0

    def document(self, now_ms: int) -> dict[str, object]:
        """Return what `mirror.status.N` says of the partition."""
        log = self.partition.log
        return {
            "partition": self.partition.topic_partition.partition,
            "phase": self.phase,
            "detail": _shortened(self.detail),
            "start": None if log is None else log.log_start_offset,
            "end": None if log is None else log.log_end_offset,
            "source_end": None if self.source_end < 0 else self.source_end,
            "lag_ms": self.lag_ms(now_ms),
            "leader_epoch": self.partition.leader_epoch,
            "source_epoch": None if self.followed is None else self.followed.leader_epoch,
            "truncated": None if self.truncated is None else list(self.truncated),
        }


def _shortened(text: str) -> str:
    """Return a text, or its beginning, that has at most DETAIL_BYTES_MAX bytes in JSON."""
    while len(json.dumps(text)) > DETAIL_BYTES_MAX:
        text = f"{text[: len(text) * 3 // 4]}..."
    return text
