"""The controller examines and removes a topic of any width over many turns of the loop."""

import pytest

from kctl.broker.controller import context as context_module
from kctl.broker.controller import topic_deletion
from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.broker.controller.replica_state_machine import ReplicaState, ReplicaStateMachine
from kctl.broker.controller.topic_deletion import TopicDeletion
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.work import at_once

PER_TURN = 10


@pytest.fixture
def wide(monkeypatch):
    """A topic of 50 partitions with two replicas each."""
    monkeypatch.setattr(context_module, "PARTITIONS_PER_TURN", PER_TURN)
    monkeypatch.setattr(topic_deletion, "PARTITIONS_PER_TURN", PER_TURN)
    context = ControllerContext()
    for number in range(50):
        context.set_assignment(TopicPartition("wide", number), ReplicaAssignment((1, 2)))
    return context


class CountingMachine(ReplicaStateMachine):
    """Counts the replicas whose state is read."""

    reads = 0

    def state(self, replica):
        self.reads += 1
        return super().state(replica)


def test_whether_a_wide_topic_is_deleted_is_found_over_many_turns(wide):
    machine = CountingMachine()
    deletion = TopicDeletion(wide, machine)
    for partition in wide.partitions():
        for broker_id in (1, 2):
            replica = PartitionAndReplica(partition, broker_id)
            machine.start([replica], ReplicaState.DELETION_SUCCESSFUL)
    deletion.queue(["wide"])
    work = deletion.decide()
    machine.reads = 0
    for _ in range(4):
        next(work)
        assert machine.reads == 2 * PER_TURN
        machine.reads = 0
    assert at_once(work).complete == ["wide"]


def test_a_wide_topic_is_removed_over_many_turns(wide):
    wide.set_assignment(TopicPartition("other", 0), ReplicaAssignment((1,)))
    work = wide.remove_topic("wide")
    for left in (40, 30, 20, 10):
        next(work)
        assert len(wide.replicas_on(2)) == left
    at_once(work)
    assert list(wide.topics) == ["other"]
    assert wide.replicas_on(2) == []
    assert [str(replica.partition) for replica in wide.replicas_on(1)] == ["other-0"]
