"""TopicRegistry: topics, their assignments and the state of their partitions, as znodes.

Kafka 2.7: kafka.zk.KafkaZkClient, kafka.zk.AdminZkClient; KIP-455.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from kctl.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from kctl.store import znodes
from kctl.store.errors import BadVersionError, StoreError
from kctl.store.interface import ANY_VERSION, Create, Delete, Set, Stat, Watch
from kctl.store.znode_client import ZnodeClient
from kctl.store.znodes import LeaderIsrAndControllerEpoch


class UpdateLeaderAndIsrResult(NamedTuple):
    """What became of each partition's conditional update; in the order asked for."""

    # The new state with its new zk_version, or why it cannot be written.
    finished: dict[TopicPartition, LeaderAndIsr | StoreError]
    # Somebody else wrote in between: read again and decide again.
    to_retry: list[TopicPartition]


class TopicRegistry(ZnodeClient):
    """What topics there are, where their replicas shall be, and who leads."""

    async def get_all_topics(self, watch: Watch | None = None) -> list[str]:
        """Names, sorted; `watch` sees topics come and go."""
        return await self.children(znodes.TOPICS, watch)

    async def topic_exists(self, topic: str) -> bool:
        """Whether a topic has an assignment (it may be on its way out)."""
        return await self.exists(znodes.topic_path(topic))

    async def topic_stays(self, topic: str) -> bool:
        """Whether a topic exists and is not to be deleted."""
        return await self.topic_exists(topic) and topic not in await self.get_topic_deletions()

    async def get_topic_assignments(
        self, topics: Sequence[str], watch: Watch | None = None
    ) -> dict[str, dict[int, ReplicaAssignment]]:
        """Assignments of those topics that exist; `watch` sees each of them change."""
        found = await self.get_all([znodes.topic_path(topic) for topic in topics], watch)
        return {
            topic: znodes.decode_topic(topic, answer[0])
            for topic, answer in zip(topics, found, strict=True)
            if answer is not None
        }

    async def create_topic_assignment(
        self, topic: str, assignment: Mapping[int, ReplicaAssignment]
    ) -> None:
        """Bring a topic into being (the controller does the rest); NodeExistsError."""
        await self.create_recursive(znodes.topic_path(topic), znodes.encode_topic(assignment))

    async def set_topic_assignment(
        self,
        topic: str,
        assignment: Mapping[int, ReplicaAssignment],
        controller_epoch_zk_version: int = ANY_VERSION,
    ) -> None:
        """Replace an assignment: more partitions, or a step of a reassignment. NoNodeError."""
        operation = Set(znodes.topic_path(topic), znodes.encode_topic(assignment))
        await self.write(operation, controller_epoch_zk_version)

    # --- partition states

    async def get_partition_states(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
        """States of those partitions that have one."""
        return (await self.get_partition_states_and_changes(partitions))[0]

    async def get_partition_states_and_changes(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, LeaderIsrAndControllerEpoch], dict[TopicPartition, int]]:
        """The same, and the zxid of each one's last change, to be compared with broker epochs."""
        found = await self.get_all([znodes.partition_state_path(tp) for tp in partitions])
        states, changes = {}, {}
        for tp, answer in zip(partitions, found, strict=True):
            if answer is not None:
                data, stat = answer
                states[tp] = znodes.decode_partition_state(tp, data, stat.version)
                changes[tp] = stat.mzxid
        return states, changes

    async def create_partition_states(
        self,
        states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch],
        controller_epoch_zk_version: int,
    ) -> dict[TopicPartition, StoreError | None]:
        """First states of new partitions, their parents first; per partition None or the error
        (NodeExistsError: somebody was quicker)."""
        topics = dict.fromkeys(tp.topic for tp in states)
        parents = [Create(znodes.partitions_path(topic), znodes.NO_DATA) for topic in topics]
        await self._create_parents(parents, controller_epoch_zk_version)
        parents = [Create(znodes.partition_path(tp), znodes.NO_DATA) for tp in states]
        await self._create_parents(parents, controller_epoch_zk_version)
        outcomes = await self.write_all(
            [
                Create(znodes.partition_state_path(tp), znodes.encode_partition_state(state))
                for tp, state in states.items()
            ],
            controller_epoch_zk_version,
        )
        return {
            tp: outcome if isinstance(outcome, StoreError) else None
            for tp, outcome in zip(states, outcomes, strict=True)
        }

    async def _create_parents(
        self, parents: Sequence[Create], controller_epoch_zk_version: int
    ) -> None:
        # Why a parent could not be made is seen again, and told, where its child is made.
        await self.write_all(parents, controller_epoch_zk_version)

    async def set_partition_states(
        self,
        states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch],
        controller_epoch_zk_version: int,
    ) -> dict[TopicPartition, int | StoreError]:
        """Write each state at its expected `zk_version`; the new version or the error."""
        outcomes = await self.write_all(
            [
                Set(
                    znodes.partition_state_path(tp),
                    znodes.encode_partition_state(state),
                    state.leader_and_isr.zk_version,
                )
                for tp, state in states.items()
            ],
            controller_epoch_zk_version,
        )
        return {
            tp: outcome if isinstance(outcome, StoreError) else cast(Stat, outcome).version
            for tp, outcome in zip(states, outcomes, strict=True)
        }

    async def update_leader_and_isr(
        self,
        leader_and_isrs: Mapping[TopicPartition, LeaderAndIsr],
        controller_epoch: int,
        controller_epoch_zk_version: int,
    ) -> UpdateLeaderAndIsrResult:
        """The controller's conditional update of many partitions (ControllerMovedError)."""
        states = {
            tp: LeaderIsrAndControllerEpoch(leader_and_isr, controller_epoch)
            for tp, leader_and_isr in leader_and_isrs.items()
        }
        outcomes = await self.set_partition_states(states, controller_epoch_zk_version)
        finished: dict[TopicPartition, LeaderAndIsr | StoreError] = {}
        to_retry: list[TopicPartition] = []
        for tp, outcome in outcomes.items():
            if isinstance(outcome, BadVersionError):
                to_retry.append(tp)
            elif isinstance(outcome, StoreError):
                finished[tp] = outcome
            else:
                old = leader_and_isrs[tp]
                finished[tp] = LeaderAndIsr(old.leader, old.leader_epoch, old.isr, outcome)
        return UpdateLeaderAndIsrResult(finished, to_retry)

    async def update_isr(
        self, partition: TopicPartition, leader_and_isr: LeaderAndIsr, controller_epoch: int
    ) -> int | None:
        """A leader's own change of its ISR (inter-broker protocol below 2.7-IV2): the new
        zk_version, or None if the state has moved on."""
        data = znodes.encode_partition_state(
            LeaderIsrAndControllerEpoch(leader_and_isr, controller_epoch)
        )
        path = znodes.partition_state_path(partition)
        version = await self.conditional_set(path, data, leader_and_isr.zk_version)
        if version is not None:
            return version
        # The write may have happened and its answer got lost: then it is there, word for word.
        found = await self.get(path)
        return found[1].version if found and found[0] == data else None

    # --- deletion

    async def create_delete_topic_path(self, topic: str) -> None:
        """Ask the controller to delete a topic; NodeExistsError if somebody did."""
        await self.create_recursive(znodes.delete_topic_path(topic))

    async def get_topic_deletions(self, watch: Watch | None = None) -> list[str]:
        """Topics to be deleted, sorted; `watch` sees more come."""
        return await self.children(znodes.DELETE_TOPICS, watch)

    async def delete_topic_deletions(
        self, topics: Iterable[str], controller_epoch_zk_version: int
    ) -> None:
        """The topics are gone, or need not go: forget that they were to be deleted."""
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
        """`/admin/reassign_partitions`: target replicas, empty if nothing is asked for."""
        if watch is not None:
            await self.exists(znodes.REASSIGN_PARTITIONS, watch)
        found = await self.get(znodes.REASSIGN_PARTITIONS)
        return znodes.decode_reassignment(found[0]) if found else {}

    async def create_partition_reassignment(
        self, reassignment: Mapping[TopicPartition, Sequence[int]]
    ) -> None:
        """Ask for a reassignment; NodeExistsError while one is under way."""
        data = znodes.encode_reassignment(reassignment)
        await self.create_recursive(znodes.REASSIGN_PARTITIONS, data)

    async def set_or_delete_partition_reassignment(
        self,
        reassignment: Mapping[TopicPartition, Sequence[int]],
        controller_epoch_zk_version: int,
    ) -> None:
        """What is still to be done; the znode goes when that is nothing."""
        if reassignment:
            data = znodes.encode_reassignment(reassignment)
            operation: Set | Delete = Set(znodes.REASSIGN_PARTITIONS, data)
        else:
            operation = Delete(znodes.REASSIGN_PARTITIONS)
        await self.write(operation, controller_epoch_zk_version)

    async def get_preferred_replica_election(
        self, watch: Watch | None = None
    ) -> list[TopicPartition]:
        """`/admin/preferred_replica_election`, empty if nothing is asked for."""
        if watch is not None:
            await self.exists(znodes.PREFERRED_REPLICA_ELECTION, watch)
        found = await self.get(znodes.PREFERRED_REPLICA_ELECTION)
        return znodes.decode_preferred_election(found[0]) if found else []

    async def create_preferred_replica_election(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for an election; NodeExistsError while one is under way."""
        data = znodes.encode_preferred_election(partitions)
        await self.create_recursive(znodes.PREFERRED_REPLICA_ELECTION, data)

    async def delete_preferred_replica_election(self, controller_epoch_zk_version: int) -> None:
        """The election is done."""
        await self.delete_if_exists(znodes.PREFERRED_REPLICA_ELECTION, controller_epoch_zk_version)
