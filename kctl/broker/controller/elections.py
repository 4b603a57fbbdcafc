"""Who shall lead a partition: the four ways to choose, each a pure function.

A selector takes the assignment (preferred leader first), the ISR and the replicas that live, and
returns a broker id or None. `elect` puts the choice into the partition's next LeaderAndIsr.

Kafka 2.7: kafka.controller.{PartitionLeaderElectionAlgorithms, Election}; KIP-106, KIP-455.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from kctl.broker.controller.context import ControllerContext
from kctl.model import LeaderAndIsr, TopicPartition


class ElectionStrategy(Enum):
    """Why a partition gets a leader."""

    # Its leader is gone; unclean only if the topic's settings allow it.
    OFFLINE = "OfflinePartitionLeaderElectionStrategy(false)"
    # An operator demands a leader even at the price of lost records (ElectLeaders, unclean).
    UNCLEAN = "OfflinePartitionLeaderElectionStrategy(true)"
    # Its leader is not among the replicas it is being moved to.
    REASSIGN = "ReassignPartitionLeaderElectionStrategy"
    # Somebody wants the first assigned replica to lead.
    PREFERRED = "PreferredReplicaPartitionLeaderElectionStrategy"
    # Its leader is about to stop in good order.
    CONTROLLED_SHUTDOWN = "ControlledShutdownPartitionLeaderElectionStrategy"


@dataclass(frozen=True, slots=True)
class Election:
    """What came out for one partition."""

    # None: nobody qualifies.
    leader_and_isr: LeaderAndIsr | None
    # Who has to hear of it.
    recipients: tuple[int, ...]
    is_unclean: bool = False


def offline_leader(
    assignment: Sequence[int],
    isr: Collection[int],
    live: Collection[int],
    *,
    unclean_allowed: bool,
) -> int | None:
    """The first live replica in sync; failing that and if allowed, any live one."""
    leader = reassigned_leader(assignment, isr, live)
    if leader is None and unclean_allowed:
        return next((replica for replica in assignment if replica in live), None)
    return leader


def reassigned_leader(
    target: Sequence[int], isr: Collection[int], live: Collection[int]
) -> int | None:
    """The first replica of the target assignment that lives and is in sync."""
    return next((replica for replica in target if replica in live and replica in isr), None)


def preferred_leader(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int]
) -> int | None:
    """The first assigned replica, or nobody."""
    return reassigned_leader(assignment[:1], isr, live)


def controlled_shutdown_leader(
    assignment: Sequence[int],
    isr: Collection[int],
    live: Collection[int],
    shutting_down: Collection[int],
) -> int | None:
    """The first live replica in sync that stays."""
    staying = [replica for replica in assignment if replica not in shutting_down]
    return reassigned_leader(staying, isr, live)


def elect(
    context: ControllerContext,
    partition: TopicPartition,
    current: LeaderAndIsr,
    strategy: ElectionStrategy,
    *,
    unclean_allowed: bool = False,
) -> Election:
    """The partition's next leader and ISR under `strategy`; nothing is changed."""
    if strategy is ElectionStrategy.CONTROLLED_SHUTDOWN:
        return _elect_for_controlled_shutdown(context, partition, current)
    assignment = context.assignment(partition)
    is_reassigned = strategy is ElectionStrategy.REASSIGN
    replicas = assignment.target if is_reassigned else assignment.replicas
    live = tuple(r for r in replicas if context.is_replica_online(r, partition))
    if strategy is ElectionStrategy.PREFERRED:
        leader = preferred_leader(replicas, current.isr, live)
        return Election(_led_by(current, leader, current.isr), live)
    if strategy is ElectionStrategy.REASSIGN:
        leader = reassigned_leader(replicas, current.isr, live)
        return Election(_led_by(current, leader, current.isr), live)
    leader = offline_leader(replicas, current.isr, live, unclean_allowed=unclean_allowed)
    if leader is not None and leader not in current.isr:
        return Election(_led_by(current, leader, (leader,)), live, is_unclean=True)
    isr = tuple(r for r in current.isr if context.is_replica_online(r, partition))
    return Election(_led_by(current, leader, isr), live)


def needs_unclean(
    context: ControllerContext, partition: TopicPartition, isr: Sequence[int]
) -> bool:
    """Whether nobody in sync lives, so that the topic's settings have to be asked."""
    return not any(context.is_replica_online(replica, partition) for replica in isr)


def initial_leader_and_isr(
    context: ControllerContext, partition: TopicPartition
) -> LeaderAndIsr | None:
    """For a partition that was never led: all live replicas are in sync, the first one leads."""
    live = tuple(
        r for r in context.assignment(partition).replicas if context.is_replica_online(r, partition)
    )
    return LeaderAndIsr(leader=live[0], leader_epoch=0, isr=live) if live else None


def _elect_for_controlled_shutdown(
    context: ControllerContext, partition: TopicPartition, current: LeaderAndIsr
) -> Election:
    assignment = context.assignment(partition).replicas
    live = tuple(
        r for r in assignment if context.is_replica_online(r, partition, include_shutting_down=True)
    )
    leader = controlled_shutdown_leader(assignment, current.isr, live, context.shutting_down)
    isr = tuple(r for r in current.isr if r not in context.shutting_down)
    return Election(_led_by(current, leader, isr), live)


def _led_by(current: LeaderAndIsr, leader: int | None, isr: tuple[int, ...]) -> LeaderAndIsr | None:
    if leader is None:
        return None
    return LeaderAndIsr(leader, current.leader_epoch + 1, isr, current.zk_version)
