"""Leader election: the four ways to choose a partition's leader, each a pure function.

A selector takes the assignment (preferred leader first), the ISR and the live replicas, and returns
a broker id or None. `elect` returns the partition's next LeaderAndIsr with the choice.

Kafka 2.7: kafka.controller.{PartitionLeaderElectionAlgorithms, Election}; KIP-106, KIP-455.
"""

from collections.abc import Collection, Sequence
from enum import Enum
from typing import NamedTuple

from kctl.broker.controller.context import ControllerContext
from kctl.model import LeaderAndIsr, TopicPartition


class ElectionStrategy(Enum):
    """The reason for an election."""

    # The leader is gone; unclean only if the topic's configs allow it.
    OFFLINE = "OfflinePartitionLeaderElectionStrategy(false)"
    # An operator requests a leader even at the price of lost records (ElectLeaders, unclean).
    UNCLEAN = "OfflinePartitionLeaderElectionStrategy(true)"
    # The leader is not among the target replicas of a reassignment.
    REASSIGN = "ReassignPartitionLeaderElectionStrategy"
    # The first assigned replica is requested as leader.
    PREFERRED = "PreferredReplicaPartitionLeaderElectionStrategy"
    # The leader is in controlled shutdown.
    CONTROLLED_SHUTDOWN = "ControlledShutdownPartitionLeaderElectionStrategy"


class Election(NamedTuple):
    """The result of an election for one partition."""

    # None if no replica qualifies.
    leader_and_isr: LeaderAndIsr | None
    # The brokers that must be informed.
    recipients: tuple[int, ...]
    is_unclean: bool = False


def offline_leader(
    assignment: Sequence[int],
    isr: Collection[int],
    live: Collection[int],
    *,
    unclean_allowed: bool,
) -> int | None:
    """Return the first live in-sync replica; failing that and if allowed, any live one."""
    leader = reassigned_leader(assignment, isr, live)
    if leader is None and unclean_allowed:
        return next((replica for replica in assignment if replica in live), None)
    return leader


def reassigned_leader(
    target: Sequence[int], isr: Collection[int], live: Collection[int]
) -> int | None:
    """Return the first replica of the target assignment that is alive and in sync."""
    return next((replica for replica in target if replica in live and replica in isr), None)


def preferred_leader(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int]
) -> int | None:
    """Return the first assigned replica if it is alive and in sync."""
    return reassigned_leader(assignment[:1], isr, live)


def controlled_shutdown_leader(
    assignment: Sequence[int],
    isr: Collection[int],
    live: Collection[int],
    shutting_down: Collection[int],
) -> int | None:
    """Return the first live in-sync replica that is not shutting down."""
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
    """Return the partition's next leader and ISR under `strategy`; nothing is changed."""
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
    """Return whether no in-sync replica is alive, so that the topic's configs decide."""
    return not any(context.is_replica_online(replica, partition) for replica in isr)


def initial_leader_and_isr(
    context: ControllerContext, partition: TopicPartition
) -> LeaderAndIsr | None:
    """Return the first state of a partition: all live replicas are in sync, the first one leads."""
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
