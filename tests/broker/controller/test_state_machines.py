"""The tables of legal moves, written out a second time and compared move by move."""

from itertools import product

import pytest

from kctl.broker.controller.context import PartitionAndReplica
from kctl.broker.controller.partition_state_machine import PartitionState, PartitionStateMachine
from kctl.broker.controller.replica_state_machine import ReplicaState, ReplicaStateMachine
from kctl.model import TopicPartition

TP = TopicPartition("orders", 0)
REPLICA = PartitionAndReplica(TP, 1)

PARTITION_MOVES = """
NON_EXISTENT: NEW
NEW: ONLINE OFFLINE
ONLINE: ONLINE OFFLINE
OFFLINE: ONLINE OFFLINE NON_EXISTENT
"""
REPLICA_MOVES = """
NON_EXISTENT: NEW
NEW: ONLINE OFFLINE
ONLINE: ONLINE OFFLINE
OFFLINE: ONLINE OFFLINE DELETION_STARTED DELETION_INELIGIBLE
DELETION_STARTED: DELETION_SUCCESSFUL DELETION_INELIGIBLE
DELETION_SUCCESSFUL: NON_EXISTENT
DELETION_INELIGIBLE: ONLINE OFFLINE
"""


def legal(text):
    return {
        (source, target)
        for line in text.strip().splitlines()
        for source, _, targets in [line.partition(": ")]
        for target in targets.split()
    }


@pytest.mark.parametrize(
    ("make", "states", "subject", "moves"),
    [
        (PartitionStateMachine, PartitionState, TP, legal(PARTITION_MOVES)),
        (ReplicaStateMachine, ReplicaState, REPLICA, legal(REPLICA_MOVES)),
    ],
)
def test_legal_moves_move_and_illegal_ones_change_nothing(make, states, subject, moves):
    for source, target in product(states, repeat=2):
        machine = make()
        if source is not states.NON_EXISTENT:
            machine.start(subject if make is PartitionStateMachine else [subject], source)
        allowed = (source.name, target.name) in moves
        assert machine.is_legal(subject, target) == allowed
        if allowed:
            machine.move(subject, target)
            assert machine.state(subject) is target
        else:
            with pytest.raises(RuntimeError, match=f"{source.value} to {target.value}"):
                machine.move(subject, target)
            assert machine.state(subject) is source


def test_removed_entries_leave_no_state():
    partitions, replicas = PartitionStateMachine(), ReplicaStateMachine()
    partitions.start(TP, PartitionState.OFFLINE)
    partitions.move(TP, PartitionState.NON_EXISTENT)
    replicas.start([REPLICA], ReplicaState.DELETION_SUCCESSFUL)
    replicas.move(REPLICA, ReplicaState.NON_EXISTENT)
    assert partitions.in_state(PartitionState.NON_EXISTENT) == []
    assert replicas.in_state("orders", ReplicaState.NON_EXISTENT) == []
