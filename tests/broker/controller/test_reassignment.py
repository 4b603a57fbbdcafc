"""Partitions move to other replicas: the steps, cancellation, and continuation by a new
controller."""

import pytest

from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_isr import AlterIsrRequest, PartitionData, TopicData
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kctl.protocol.messages.stop_replica import StopReplicaRequest
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest
from kctl.store import znodes
from kctl.store.interface import ANY_VERSION
from tests.support.controller_cluster import running_cluster

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster():
    with running_cluster() as cluster:
        yield cluster


def reassign(cluster, target, topic="t"):
    """Send the request; return (error code, message) of the only partition."""
    partition = ReassignablePartition(partition_index=0, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])]
    )
    response = cluster.run(cluster.active.controller.ask(request))
    cluster.settle()
    assert response.error_code == 0
    answer = response.responses[0].partitions[0]
    return answer.error_code, answer.error_message


def in_sync(cluster, *isr):
    """Have the leader report these replicas as in sync."""
    current = cluster.run(cluster.store.get_partition_states([TP]))[TP].leader_and_isr
    leader = cluster.brokers[current.leader]
    request = AlterIsrRequest(
        broker_id=current.leader,
        broker_epoch=leader.controller.broker_epoch,
        topics=[
            TopicData(
                name="t",
                partitions=[
                    PartitionData(
                        partition_index=0,
                        leader_epoch=current.leader_epoch,
                        new_isr=list(isr),
                        current_isr_version=current.zk_version,
                    )
                ],
            )
        ],
    )
    response = cluster.run(cluster.active.controller.ask(request))
    cluster.settle()
    return response.topics[0].partitions[0]


def assignment(cluster):
    """Return the partition's assignment in the store."""
    return cluster.run(cluster.store.get_topic_assignments(["t"]))["t"][0]


def test_a_partition_moves_from_one_set_of_replicas_to_another(cluster):
    """
    {1,2,3} to {4,5,6}: assignment, leader and ISR as Apache Kafka writes them

        assignment          adding  removing  leader  ISR
        1,2,3                                 1       1,2,3
        4,5,6,1,2,3         4,5,6   1,2,3     1       1,2,3            asked for
        4,5,6,1,2,3         4,5,6   1,2,3     1       1,2,3,4,5,6      all caught up
        4,5,6                                 4       4,5,6            done
    """
    cluster.start(1, 2, 3, 4, 5, 6)
    cluster.create_topic("t", [1, 2, 3])
    assert reassign(cluster, [4, 5, 6]) == (ErrorCode.NONE, None)
    assert assignment(cluster) == ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert cluster.state("t") == (1, 1, (1, 2, 3))
    for broker_id in (4, 5, 6):
        (request,) = cluster.brokers[broker_id].take(LeaderAndIsrRequest)
        (state,) = request.topic_states[0].partition_states
        assert (state.is_new, state.leader, state.replicas) == (True, 1, [4, 5, 6, 1, 2, 3])
    in_sync(cluster, 1, 2, 3, 4)
    assert assignment(cluster).is_being_reassigned
    in_sync(cluster, 1, 2, 3, 4, 5, 6)
    assert assignment(cluster) == ReplicaAssignment((4, 5, 6))
    leader, epoch, isr = cluster.state("t")
    assert (leader, isr) == (4, (4, 5, 6))
    assert epoch > 1
    for broker_id in (1, 2, 3):
        stops = cluster.brokers[broker_id].take(StopReplicaRequest)
        states = [s for stop in stops for t in stop.topic_states for s in t.partition_states]
        assert any(state.delete_partition for state in states)
    assert cluster.active.controller.context.reassigning == {}


def test_a_reassignment_is_listed_while_it_runs(cluster):
    cluster.start(1, 2)
    cluster.create_topic("t", [1])
    reassign(cluster, [2])
    listing = cluster.run(
        cluster.active.controller.ask(ListPartitionReassignmentsRequest(topics=None))
    )
    (moving,) = listing.topics[0].partitions
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([2, 1], [2], [1])
    in_sync(cluster, 1, 2)
    listing = cluster.run(
        cluster.active.controller.ask(ListPartitionReassignmentsRequest(topics=None))
    )
    assert listing.topics == []


