"""ReassignmentAdmin: the assignment of replicas, reassignments, and their progress.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient (alterPartitionReassignments,
listPartitionReassignments); KIP-455
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from kctl.admin.log_dirs import LogDirAdmin, LogDirDescription
from kctl.admin.reassignment_plan import ClusterLayout
from kctl.admin.topics import TopicAdmin
from kctl.client.results import error_of, raise_for
from kctl.errors import KctlError, UnsupportedVersionError
from kctl.lazy_dataclass import dataclass
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kctl.client.router import Router

Targets = Mapping[TopicPartition, Sequence[int] | None]
Outcomes = dict[TopicPartition, KctlError | None]


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """The progress of a partition that moves between brokers, or of a replica that moves between
    log directories: the bytes copied, of the bytes to copy."""

    partition: TopicPartition
    # The brokers that get a replica; within a broker, `broker:directory`.
    adding: tuple[int | str, ...]
    removing: tuple[int | str, ...]
    done_bytes: int
    total_bytes: int
    # The broker, for a move between log directories.
    broker_id: int | None = None

    @property
    def is_inside(self) -> bool:
        """Return whether it moves between directories of one broker."""
        return self.broker_id is not None

    @property
    def key(self) -> tuple[TopicPartition, int | None]:
        """Return the identity of the move."""
        return self.partition, self.broker_id


class Reassignments(Protocol):
    """The interface of a cluster's reassignments, by requests or by znodes."""

    async def layout(self, *, with_sizes: bool = True) -> ClusterLayout:
        """Return brokers and replicas; moving partitions have their targets."""
        ...

    async def alter(self, targets: Targets) -> Outcomes:
        """Start reassignments (None cancels); return an error or None per partition."""
        ...

    async def ongoing(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions whose replicas are moving, in order."""
        ...


class ReassignmentAdmin:
    """The reassignments of one cluster, by requests to its controller."""

    def __init__(self, router: "Router") -> None:
        self._router = router
        self._topics = TopicAdmin(router)
        self._log_dirs = LogDirAdmin(router)

    async def layout(self, *, with_sizes: bool = True) -> ClusterLayout:
        """Return brokers and replicas; moving partitions have their targets."""
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
        """Return the size of each replica in bytes by (partition, broker), without brokers that do
        not answer and those before Kafka 1.0."""
        return sizes_of(await self._directories(topics))

    async def _directories(self, topics: Sequence[str] | None = None) -> list[LogDirDescription]:
        found: list[LogDirDescription] = []
        if await self._router.max_version(ApiKey.DESCRIBE_LOG_DIRS) >= 0:
            for broker_id in sorted((await self._router.refresh([])).brokers):
                with suppress(KctlError):
                    found += await self._log_dirs.describe([broker_id], topics)
        return found

    async def alter(self, targets: Targets) -> Outcomes:
        """Start reassignments to the given replicas, preferred leader first (None cancels). Return
        an error or None per partition; raise UsageError if the cluster is older than Kafka 2.4
        (KIP-455)."""
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
            tp: KctlError("The controller did not answer for this partition")
            for tp in sorted(targets)
        }
        for answered in response.responses:
            for item in answered.partitions:
                tp = TopicPartition(answered.name, item.partition_index)
                outcomes[tp] = error_of(item.error_code, item.error_message)
        return outcomes

    async def ongoing(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the partitions whose replicas are moving, in order (KIP-455)."""
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
        """Return the progress of each moving partition, computed from the sizes of its replicas,
        then that of each replica that moves between directories of its broker."""
        moving = await self.ongoing()
        directories = await self._directories()
        sizes = sizes_of(directories)
        found = []
        for tp, assignment in moving.items():
            whole = max((sizes.get((tp, b), 0) for b in assignment.origin), default=0)
            copied = [min(sizes.get((tp, b), 0), whole) for b in assignment.adding]
            found.append(
                MoveProgress(
                    tp, assignment.adding, assignment.removing, sum(copied), whole * len(copied)
                )
            )
        return found + progress_inside(directories)

    async def _check_version(self, api: ApiKey) -> None:
        if await self._router.max_version(api) < 0:
            raise UnsupportedVersionError(
                "This cluster is older than Kafka 2.4: reassignment needs ZooKeeper",
                hint="give --zookeeper HOST:PORT",
            )


def sizes_of(directories: Sequence[LogDirDescription]) -> dict[tuple[TopicPartition, int], int]:
    """Return the size of each replica in bytes by (partition, broker)."""
    return {
        (replica.partition, directory.broker_id): replica.size_bytes
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
    }


def progress_inside(directories: Sequence[LogDirDescription]) -> list[MoveProgress]:
    """Return the progress of each replica that moves between directories of its broker."""
    sizes = sizes_of(directories)
    current = {
        (replica.partition, directory.broker_id): directory.path
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
    }
    found = []
    for directory in directories:
        for replica in directory.replicas:
            broker_id = directory.broker_id
            key = (replica.partition, broker_id)
            if replica.is_future:
                leaving = (f"{broker_id}:{current[key]}",) if key in current else ()
                arriving = (f"{broker_id}:{directory.path}",)
                whole = sizes.get(key, 0)
                done = min(replica.size_bytes, whole)
                found.append(
                    MoveProgress(replica.partition, arriving, leaving, done, whole, broker_id)
                )
    return found
