"""ReplicaStateMachine: where each broker's copy of each partition stands.

    NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> DELETION_STARTED -> DELETION_SUCCESSFUL
         ^                    ^          ^  |            |                    |
         |                    +----------+--+-> DELETION_INELIGIBLE <-+       |
         +--------------------------------------------------------------------+

NEW: assigned, may only become follower. ONLINE: part of its partition. OFFLINE: its broker or its
log directory is down, or it was stopped. The deletion states follow one StopReplica(delete) to
its answer; INELIGIBLE waits until its broker is back.

Invariant: a replica without an entry is NON_EXISTENT; an illegal move raises, changes nothing.

Kafka 2.7: kafka.controller.ReplicaStateMachine.
"""

from enum import Enum

from kctl.broker.controller.context import PartitionAndReplica


class ReplicaState(Enum):
    """The seven states of a replica."""

    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


_S = ReplicaState

# Target state -> the states from which it may be reached.
LEGAL_SOURCES: dict[ReplicaState, frozenset[ReplicaState]] = {
    _S.NEW: frozenset({_S.NON_EXISTENT}),
    _S.ONLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.OFFLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.DELETION_STARTED: frozenset({_S.OFFLINE}),
    _S.DELETION_SUCCESSFUL: frozenset({_S.DELETION_STARTED}),
    _S.DELETION_INELIGIBLE: frozenset({_S.OFFLINE, _S.DELETION_STARTED}),
    _S.NON_EXISTENT: frozenset({_S.DELETION_SUCCESSFUL}),
}


class ReplicaStateMachine:
    """The state of every replica of the cluster."""

    def __init__(self) -> None:
        self._of_topic: dict[str, dict[PartitionAndReplica, ReplicaState]] = {}

    def state(self, replica: PartitionAndReplica) -> ReplicaState:
        """The replica's state now."""
        states = self._of_topic.get(replica.partition.topic)
        return _S.NON_EXISTENT if states is None else states.get(replica, _S.NON_EXISTENT)

    def is_legal(self, replica: PartitionAndReplica, target: ReplicaState) -> bool:
        """Whether the table allows the move."""
        return self.state(replica) in LEGAL_SOURCES[target]

    def move(self, replica: PartitionAndReplica, target: ReplicaState) -> None:
        """Change the state; RuntimeError, and nothing changed, if the table forbids it."""
        state = self.state(replica)
        if state not in LEGAL_SOURCES[target]:
            raise RuntimeError(f"replica {replica} cannot go from {state.value} to {target.value}")
        topic = replica.partition.topic
        if target is not ReplicaState.NON_EXISTENT:
            self._of_topic.setdefault(topic, {})[replica] = target
            return
        del self._of_topic[topic][replica]
        if not self._of_topic[topic]:
            del self._of_topic[topic]

    def start(self, replica: PartitionAndReplica, state: ReplicaState) -> None:
        """Set the state a replica is found in by a newly elected controller."""
        self._of_topic.setdefault(replica.partition.topic, {})[replica] = state

    def forget_topic(self, topic: str) -> None:
        """Its znodes are gone without a deletion."""
        self._of_topic.pop(topic, None)

    def in_state(self, topic: str, state: ReplicaState) -> list[PartitionAndReplica]:
        """The topic's replicas in `state`."""
        found = self._of_topic.get(topic, {})
        return [replica for replica, current in found.items() if current is state]

    def clear(self) -> None:
        """Forget all (the controller resigns)."""
        self._of_topic.clear()