def test_a_cancelled_reassignment_is_reverted_and_its_new_replicas_are_stopped(cluster):
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2])
    reassign(cluster, [1, 3])
    cluster.brokers[3].take(StopReplicaRequest)
    assert reassign(cluster, None) == (ErrorCode.NONE, None)
    assert assignment(cluster) == ReplicaAssignment((1, 2))
    (stop,) = cluster.brokers[3].take(StopReplicaRequest)
    assert stop.topic_states[0].partition_states[0].delete_partition
    assert reassign(cluster, None)[0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_the_last_in_sync_replica_is_not_removed_by_a_reassignment(cluster):
    """Found by simulation: broker 1 alone has all records when the move to it is cancelled."""
    cluster.start(1, 2, 3, 4)
    cluster.create_topic("t", [2, 3])
    reassign(cluster, [1, 4])
    in_sync(cluster, 2, 1)
    cluster.brokers[2].kill()
    cluster.settle()
    for target in (None, [2, 3]):
        code, words = reassign(cluster, target)
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "none is in sync" in words
    assert assignment(cluster) == ReplicaAssignment((1, 4, 2, 3), (1, 4), (2, 3))
    in_sync(cluster, 1, 3)
    assert reassign(cluster, None) == (ErrorCode.NONE, None)
    # The previous leader is removed with the move.
    assert cluster.state("t")[::2] == (3, (3,))


def test_another_target_replaces_the_first(cluster):
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1])
    reassign(cluster, [2])
    cluster.brokers[2].take(StopReplicaRequest)
    assert reassign(cluster, [3]) == (ErrorCode.NONE, None)
    assert assignment(cluster) == ReplicaAssignment((3, 1), (3,), (1,))
    assert len(cluster.brokers[2].take(StopReplicaRequest)) == 1
    in_sync(cluster, 1, 3)
    assert assignment(cluster) == ReplicaAssignment((3,))


def test_a_new_order_alone_makes_another_replica_the_preferred_one(cluster):
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    assert reassign(cluster, [2, 1]) == (ErrorCode.NONE, None)
    assert assignment(cluster) == ReplicaAssignment((2, 1))
    assert cluster.state("t")[0] == 1


def test_a_reassignment_to_where_the_replicas_are_writes_nothing(cluster):
    """A write is as long as the topic is wide, and a request may name each of its partitions: one
    of 64 KiB kept the controller busy for minutes."""
    cluster.start(1, 2)
    cluster.create_topic("t", [1, 2])
    version = cluster.database.tree.nodes[znodes.topic_path("t")].version
    assert reassign(cluster, [1, 2]) == (ErrorCode.NONE, None)
    assert cluster.database.tree.nodes[znodes.topic_path("t")].version == version
    # A new order writes both when it begins and when it ends, if these differ.
    assert reassign(cluster, [2, 1]) == (ErrorCode.NONE, None)
    assert cluster.database.tree.nodes[znodes.topic_path("t")].version > version


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 99], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_an_invalid_reassignment_is_rejected_and_changes_nothing(cluster, target, code):
    cluster.start(1, 2)
    cluster.create_topic("t", [1])
    error_code, message = reassign(cluster, target)
    assert error_code == code
    assert message
    assert assignment(cluster) == ReplicaAssignment((1,))
    assert reassign(cluster, [2], topic="unknown")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_next_controller_continues_a_reassignment(cluster):
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [2])
    reassign(cluster, [3])
    cluster.brokers[1].kill()
    cluster.settle()
    assert cluster.active.broker_id != 1
    in_sync(cluster, 2, 3)
    assert assignment(cluster) == ReplicaAssignment((3,))
    assert cluster.state("t")[0] == 3


def test_a_new_controller_completes_a_move_whose_replicas_are_in_sync(cluster):
    """The last controller died between the ISR's growth and the completion."""
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [2, 3])
    moving = {0: ReplicaAssignment((3, 2), (), (2,))}
    cluster.run(cluster.store.set_topic_assignment("t", moving))
    cluster.brokers[1].kill()
    cluster.settle()
    assert assignment(cluster) == ReplicaAssignment((3,))
    assert cluster.state("t")[::2] == (3, (3,))


def test_the_old_znode_starts_reassignments_and_is_deleted_at_their_end(cluster):
    cluster.start(1, 2)
    cluster.create_topic("t", [1])
    asked = {TP: [2], TopicPartition("unknown", 0): [1]}
    cluster.run(cluster.store.create_partition_reassignment(asked))
    cluster.settle()
    assert assignment(cluster) == ReplicaAssignment((2, 1), (2,), (1,))
    assert cluster.run(cluster.store.get_partition_reassignment()) == {TP: (2,)}
    in_sync(cluster, 1, 2)
    assert assignment(cluster) == ReplicaAssignment((2,))
    assert not cluster.exists(znodes.REASSIGN_PARTITIONS)


def test_the_old_znode_is_noticed_every_time(cluster):
    """Its deletion consumes the controller's watch, which must be set again."""
    cluster.start(1, 2)
    cluster.create_topic("t", [1])
    for target in (2, 1, 2):
        cluster.run(cluster.store.create_partition_reassignment({TP: [target]}))
        cluster.settle()
        in_sync(cluster, 1, 2)
        assert assignment(cluster) == ReplicaAssignment((target,))
        assert not cluster.exists(znodes.REASSIGN_PARTITIONS)


