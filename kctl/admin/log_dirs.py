"""LogDirAdmin: log directories, the sizes of their replicas, and moves between them.

Kafka 2.7: kafka.admin.LogDirsCommand; KIP-113
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.client.results import error_of
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError

if TYPE_CHECKING:
    from kctl.client.router import Router


@dataclass(slots=True)
class ReplicaSize:
    """A replica in a log directory; a future replica is being moved there."""

    partition: TopicPartition
    size_bytes: int
    # Records it lags behind the high watermark, or a future replica behind the current one.
    offset_lag: int
    is_future: bool


@dataclass(slots=True)
class LogDirDescription:
    """A log directory; `error` is set if it is offline."""

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
        """Return the log directories of `broker_ids`, with the sizes of the replicas of `topics`.

        None stands for all. `timeout_ms` limits the request to each broker. Raise UnreachableError
        if a broker does not answer (KIP-113).
        """
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
        """Move replicas to other log directories of their brokers: (partition, broker) ->
        directory.

        Return an error or None per replica. REPLICA_NOT_AVAILABLE means that the broker does not
        have the replica yet and remembers the directory for it (KIP-113).
        """
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
