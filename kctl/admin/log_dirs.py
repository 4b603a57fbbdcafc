"""LogDirAdmin: how much of each partition lies in which log directory of which broker.

Kafka 2.7: kafka.admin.LogDirsCommand; KIP-113
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kctl.admin.result import error_of
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError

if TYPE_CHECKING:
    from kctl.client.router import Router


@dataclass(slots=True)
class ReplicaSize:
    """A replica in a log directory; future: it is being moved there."""

    partition: TopicPartition
    size_bytes: int
    # Records it is behind: the high watermark, or for a future replica the current one.
    offset_lag: int
    is_future: bool


@dataclass(slots=True)
class LogDirDescription:
    """One log directory; the error tells that it is offline."""

    broker_id: int
    path: str
    replicas: list[ReplicaSize] = field(default_factory=list)
    error: ApiError | None = None


class LogDirAdmin:
    """The log directories of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def describe(
        self,
        broker_ids: Iterable[int] | None = None,
        topics: Iterable[str] | None = None,
        timeout_ms: int | None = None,
    ) -> list[LogDirDescription]:
        """The directories of these brokers (all), with the replicas of these topics (all)."""
        from kctl.protocol.messages.describe_log_dirs import (
            DescribableLogDirTopic,
            DescribeLogDirsRequest,
        )

        wanted = None if topics is None else sorted(set(topics))
        view = await self._router.refresh(wanted)
        request = DescribeLogDirsRequest(
            topics=None
            if wanted is None
            else [
                DescribableLogDirTopic(topic=topic, partition_index=view.partitions_of(topic))
                for topic in wanted
            ]
        )
        described = []
        for broker_id in sorted(view.brokers) if broker_ids is None else broker_ids:
            response = await self._router.send_to_broker(broker_id, request, timeout_ms=timeout_ms)
            for item in response.results:
                replicas = [
                    ReplicaSize(
                        TopicPartition(topic.name, partition.partition_index),
                        partition.partition_size,
                        partition.offset_lag,
                        partition.is_future_key,
                    )
                    for topic in item.topics
                    for partition in topic.partitions
                ]
                replicas.sort(key=lambda replica: replica.partition)
                described.append(
                    LogDirDescription(broker_id, item.log_dir, replicas, error_of(item.error_code))
                )
        return described

    async def move(
        self, paths: Mapping[tuple[TopicPartition, int], str]
    ) -> dict[tuple[TopicPartition, int], ApiError | None]:
        """Tell brokers in which of their directories these replicas are to be. For a replica that
        a broker does not have yet it remembers the directory: REPLICA_NOT_AVAILABLE."""
        from kctl.protocol.messages.alter_replica_log_dirs import (
            AlterReplicaLogDir,
            AlterReplicaLogDirsRequest,
            AlterReplicaLogDirTopic,
        )

        outcomes: dict[tuple[TopicPartition, int], ApiError | None] = {}
        for broker_id in sorted({broker_id for _, broker_id in paths}):
            dirs: dict[str, AlterReplicaLogDir] = {}
            for (tp, broker), path in sorted(paths.items()):
                if broker == broker_id:
                    wanted = dirs.setdefault(path, AlterReplicaLogDir(path=path))
                    wanted.topics.append(
                        AlterReplicaLogDirTopic(name=tp.topic, partitions=[tp.partition])
                    )
            request = AlterReplicaLogDirsRequest(dirs=list(dirs.values()))
            response = await self._router.send_to_broker(broker_id, request)
            for topic in response.results:
                for item in topic.partitions:
                    tp = TopicPartition(topic.topic_name, item.partition_index)
                    outcomes[tp, broker_id] = error_of(item.error_code)
        return outcomes
