"""PartitionStateMachine: whether a partition exists, has a leader, or lost it.

    NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> NON_EXISTENT

NON_EXISTENT: never created, or deleted. NEW: has an assignment but no leader or ISR yet. ONLINE:
has a leader. OFFLINE: its leader is gone. `state_transitions` performs the writes to the store and
the requests to brokers that a move requires, and changes the state only after the store has
accepted.

Invariant: a partition without an entry is NON_EXISTENT; an illegal move raises and changes nothing.

Kafka 2.7: kafka.controller.PartitionStateMachine.
"""

from collections.abc import Iterable
from enum import Enum

from kctl.model import TopicPartition


class PartitionState(Enum):
    """The four states of a partition."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"

    # By identity: Enum's own hash runs Python code for every look at the table.
    __hash__ = object.__hash__


_S = PartitionState

# Target state -> the states from which it may be reached.
LEGAL_SOURCES: dict[PartitionState, frozenset[PartitionState]] = {
    _S.NEW: frozenset({_S.NON_EXISTENT}),
    _S.ONLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE}),
    _S.OFFLINE: frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE}),
    _S.NON_EXISTENT: frozenset({_S.OFFLINE}),
}


class PartitionStateMachine:
    """The state of every partition of the cluster."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return the partition's current state."""
        return self._states.get(partition, PartitionState.NON_EXISTENT)

    def is_legal(self, partition: TopicPartition, target: PartitionState) -> bool:
        """Return whether the table allows the move."""
        return self.state(partition) in LEGAL_SOURCES[target]

    def move(self, partition: TopicPartition, target: PartitionState) -> None:
        """Change the state; raise RuntimeError and change nothing if the table forbids it."""
        state = self.state(partition)
        if state not in LEGAL_SOURCES[target]:
            raise RuntimeError(
                f"partition {partition} cannot move from {state.value} to {target.value}"
            )
        if target is PartitionState.NON_EXISTENT:
            del self._states[partition]
        else:
            self._states[partition] = target

    def start(self, partition: TopicPartition, state: PartitionState) -> None:
        """Set the state in which a newly elected controller finds a partition."""
        self._states[partition] = state

    def forget(self, partition: TopicPartition) -> None:
        """Remove a partition whose znodes disappeared without a deletion."""
        self._states.pop(partition, None)

    def in_state(
        self, state: PartitionState, partitions: Iterable[TopicPartition] | None = None
    ) -> list[TopicPartition]:
        """Return the partitions in `state`, among all known or the given ones."""
        if partitions is None:
            return [tp for tp, found in self._states.items() if found is state]
        return [tp for tp in partitions if self.state(tp) is state]

    def clear(self) -> None:
        """Remove all states (the controller resigns)."""
        self._states.clear()
