"""Plans and executes the cancellation of reassignments, between brokers and between directories.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (`cancelAssignment`); KIP-455
"""

from typing import TYPE_CHECKING

from kctl.admin.reassignment import MoveProgress
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import ReplicaAssignment, TopicPartition

if TYPE_CHECKING:
    from kctl.admin.reassignment_cluster import ReassignmentCluster
    from kctl.admin.reassignment_json import Reassignment


@dataclass(frozen=True, slots=True)
class CancelPlan:
    """The moves that are cancelled."""

    # Partition -> its assignment, whose `origin` the replicas return to.
    between_brokers: dict[TopicPartition, ReplicaAssignment]
    # Moves between log directories of a broker, whose replicas stay where they are.
    inside_brokers: list[MoveProgress]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The errors of a cancelled plan, None where a move was cancelled."""

    between_brokers: dict[TopicPartition, KctlError | None]
    # In the order of the plan.
    inside_brokers: list[KctlError | None]


async def plan_cancel(
    cluster: "ReassignmentCluster", named: "Reassignment | None" = None
) -> CancelPlan:
    """Return the moves in progress, only those that `named` contains, without changing anything."""
    assert cluster.admin is not None, "moves are cancelled by requests"
    moving = await cluster.reassignments.ongoing()
    inside: list[MoveProgress] = []
    if named is None or named.log_dirs:
        inside = [
            it
            for it in await cluster.admin.reassignments.progress()
            if it.is_inside
            and it.removing
            and (named is None or (it.partition, it.broker_id) in named.log_dirs)
        ]
    chosen = {tp: it for tp, it in moving.items() if named is None or tp in named.replicas}
    return CancelPlan(chosen, inside)


async def execute_cancel(cluster: "ReassignmentCluster", plan: CancelPlan) -> Cancelled:
    """Cancel the moves of a plan and return a result for each.

    A move between directories ends when the replica is sent to the directory that it is in.
    """
    assert cluster.admin is not None, "moves are cancelled by requests"
    between: dict[TopicPartition, KctlError | None] = {}
    if plan.between_brokers:
        outcomes = await cluster.reassignments.alter(dict.fromkeys(plan.between_brokers))
        between = {tp: outcomes[tp] for tp in plan.between_brokers}
    paths = {
        (it.partition, it.broker_id): str(it.removing[0]).partition(":")[2]
        for it in plan.inside_brokers
        if it.broker_id is not None
    }
    stayed = await cluster.admin.log_dirs.move(paths) if paths else {}
    return Cancelled(between, [stayed.get(key) for key in paths])
