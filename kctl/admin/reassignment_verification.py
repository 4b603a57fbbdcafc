"""Verifies a reassignment: which replicas are in place, which still move, and which do neither.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (`verifyAssignment`); KIP-455
"""

from typing import TYPE_CHECKING

from kctl.admin.log_dir_moves import DirMove
from kctl.admin.reassignment_job import checked_dir_moves, remove_throttle
from kctl.admin.replication_throttle import Restored
from kctl.lazy_dataclass import dataclass
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.reassignment_cluster import ReassignmentCluster
    from kctl.admin.reassignment_json import Reassignment

# Brokers report the end of a move a little later than the controller.
LOOKS_MAX = 4
LOOK_MS = 150


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """One partition of a reassignment; neither moving nor failed means that it is in place."""

    partition: TopicPartition
    wanted: tuple[int, ...]
    # Its replicas now; empty if it does not exist.
    found: tuple[int, ...]
    is_moving: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The state of a whole reassignment."""

    partitions: list[PlacedPartition]
    dirs: list[DirMove]
    # What the removal of kctl's throttle restored; None if it was not removed.
    restored: list[Restored] | None = None


async def verify_reassignment(
    cluster: "ReassignmentCluster", wanted: "Reassignment", *, preserve_throttle: bool = False
) -> Placement:
    """Return where the replicas of a reassignment are.

    Brokers that lag behind the controller get about half a second. Once nothing moves, a throttle
    that kctl set is removed, unless `preserve_throttle`. Raise UsageError for a log directory that
    its broker does not use.
    """
    dirs = await checked_dir_moves(cluster, wanted.log_dirs)
    partitions: list[PlacedPartition] = []
    moving: dict[TopicPartition, ReplicaAssignment] = {}
    for look in range(LOOKS_MAX):
        if look:
            await sleep(cluster.scheduler, LOOK_MS)
        moving = await cluster.reassignments.ongoing()
        found = (await cluster.reassignments.layout(with_sizes=False)).assignment
        await dirs.look(is_last=True)
        partitions = []
        for tp, target in wanted.replicas.items():
            current = moving[tp].replicas if tp in moving else found.get(tp)
            is_moving = tp in moving and moving[tp].target == target
            error = None if is_moving else _misplaced(target, current, found.get(tp))
            partitions.append(PlacedPartition(tp, target, tuple(current or ()), is_moving, error))
        errors = [it.error for it in partitions] + [it.error for it in dirs.moves]
        if not any(errors):
            break
    restored = None
    if not moving and not dirs.is_under_way and not preserve_throttle:
        restored = await remove_throttle(cluster)
    return Placement(partitions, list(dirs.moves), restored)


def _misplaced(
    target: tuple[int, ...], current: tuple[int, ...] | None, found: tuple[int, ...] | None
) -> str | None:
    if current is None:
        return "no such partition"
    if found is None or found == target:
        return None
    return f"is on {', '.join(map(str, found))} and not on the move there"