def test_invalid_data_in_the_old_znode_is_removed_and_blocks_no_controller(cluster):
    cluster.start(1, 2)
    cluster.create_topic("t", [1])
    cluster.run(cluster.store.create_recursive(znodes.REASSIGN_PARTITIONS, b"{nonsense"))
    cluster.settle()
    assert not cluster.exists(znodes.REASSIGN_PARTITIONS)
    cluster.brokers[1].kill()
    cluster.run(cluster.store.create_recursive(znodes.REASSIGN_PARTITIONS, b"{nonsense"))
    cluster.settle()
    assert cluster.active.broker_id == 2
    assert not cluster.exists(znodes.REASSIGN_PARTITIONS)


def test_a_deleted_replica_is_not_created_again_by_an_unfinished_move(cluster):
    """Found by simulation: it still existed when the topic was created again, and refused to
    lead."""
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2])
    assert reassign(cluster, [1, 3]) == (ErrorCode.NONE, None)
    cluster.brokers[2].kill()
    cluster.brokers[3].kill()
    cluster.settle()
    cluster.delete_topic("t")
    # Its return continues the deletion.
    cluster.start(2)
    stopped = cluster.brokers[1].take(StopReplicaRequest)
    assert any(p.delete_partition for it in stopped for p in it.topic_states[0].partition_states)
    cluster.brokers[1].take(LeaderAndIsrRequest)
    cluster.start(3)
    assert cluster.brokers[1].take(LeaderAndIsrRequest) == []
    assert not cluster.exists(znodes.topic_path("t"))


def test_a_topic_that_moves_is_deleted_at_the_end_of_the_move(cluster):
    cluster.start(1, 2)
    cluster.create_topic("t", [1])
    reassign(cluster, [2])
    cluster.delete_topic("t")
    assert cluster.exists(znodes.topic_path("t"))
    in_sync(cluster, 1, 2)
    assert not cluster.exists(znodes.topic_path("t"))


def test_a_topic_is_gone_only_after_the_replicas_that_a_move_removed(cluster):
    """Found by simulation: broker 3 died with the order to delete its replica, the topic was
    deleted and created again, and broker 3 began with what it had.

        {1,2,3} to {1,2}, and 3 dies before it hears that it is none of them
        the topic is deleted by 1 and 2                  it stays, and its name is taken
        3 is back, and hears whose replicas those are    now it is gone
    """
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2, 3])
    in_sync(cluster, 1, 2)
    # Dead, although its session is alive.
    cluster.brokers[3].is_up = False
    assert reassign(cluster, [1, 2])[0] == ErrorCode.NONE
    assert assignment(cluster) == ReplicaAssignment((1, 2))
    cluster.delete_topic("t")
    assert cluster.exists("/brokers/topics/t")
    bounced = cluster.brokers[3]
    cluster.run(bounced.store.store.close())
    back = cluster.start(3)
    assert not cluster.exists("/brokers/topics/t")
    received = [
        (topic.topic_name, state.replicas)
        for request in back.take(UpdateMetadataRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    assert ("t", [1, 2]) in received


def test_deletions_do_not_wait_for_a_move_that_a_new_controller_does_not_continue(cluster):
    """Found by simulation. (In Apache Kafka 2.7.2 it waits until a broker starts.)"""
    cluster.start(4, 1, 2, 3)
    cluster.create_topic("t", [1, 2])
    # Broker 3 never catches up.
    assert reassign(cluster, [2, 3])[0] == ErrorCode.NONE
    cluster.delete_topic("t")
    assert cluster.exists("/brokers/topics/t")
    cluster.active.kill()
    cluster.settle()
    assert not cluster.exists("/brokers/topics/t")


def test_a_new_leader_epoch_removes_replicas_that_are_no_longer_assigned(cluster):
    """Found by simulation: below inter-broker protocol 2.7-IV2 leaders write their ISR themselves,
    and one let a replica in whose move had just been replaced by another.

        assignment 1,2     ISR 1,2,3     as a leader wrote it that had not heard
        assignment 2,1     ISR 1,2       a new order, and with it a new epoch
    """
    cluster.start(1, 2, 3)
    cluster.create_topic("t", [1, 2])
    current = cluster.run(cluster.store.get_partition_states([TP]))[TP].leader_and_isr
    late = current._replace(isr=(1, 2, 3))
    epoch, zk_version = cluster.active.controller.context.epoch, ANY_VERSION
    cluster.run(cluster.store.update_leader_and_isr({TP: late}, epoch, zk_version))
    assert cluster.state("t") == (1, 0, (1, 2, 3))
    assert reassign(cluster, [2, 1])[0] == ErrorCode.NONE
    assert cluster.state("t") == (1, 1, (1, 2))
