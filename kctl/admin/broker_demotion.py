"""Demotes brokers: makes others the preferred leaders of their partitions, and elects these.

A demoted broker keeps its replicas, in sync, but is the last choice of every election. No data
moves: the reassignment only changes the order of replicas. Kafka 2.7: KIP-455; the counterpart is
the demotion of LinkedIn's Cruise Control.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kctl.admin.dead_brokers import DeadBrokers
from kctl.admin.elections import ElectionType
from kctl.admin.reassignment_execution import MoveStatus, ReassignmentExecution
from kctl.admin.reassignment_plan import ReassignmentPlan, demote
from kctl.errors import KctlError, UnsupportedVersionError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.reassignment_cluster import ReassignmentCluster

# Partitions whose order is changed at once.
BATCH = 200


@dataclass(frozen=True, slots=True)
class DemotionPlan:
    """The new order of replicas, and the partitions that only the demoted brokers can lead."""

    brokers: tuple[int, ...]
    reassignment: ReassignmentPlan
    without_alternative: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class Demoted:
    """The result of one partition."""

    partition: TopicPartition
    # Whether the first replica was elected; False if it led already, or on an error.
    is_elected: bool = False
    error: KctlError | None = None


async def plan_demotion(
    cluster: "ReassignmentCluster",
    brokers: Sequence[int],
    dead: DeadBrokers = DeadBrokers.REFUSE,
) -> DemotionPlan:
    """Return the plan that puts `brokers` last in the replicas of every partition.

    Nothing is changed. Raise NotFoundError for an unknown broker, UsageError if replicas on dead
    brokers forbid the plan, KctlError if one of the partitions is on the move.
    """
    layout = await cluster.reassignments.layout(with_sizes=False)
    plan = demote(layout, brokers, dead)
    moving = [tp for tp in await cluster.reassignments.ongoing() if tp in plan.after]
    if moving:
        raise KctlError(
            f"{len(moving)} of the partitions are moving, {moving[0]} among them",
            hint="kctl reassign watch waits for them",
        )
    alone = [tp for tp, replicas in layout.assignment.items() if set(replicas) <= set(brokers)]
    return DemotionPlan(tuple(brokers), plan, sorted(alone))


async def run_demotion(cluster: "ReassignmentCluster", plan: DemotionPlan) -> list[Demoted]:
    """Change the order of replicas, elect the new preferred leaders, and return a result for each
    partition of the plan. Raise UnsupportedVersionError for clusters older than Kafka 2.4."""
    if cluster.admin is None:
        raise UnsupportedVersionError("Brokers cannot be demoted through ZooKeeper")
    execution = ReassignmentExecution(
        cluster.scheduler, cluster.reassignments, plan.reassignment.after
    )
    await execution.run(BATCH, lambda _: None)
    moved = [tp for tp, it in execution.results.items() if it.status is MoveStatus.DONE]
    elected = await cluster.admin.elections.elect(ElectionType.PREFERRED, moved) if moved else []
    elections = {it.partition: it for it in elected}
    results = []
    for tp, move in execution.results.items():
        election = elections.get(tp)
        error = move.error or (election.error if election else None)
        is_elected = election is not None and election.is_needed and error is None
        results.append(Demoted(tp, is_elected, error))
    return results
