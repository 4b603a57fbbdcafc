"""TopicRegistry: topics, their assignments and the state of their partitions, as znodes.

Kafka 2.7: kafka.zk.KafkaZkClient, kafka.zk.AdminZkClient; KIP-455.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.store import znodes
from kctl.store.errors import BadVersionError, NoNodeError, StoreError
from kctl.store.interface import ANY_VERSION, Create, Delete, Set, Stat, Watch
from kctl.store.znode_client import OnCorrupt, ZnodeClient
from kctl.store.znodes import LeaderIsrAndControllerEpoch
from kctl.work import Work, finished, parts

# Znodes decoded between two turns of the loop.
TOPICS_PER_TURN = 500
STATES_PER_TURN = 1_000


class UpdateLeaderAndIsrResult(NamedTuple):
    """The outcome of each partition's conditional update, in the requested order."""

    # The new state with its new zk_version, or why it cannot be written.
    finished: dict[TopicPartition, LeaderAndIsr | StoreError]
    # Another writer was faster: read and decide again.
    to_retry: list[TopicPartition]


class TopicRegistry(ZnodeClient):
    """Topics, the assignments of their replicas, and the leaders of partitions."""

    async def get_all_topics(self, watch: Watch | None = None) -> list[str]:
        """Return the names, sorted; `watch` fires when a topic is created or deleted."""
        return await self.children(znodes.TOPICS, watch)

    async def topic_exists(self, topic: str) -> bool:
        """Return whether a topic has an assignment (its deletion may be in progress)."""
        return await self.exists(znodes.topic_path(topic))

    async def topic_stays(self, topic: str) -> bool:
        """Return whether a topic exists and its deletion has not been requested."""
        return await self.topic_exists(topic) and topic not in await self.get_topic_deletions()

    async def get_topic_assignments(
        self,
        topics: Sequence[str],
        watch: Watch | None = None,
        on_corrupt: OnCorrupt | None = None,
    ) -> dict[str, dict[int, ReplicaAssignment]]:
        """Return the assignments of existing topics; `watch` fires when one changes.

        With `on_corrupt`, which gets the error, a topic that cannot be read has no partitions (as
        in Kafka); without it CorruptDataError is raised.
        """
        found = await self.get_all(map(znodes.topic_path, topics), watch)
        assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        for number, (topic, answer) in enumerate(zip(topics, found, strict=True), 1):
            if number % TOPICS_PER_TURN == 0:
                await self.store.turn()
            if answer is not None:
                decoding = znodes.topic_decoding(topic, answer[0])
                try:
                    assignments[topic] = await finished(decoding, self.store.turn)
                except CorruptDataError as error:
                    if on_corrupt is None:
                        raise
                    on_corrupt(error)
                    assignments[topic] = {}
        return assignments

    async def get_topic_assignment(self, topic: str) -> dict[int, ReplicaAssignment]:
        """Return the assignment of one topic; raise NoNodeError."""
        found = await self.get_topic_assignments([topic])
        if topic not in found:
            raise NoNodeError(znodes.topic_path(topic))
        return found[topic]

    async def create_topic_assignment(
        self, topic: str, assignment: Mapping[int, ReplicaAssignment]
    ) -> None:
        """Create a topic's assignment (the controller does the rest); raise NodeExistsError."""
        data = await finished(znodes.topic_encoding(assignment), self.store.turn)
        await self.create_recursive(znodes.topic_path(topic), data)

    async def set_topic_assignment(
        self,
        topic: str,
        assignment: Mapping[int, ReplicaAssignment],
        controller_epoch_zk_version: int = ANY_VERSION,
    ) -> None:
        """Replace an assignment: more partitions, or a step of a reassignment. Raise
        NoNodeError."""
        data = await finished(znodes.topic_encoding(assignment), self.store.turn)
        operation = Set(znodes.topic_path(topic), data)
        await self.write(operation, controller_epoch_zk_version)

    async def update_topic_assignment(
        self,
        topic: str,
        update: Callable[[dict[int, ReplicaAssignment]], Mapping[int, ReplicaAssignment]],
        controller_epoch_zk_version: int = ANY_VERSION,
    ) -> None:
        """Replace an assignment by `update` of the one in the store; raise NoNodeError.

        Concurrent additions and reassignments of partitions are not lost; `update` may be called
        several times.
        """
        path = znodes.topic_path(topic)

        def change(data: bytes | None) -> Work[bytes]:
            if data is None:
                raise NoNodeError(path)
            assignment = yield from znodes.topic_decoding(topic, data)
            return (yield from znodes.topic_encoding(update(assignment)))

        await self.update(path, change, controller_epoch_zk_version)

    # --- partition states

    async def get_partition_states(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
        """Return the states of those partitions that have one that can be read."""
        return (await self.get_partition_states_and_changes(partitions, _pass_over))[0]

    async def is_leader(self, partition: TopicPartition, broker_id: int, leader_epoch: int) -> bool:
        """Return whether the broker leads the partition in that epoch, and no other has led it
        since."""
        state = (await self.get_partition_states([partition])).get(partition)
        if state is None:
            return False
        found = state.leader_and_isr
        return (found.leader, found.leader_epoch) == (broker_id, leader_epoch)

    async def get_partition_states_and_changes(
        self, partitions: Sequence[TopicPartition], on_corrupt: OnCorrupt
    ) -> tuple[dict[TopicPartition, LeaderIsrAndControllerEpoch], dict[TopicPartition, int]]:
        """Return the states, and the zxid of each one's last change, to be compared with broker
        epochs.

        `on_corrupt` gets the error of each that cannot be read; it counts as missing.
        """
        found = await self.get_all(map(znodes.partition_state_path, partitions))
        states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        changes: dict[TopicPartition, int] = {}
        for number, (tp, answer) in enumerate(zip(partitions, found, strict=True), 1):
            if number % STATES_PER_TURN == 0:
                await self.store.turn()
            if answer is not None:
                data, stat = answer
                try:
                    states[tp] = znodes.decode_partition_state(tp, data, stat.version)
                except CorruptDataError as error:
                    on_corrupt(error)
                else:
                    changes[tp] = stat.mzxid
        return states, changes

    async def create_partition_states(
        self,
        states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch],
        controller_epoch_zk_version: int,
    ) -> dict[TopicPartition, StoreError | None]:
        """Create the first states of new partitions, their parents first; return per partition None
        or the error (NodeExistsError: another broker was faster)."""
        topics = dict.fromkeys(tp.topic for tp in states)
        await self._create_parents(map(znodes.partitions_path, topics), controller_epoch_zk_version)
        await self._create_parents(map(znodes.partition_path, states), controller_epoch_zk_version)
        operations = (
            Create(znodes.partition_state_path(tp), znodes.encode_partition_state(state))
            for tp, state in states.items()
        )
        outcomes = await self.write_all(operations, controller_epoch_zk_version)
        return {
            tp: outcome if isinstance(outcome, StoreError) else None
            async for tp, outcome in self.over_turns(zip(states, outcomes, strict=True))
        }

    async def _create_parents(self, paths: Iterable[str], controller_epoch_zk_version: int) -> None:
        # A parent's error occurs again, and is reported, when its child is created.
        parents = (Create(path, znodes.NO_DATA) for path in paths)
        await self.write_all(parents, controller_epoch_zk_version)

    async def set_partition_states(
        self,
        states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch],
        controller_epoch_zk_version: int,
    ) -> dict[TopicPartition, int | StoreError]:
        """Write each state at its expected `zk_version`; return the new version or the error."""
        operations = (
            Set(
                znodes.partition_state_path(tp),
                znodes.encode_partition_state(state),
                state.leader_and_isr.zk_version,
            )
            for tp, state in states.items()
        )
        outcomes = await self.write_all(operations, controller_epoch_zk_version)
        versions: dict[TopicPartition, int | StoreError] = {}
        items = list(zip(states, outcomes, strict=True))
        for number, part in enumerate(parts(items, STATES_PER_TURN)):
            if number:
                await self.store.turn()
            for tp, outcome in part:
                versions[tp] = outcome.version if isinstance(outcome, Stat) else _error_of(outcome)
        return versions

    async def update_leader_and_isr(
        self,
        leader_and_isrs: Mapping[TopicPartition, LeaderAndIsr],
        controller_epoch: int,
        controller_epoch_zk_version: int,
    ) -> UpdateLeaderAndIsrResult:
        """Apply the controller's conditional update of many partitions; raise
        ControllerMovedError."""
        states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        for number, part in enumerate(parts(list(leader_and_isrs.items()), STATES_PER_TURN)):
            if number:
                await self.store.turn()
            for tp, leader_and_isr in part:
                states[tp] = LeaderIsrAndControllerEpoch(leader_and_isr, controller_epoch)
        outcomes = await self.set_partition_states(states, controller_epoch_zk_version)
        finished: dict[TopicPartition, LeaderAndIsr | StoreError] = {}
        to_retry: list[TopicPartition] = []
        for number, written in enumerate(parts(list(outcomes.items()), STATES_PER_TURN)):
            if number:
                await self.store.turn()
            for tp, outcome in written:
                if isinstance(outcome, int):
                    leader, leader_epoch, isr, _ = leader_and_isrs[tp]
                    finished[tp] = LeaderAndIsr(leader, leader_epoch, isr, outcome)
                elif isinstance(outcome, BadVersionError):
                    to_retry.append(tp)
                else:
                    finished[tp] = outcome
        return UpdateLeaderAndIsrResult(finished, to_retry)

    async def update_isr(
        self, partition: TopicPartition, leader_and_isr: LeaderAndIsr, controller_epoch: int
    ) -> int | None:
        """Apply a leader's own change of its ISR (inter-broker protocol below 2.7-IV2).

        Return the new zk_version, or None if the state has changed meanwhile.
        """
        data = znodes.encode_partition_state(
            LeaderIsrAndControllerEpoch(leader_and_isr, controller_epoch)
        )
        path = znodes.partition_state_path(partition)
        version = await self.conditional_set(path, data, leader_and_isr.zk_version)
        if version is not None:
            return version
        # The write may have happened and its response got lost: then the data is equal.
        found = await self.get(path)
        return found[1].version if found and found[0] == data else None

    # --- deletion

    async def create_delete_topic_path(self, topic: str) -> None:
        """Request a topic's deletion from the controller; NodeExistsError if it is requested
        already."""
        await self.create_recursive(znodes.delete_topic_path(topic))

    async def is_marked_for_deletion(self, topic: str) -> bool:
        """Return whether the topic's deletion has been requested and is not complete."""
        return await self.exists(znodes.delete_topic_path(topic))

    async def get_topic_deletions(self, watch: Watch | None = None) -> list[str]:
        """Return the topics whose deletion is requested, sorted; `watch` fires for new ones."""
        return await self.children(znodes.DELETE_TOPICS, watch)

    async def delete_topic_deletions(
        self, topics: Iterable[str], controller_epoch_zk_version: int
    ) -> None:
        """Remove requests to delete topics that are deleted, or that do not exist."""
        await self.delete_all(map(znodes.delete_topic_path, topics), controller_epoch_zk_version)

    async def delete_topic_znode(self, topic: str, controller_epoch_zk_version: int) -> None:
        """Delete a topic's assignment and all its partitions' states."""
        await self.delete_recursive(znodes.topic_path(topic), controller_epoch_zk_version)

    async def delete_topic_configs(
        self, topics: Iterable[str], controller_epoch_zk_version: int
    ) -> None:
        """Delete the topics' overrides."""
        paths = [znodes.config_path(znodes.TOPIC_CONFIGS, topic) for topic in topics]
        await self.delete_all(paths, controller_epoch_zk_version)

    # --- reassignments and elections asked for in the old way

    async def get_partition_reassignment(
        self, watch: Watch | None = None
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Return `/admin/reassign_partitions`: target replicas, empty without a request."""
        if watch is not None:
            await self.exists(znodes.REASSIGN_PARTITIONS, watch)
        found = await self.get(znodes.REASSIGN_PARTITIONS)
        return znodes.decode_reassignment(found[0]) if found else {}

    async def create_partition_reassignment(
        self, reassignment: Mapping[TopicPartition, Sequence[int]]
    ) -> None:
        """Request a reassignment; NodeExistsError while one is in progress."""
        data = znodes.encode_reassignment(reassignment)
        await self.create_recursive(znodes.REASSIGN_PARTITIONS, data)

    async def set_or_delete_partition_reassignment(
        self,
        reassignment: Mapping[TopicPartition, Sequence[int]],
        controller_epoch_zk_version: int,
    ) -> None:
        """Replace the requested reassignment by what is left of it; delete the znode if nothing is
        left."""
        if reassignment:
            data = znodes.encode_reassignment(reassignment)
            operation: Set | Delete = Set(znodes.REASSIGN_PARTITIONS, data)
        else:
            operation = Delete(znodes.REASSIGN_PARTITIONS)
        await self.write(operation, controller_epoch_zk_version)

    async def get_preferred_replica_election(
        self, watch: Watch | None = None
    ) -> list[TopicPartition]:
        """Return `/admin/preferred_replica_election`; empty without a request."""
        if watch is not None:
            await self.exists(znodes.PREFERRED_REPLICA_ELECTION, watch)
        found = await self.get(znodes.PREFERRED_REPLICA_ELECTION)
        return znodes.decode_preferred_election(found[0]) if found else []

    async def create_preferred_replica_election(self, partitions: Iterable[TopicPartition]) -> None:
        """Request an election; NodeExistsError while one is in progress."""
        data = znodes.encode_preferred_election(partitions)
        await self.create_recursive(znodes.PREFERRED_REPLICA_ELECTION, data)

    async def delete_preferred_replica_election(self, controller_epoch_zk_version: int) -> None:
        """Remove the request after the election."""
        await self.delete_if_exists(znodes.PREFERRED_REPLICA_ELECTION, controller_epoch_zk_version)


def _error_of(outcome: object) -> StoreError:
    assert isinstance(outcome, StoreError)
    return outcome


def _pass_over(_error: CorruptDataError) -> None:
    """Report nothing: what needs the state of the partition reports that there is none."""
