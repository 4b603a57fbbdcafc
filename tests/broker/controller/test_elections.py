"""The four leader selectors, and their effect on leader, epoch and ISR."""

import pytest

from kctl.broker.controller.context import ControllerContext
from kctl.broker.controller.leader_election_algorithms import (
    ElectionStrategy,
    controlled_shutdown_leader,
    elect,
    initial_leader_and_isr,
    offline_leader,
    preferred_leader,
    reassigned_leader,
)
from kctl.model import BrokerInfo, LeaderAndIsr, ReplicaAssignment, TopicPartition

TP = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "unclean", "leader"),
    [
        ((4, 2), (2, 4), {4}, False, 4),
        ((2, 4), (2, 4), {2, 4}, False, 2),
        ((2, 4), (4,), {2, 4}, False, 4),
        ((2, 4), (2,), {4}, False, None),
        ((2, 4), (2,), {4}, True, 4),
        ((2, 4), (2,), set(), True, None),
        ((), (2,), {2}, True, None),
    ],
)
def test_offline_partitions_are_led_by_the_first_live_replica_in_sync(
    assignment, isr, live, unclean, leader
):
    assert offline_leader(assignment, isr, live, unclean_allowed=unclean) == leader


@pytest.mark.parametrize(
    ("target", "isr", "live", "leader"),
    [((2, 4), (2, 4), {4}, 4), ((2, 4), (2,), {4}, None), ((), (2,), {2}, None)],
)
def test_reassigned_partitions_are_led_by_the_first_live_target_in_sync(target, isr, live, leader):
    assert reassigned_leader(target, isr, live) == leader


@pytest.mark.parametrize(
    ("isr", "live", "leader"),
    [((2, 4), {2, 4}, 2), ((4,), {2, 4}, None), ((2, 4), {4}, None)],
)
def test_only_the_first_assigned_replica_is_preferred(isr, live, leader):
    assert preferred_leader((2, 4), isr, live) == leader


@pytest.mark.parametrize(
    ("isr", "live", "shutting_down", "leader"),
    [
        ((2, 4), {2, 4}, {2}, 4),
        ((2,), {2, 4}, {2}, None),
        ((2, 4), {2, 4}, {2, 4}, None),
        ((2, 4), {2}, {2}, None),
    ],
)
def test_a_leader_that_shuts_down_is_replaced_by_a_broker_that_stays(
    isr, live, shutting_down, leader
):
    assert controlled_shutdown_leader((2, 4), isr, live, shutting_down) == leader


def cluster_of(*live, shutting_down=(), replicas=(1, 2, 3), removing=()):
    context = ControllerContext()
    context.live_brokers = {b: BrokerInfo(b, ()) for b in live}
    context.shutting_down = dict.fromkeys(shutting_down)
    context.set_assignment(TP, ReplicaAssignment(replicas, removing=removing))
    return context


def test_a_clean_election_raises_the_epoch_and_drops_the_dead_from_the_isr():
    election = elect(
        cluster_of(2, 3), TP, LeaderAndIsr(1, 5, (1, 2, 3), 9), ElectionStrategy.OFFLINE
    )
    assert election.leader_and_isr == LeaderAndIsr(2, 6, (2, 3), 9)
    assert election.recipients == (2, 3)
    assert not election.is_unclean


def test_an_unclean_leader_is_alone_in_the_isr():
    election = elect(
        cluster_of(2, 3),
        TP,
        LeaderAndIsr(-1, 5, (1,), 9),
        ElectionStrategy.OFFLINE,
        unclean_allowed=True,
    )
    assert election.leader_and_isr == LeaderAndIsr(2, 6, (2,), 9)
    assert election.is_unclean


def test_preferred_election_keeps_the_isr():
    election = elect(
        cluster_of(1, 2, 3), TP, LeaderAndIsr(3, 5, (3, 1), 9), ElectionStrategy.PREFERRED
    )
    assert election.leader_and_isr == LeaderAndIsr(1, 6, (3, 1), 9)


def test_reassignment_elects_among_the_target_replicas():
    context = cluster_of(1, 2, 3, removing=(1,))
    election = elect(context, TP, LeaderAndIsr(1, 5, (1, 3), 9), ElectionStrategy.REASSIGN)
    assert election.leader_and_isr == LeaderAndIsr(3, 6, (1, 3), 9)


def test_controlled_shutdown_removes_the_broker_from_the_isr_and_informs_it():
    context = cluster_of(1, 2, shutting_down=(1,))
    election = elect(
        context, TP, LeaderAndIsr(1, 5, (1, 2), 9), ElectionStrategy.CONTROLLED_SHUTDOWN
    )
    assert election.leader_and_isr == LeaderAndIsr(2, 6, (2,), 9)
    assert election.recipients == (1, 2)


def test_no_leader_is_elected_if_no_replica_qualifies():
    election = elect(cluster_of(2), TP, LeaderAndIsr(1, 5, (1,), 9), ElectionStrategy.OFFLINE)
    assert election.leader_and_isr is None


def test_the_first_live_replica_leads_a_new_partition():
    assert initial_leader_and_isr(cluster_of(2, 3), TP) == LeaderAndIsr(2, 0, (2, 3))
    assert initial_leader_and_isr(cluster_of(4), TP) is None


def test_a_replica_in_a_failed_log_directory_is_not_live():
    context = cluster_of(1, 2)
    context.on_offline_dirs[1] = {TP}
    assert initial_leader_and_isr(context, TP) == LeaderAndIsr(2, 0, (2,))
