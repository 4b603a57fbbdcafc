"""DescribeLogDirs, AlterReplicaLogDirs: which replicas lie in which log directory, how large they
are, and where they shall lie (KIP-113).

Behaviour:
- topics=null asks for all. Every live directory is named, also an empty one.
- offset_lag is how far a replica is behind the high watermark, 0 for a leader; a future replica,
  on its way into a directory, is behind the current one.
- A move is begun, not waited for; the directory where the replica lies ends one that is under way.
- For a replica that is still to come the directory is remembered: REPLICA_NOT_AVAILABLE.

Versions: DescribeLogDirs 0-2 (v2 flexible), AlterReplicaLogDirs 0-1.

Kafka 2.7: kafka.server.KafkaApis (handleDescribeLogDirsRequest, handleAlterReplicaLogDirsRequest).
"""

from kctl.broker.replication.log_dirs import LogDirDescription, describe_log_dirs
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.model import TopicPartition
from kctl.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kctl.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

# What a request asks for; None: everything.
Wanted = set[tuple[str, int]] | None


def handle_describe_log_dirs(services: Services, request: Request) -> None:
    """Answer at once, directory by directory."""
    body: DescribeLogDirsRequest = request.body
    wanted = (
        None
        if body.topics is None
        else {(topic.topic, number) for topic in body.topics for number in topic.partition_index}
    )
    found = describe_log_dirs(services.replica_manager.log_manager)
    results = [_describe(directory, wanted) for directory in found]
    request.reply(DescribeLogDirsResponse(results=results))


def _describe(found: LogDirDescription, wanted: Wanted) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in found.replicas:
        if wanted is not None and replica.topic_partition not in wanted:
            continue
        name, number = replica.topic_partition
        if name not in topics:
            topics[name] = DescribeLogDirsTopic(name=name)
        topics[name].partitions.append(
            DescribeLogDirsPartition(
                partition_index=number,
                partition_size=replica.size,
                offset_lag=replica.offset_lag,
                is_future_key=replica.is_future,
            )
        )
    return DescribeLogDirsResult(
        error_code=found.error_code, log_dir=found.path, topics=list(topics.values())
    )


def handle_alter_replica_log_dirs(services: Services, request: Request) -> None:
    """Answer when every move has begun, or was refused."""
    body: AlterReplicaLogDirsRequest = request.body
    # A partition that is named twice goes where it was sent last.
    wanted = {
        TopicPartition(topic.name, number): directory.path
        for directory in body.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for tp, path in wanted.items():
        result = topics.setdefault(tp.topic, AlterReplicaLogDirTopicResult(topic_name=tp.topic))
        code = services.alter_log_dirs.alter(tp, path)
        result.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=code)
        )
    request.reply(AlterReplicaLogDirsResponse(results=list(topics.values())))
