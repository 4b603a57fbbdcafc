"""ReassignmentAdmin: where replicas are, are to be, and how far those on the move have come.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient (alterPartitionReassignments,
listPartitionReassignments); KIP-455
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kctl.admin.log_dirs import LogDirAdmin, LogDirDescription
from kctl.admin.reassignment_plan import ClusterLayout
from kctl.admin.result import error_of, raise_for
from kctl.admin.topics import TopicAdmin
from kctl.errors import KctlError, UsageError
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kctl.client.router import Router

Targets = Mapping[TopicPartition, Sequence[int] | None]
Outcomes = dict[TopicPartition, KctlError | None]


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """A partition on the move: bytes that its new replicas have, of those that they need. Or a
    replica on the move between directories of one broker."""

    partition: TopicPartition
    # Brokers; inside one broker `broker:directory`.
    adding: tuple[int | str, ...]
    removing: tuple[int | str, ...]
    done_bytes: int
    total_bytes: int
    # Where it moves between directories.
    broker_id: int | None = None

    @property
    def is_inside(self) -> bool:
        """Whether it moves between directories of one broker."""
        return self.broker_id is not None

    @property
    def key(self) -> tuple[TopicPartition, int | None]:
        """What tells it from all others."""
        return self.partition, self.broker_id


class Reassignments(Protocol):
    """What both ways to a cluster can do: by requests, and by znodes."""

    async def layout(self, *, with_sizes: bool = True) -> ClusterLayout:
        """Brokers and replicas; of what is on the move, where it is going."""
        ...

    async def alter(self, targets: Targets) -> Outcomes:
        """Start reassignments (None: cancel), each on its own."""
        ...

    async def ongoing(self) -> dict[TopicPartition, ReplicaAssignment]:
        """What is on the move, in order."""
        ...


class ReassignmentAdmin:
    """The reassignments of one cluster, by requests to its controller."""

    def __init__(self, router: "Router") -> None:
        self._router = router
        self._topics = TopicAdmin(router)
        self._log_dirs = LogDirAdmin(router)

    async def layout(self, *, with_sizes: bool = True) -> ClusterLayout:
        """Brokers and replicas; of what is on the move, where it is going."""
        assignment = {
            TopicPartition(topic.name, it.partition): tuple(it.replicas)
            for topic in await self._topics.list_topics()
            for it in topic.partitions
        }
        if await self._router.max_version(ApiKey.LIST_PARTITION_REASSIGNMENTS) >= 0:
            for tp, moving in (await self.ongoing()).items():
                assignment[tp] = moving.target
        view = await self._router.refresh([])
        racks = {broker_id: view.brokers[broker_id].rack for broker_id in sorted(view.brokers)}
        sizes: dict[TopicPartition, int] = {}
        if with_sizes:
            for (tp, _), size in (await self.sizes()).items():
                sizes[tp] = max(size, sizes.get(tp, 0))
        return ClusterLayout(racks, assignment, sizes)

    async def sizes(
        self, topics: Sequence[str] | None = None
    ) -> dict[tuple[TopicPartition, int], int]:
        """Bytes of each replica by partition and broker; brokers that do not answer are left
        out, and brokers before Kafka 1.0 know none."""
        return sizes_of(await self._directories(topics))

    async def _directories(self, topics: Sequence[str] | None = None) -> list[LogDirDescription]:
        found: list[LogDirDescription] = []
        if await self._router.max_version(ApiKey.DESCRIBE_LOG_DIRS) >= 0:
            for broker_id in sorted((await self._router.refresh([])).brokers):
                with suppress(KctlError):
                    found += await self._log_dirs.describe([broker_id], topics)
        return found

    async def alter(self, targets: Targets) -> Outcomes:
        """Start reassignments (None: cancel), each on its own."""
        from kctl.protocol.messages.alter_partition_reassignments import (
            AlterPartitionReassignmentsRequest,
            ReassignablePartition,
            ReassignableTopic,
        )

        await self._check_version(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
        topics: dict[str, ReassignableTopic] = {}
        for tp, replicas in sorted(targets.items()):
            topic = topics.setdefault(tp.topic, ReassignableTopic(name=tp.topic))
            wanted = None if replicas is None else list(replicas)
            topic.partitions.append(
                ReassignablePartition(partition_index=tp.partition, replicas=wanted)
            )
        request = AlterPartitionReassignmentsRequest(
            topics=list(topics.values()), timeout_ms=self._router.timeout_ms
        )
        response = await self._router.send_to_controller(request)
        raise_for(response.error_code, response.error_message)
        outcomes: Outcomes = {
            tp: KctlError("The controller said nothing about it") for tp in sorted(targets)
        }
        for answered in response.responses:
            for item in answered.partitions:
                tp = TopicPartition(answered.name, item.partition_index)
                outcomes[tp] = error_of(item.error_code, item.error_message)
        return outcomes

    async def ongoing(self) -> dict[TopicPartition, ReplicaAssignment]:
        """What is on the move, in order."""
        from kctl.protocol.messages.list_partition_reassignments import (
            ListPartitionReassignmentsRequest,
        )

        await self._check_version(ApiKey.LIST_PARTITION_REASSIGNMENTS)
        response = await self._router.send_to_controller(
            ListPartitionReassignmentsRequest(topics=None, timeout_ms=self._router.timeout_ms)
        )
        raise_for(response.error_code, response.error_message)
        found = {
            TopicPartition(topic.name, item.partition_index): ReplicaAssignment(
                tuple(item.replicas), tuple(item.adding_replicas), tuple(item.removing_replicas)
            )
            for topic in response.topics
            for item in topic.partitions
        }
        return dict(sorted(found.items()))

    async def progress(self) -> list[MoveProgress]:
        """How far each partition on the move is, by the sizes of its replicas; then each replica
        on the move inside its broker."""
        moving = await self.ongoing()
        directories = await self._directories()
        sizes = sizes_of(directories)
        told = []
        for tp, assignment in moving.items():
            whole = max((sizes.get((tp, b), 0) for b in assignment.origin), default=0)
            copied = [min(sizes.get((tp, b), 0), whole) for b in assignment.adding]
            told.append(
                MoveProgress(
                    tp, assignment.adding, assignment.removing, sum(copied), whole * len(copied)
                )
            )
        return told + progress_inside(directories)

    async def _check_version(self, api: ApiKey) -> None:
        if await self._router.max_version(api) < 0:
            raise UsageError(
                "This cluster is older than Kafka 2.4: its brokers reassign by ZooKeeper only",
                hint="give --zookeeper HOST:PORT",
            )


def sizes_of(directories: Sequence[LogDirDescription]) -> dict[tuple[TopicPartition, int], int]:
    """Bytes of each replica by partition and broker."""
    return {
        (replica.partition, directory.broker_id): replica.size_bytes
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
    }


def progress_inside(directories: Sequence[LogDirDescription]) -> list[MoveProgress]:
    """How far each replica is that moves between directories of its broker."""
    sizes = sizes_of(directories)
    current = {
        (replica.partition, directory.broker_id): directory.path
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
    }
    told = []
    for directory in directories:
        for replica in directory.replicas:
            broker_id = directory.broker_id
            key = (replica.partition, broker_id)
            if replica.is_future:
                leaving = (f"{broker_id}:{current[key]}",) if key in current else ()
                arriving = (f"{broker_id}:{directory.path}",)
                whole = sizes.get(key, 0)
                done = min(replica.size_bytes, whole)
                told.append(
                    MoveProgress(replica.partition, arriving, leaving, done, whole, broker_id)
                )
    return told
