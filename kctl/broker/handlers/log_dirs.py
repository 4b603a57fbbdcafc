"""DescribeLogDirs, AlterReplicaLogDirs: replicas and sizes by log directory, and moves (KIP-113).

Behaviour:

- topics=null requests all. Every live directory is listed, even if empty.
- offset_lag is how far a replica lags behind the high watermark, 0 for a leader; for a future
  replica, which is moving into a directory, behind the current one.
- The reply does not wait for moves to end; naming the replica's current directory cancels a move.
- For a replica that does not exist yet the directory is remembered: REPLICA_NOT_AVAILABLE.

Versions: DescribeLogDirs 0-2 (v2 flexible), AlterReplicaLogDirs 0-1.

Kafka 2.7: kafka.server.KafkaApis (handleDescribeLogDirsRequest, handleAlterReplicaLogDirsRequest).
"""

from kctl.broker.replication.log_dirs import LogDirDescription, describe_log_dirs
from kctl.broker.replies import reply_in_turns
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
from kctl.work import Work

# Moves begun per turn of the loop: each may create a directory and a file.
MOVES_PER_TURN = 25
# The requested partitions; None: all.
Wanted = set[tuple[str, int]] | None


def handle_describe_log_dirs(services: Services, request: Request) -> None:
    """Reply at once, directory by directory."""
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
    """Reply when every move has begun or was rejected."""
    body: AlterReplicaLogDirsRequest = request.body
    # A partition that is named twice moves to the last directory.
    wanted = {
        TopicPartition(topic.name, number): directory.path
        for directory in body.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    reply_in_turns(services.runtime.scheduler, request, _altered(services, wanted))


def _altered(
    services: Services, wanted: dict[TopicPartition, str]
) -> Work[AlterReplicaLogDirsResponse]:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for number, (tp, path) in enumerate(wanted.items()):
        if number and number % MOVES_PER_TURN == 0:
            yield
        result = topics.setdefault(tp.topic, AlterReplicaLogDirTopicResult(topic_name=tp.topic))
        code = services.alter_log_dirs.alter(tp, path)
        result.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
