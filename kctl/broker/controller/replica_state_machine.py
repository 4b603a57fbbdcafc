"""ReplicaStateMachine: the state of each replica of each partition.

    NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> DELETION_STARTED -> DELETION_SUCCESSFUL
         ^                    ^          ^  |            |                    |
         |                    +----------+--+-> DELETION_INELIGIBLE <-+       |
         +--------------------------------------------------------------------+

NEW: assigned, may only become follower. ONLINE: part of its partition. OFFLINE: its broker or its
log directory is down, or it was stopped. The deletion states follow one StopReplica(delete) to its
response; INELIGIBLE waits until its broker is back.

Invariant: a replica without an entry is NON_EXISTENT; an illegal move raises and changes nothing.

Kafka 2.7: kafka.controller.ReplicaStateMachine.
"""

from collections.abc import Iterable
from enum import Enum
from itertools import groupby

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

    # By identity: Enum's own hash runs Python code for every look at the table.
    __hash__ = object.__hash__


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
        # Topic -> number of replicas in DELETION_STARTED, where there are any.
        self._started: dict[str, int] = {}

    def state(self, replica: PartitionAndReplica) -> ReplicaState:
        """Return the replica's current state."""
        states = self._of_topic.get(replica.partition.topic)
        return _S.NON_EXISTENT if states is None else states.get(replica, _S.NON_EXISTENT)

    def is_legal(self, replica: PartitionAndReplica, target: ReplicaState) -> bool:
        """Return whether the table allows the move."""
        return self.state(replica) in LEGAL_SOURCES[target]

    def split(
        self, replicas: Iterable[PartitionAndReplica], target: ReplicaState
    ) -> tuple[list[PartitionAndReplica], list[PartitionAndReplica]]:
        """Return the replicas for which the table allows the move, and the others."""
        sources = LEGAL_SOURCES[target]
        legal: list[PartitionAndReplica] = []
        illegal: list[PartitionAndReplica] = []
        for topic, of_topic in groupby(replicas, _topic_of):
            states = self._of_topic.get(topic, {})
            for replica in of_topic:
                is_legal = states.get(replica, _S.NON_EXISTENT) in sources
                (legal if is_legal else illegal).append(replica)
        return legal, illegal

    def move(self, replica: PartitionAndReplica, target: ReplicaState) -> None:
        """Change the state; raise RuntimeError and change nothing if the table forbids it."""
        topic = replica.partition.topic
        states = self._of_topic.get(topic)
        state = _S.NON_EXISTENT if states is None else states.get(replica, _S.NON_EXISTENT)
        if state not in LEGAL_SOURCES[target]:
            raise RuntimeError(
                f"replica {replica} cannot move from {state.value} to {target.value}"
            )
        if state is target:
            return
        self._count(topic, state, target)
        if target is not ReplicaState.NON_EXISTENT:
            if states is None:
                states = self._of_topic[topic] = {}
            states[replica] = target
            return
        del self._of_topic[topic][replica]
        if not self._of_topic[topic]:
            del self._of_topic[topic]

    def start(self, replicas: Iterable[PartitionAndReplica], state: ReplicaState) -> None:
        """Set the state in which a newly elected controller finds replicas, which had none; it is
        not DELETION_STARTED."""
        for topic, of_topic in groupby(replicas, _topic_of):
            self._of_topic.setdefault(topic, {}).update(dict.fromkeys(of_topic, state))

    def _count(self, topic: str, old: ReplicaState, new: ReplicaState) -> None:
        change = (new is _S.DELETION_STARTED) - (old is _S.DELETION_STARTED)
        if change:
            self._started[topic] = self._started.get(topic, 0) + change
            if not self._started[topic]:
                del self._started[topic]

    def forget_topic(self, topic: str) -> None:
        """Remove a topic whose znodes disappeared without a deletion."""
        self._of_topic.pop(topic, None)
        self._started.pop(topic, None)

    def is_deletion_under_way(self, topic: str) -> bool:
        """Return whether any of the topic's replicas is in DELETION_STARTED, in constant time."""
        return topic in self._started

    def in_state(self, topic: str, state: ReplicaState) -> list[PartitionAndReplica]:
        """Return the topic's replicas in `state`."""
        found = self._of_topic.get(topic, {})
        return [replica for replica, current in found.items() if current is state]

    def clear(self) -> None:
        """Remove all states (the controller resigns)."""
        self._of_topic.clear()
        self._started.clear()


def _topic_of(replica: PartitionAndReplica) -> str:
    return replica.partition.topic
