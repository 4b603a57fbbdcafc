"""DescribeLogDirs, AlterReplicaLogDirs: replicas and sizes by log directory, and moves (KIP-113).

Behaviour:

- topics=null requests all. Every live directory is listed, even if empty, and in it every topic:
  one that was not requested has no partitions.
- offset_lag is how far a replica lags behind the high watermark, 0 for a leader; for a future
  replica, which is moving into a directory, behind the current one.
- The reply does not wait for moves to end; naming the replica's current directory cancels a move.
- For a replica that does not exist yet the directory is remembered: REPLICA_NOT_AVAILABLE.

Versions: DescribeLogDirs 0-2 (v2 flexible), AlterReplicaLogDirs 0-1.

Kafka 2.7: kafka.server.KafkaApis (handleDescribeLogDirsRequest, handleAlterReplicaLogDirsRequest).
"""

from collections.abc import Sequence

from kctl.broker.replication.log_dirs import ReplicaInfo, describe_log_dirs
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
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kctl.work import Work, nested_parts, parts

# Partitions of a request that are read in one turn.
GATHERED_PER_TURN = 1_000
# Moves begun per turn of the loop: each may create a directory and a file.
MOVES_PER_TURN = 25


def handle_describe_log_dirs(services: Services, request: Request) -> None:
    """Reply once every replica has been looked at."""
    reply_in_turns(services.runtime.scheduler, request, _described(services, request.body))


def _described(services: Services, body: DescribeLogDirsRequest) -> Work[DescribeLogDirsResponse]:
    wanted = None
    if body.topics is not None:
        wanted = yield from _wanted(body.topics)
    response = DescribeLogDirsResponse()
    units = 0
    described = yield from describe_log_dirs(services.replica_manager.log_manager, wanted)
    for found in described:
        topics: dict[str, DescribeLogDirsTopic] = {}
        for names in parts([*found.topics], GATHERED_PER_TURN):
            units += len(names)
            if units > GATHERED_PER_TURN:
                units = len(names)
                yield
            topics.update((name, DescribeLogDirsTopic(name=name)) for name in names)
        for part in parts(found.replicas, GATHERED_PER_TURN):
            units += len(part)
            if units > GATHERED_PER_TURN:
                units = len(part)
                yield
            for replica in part:
                _add(replica, topics)
        response.results.append(
            DescribeLogDirsResult(
                error_code=found.error_code, log_dir=found.path, topics=list(topics.values())
            )
        )
    return response


def _wanted(topics: Sequence[DescribableLogDirTopic]) -> Work[set[tuple[str, int]]]:
    """Return the partitions that a request names."""
    wanted: set[tuple[str, int]] = set()
    groups = ((topic.topic, topic.partition_index) for topic in topics)
    for part in nested_parts(groups, GATHERED_PER_TURN):
        if part is None:
            yield
            continue
        name, numbers = part
        wanted.update((name, number) for number in numbers)
    return wanted


def _add(replica: ReplicaInfo, topics: dict[str, DescribeLogDirsTopic]) -> None:
    """Add a replica to its topic in `topics`."""
    name, number = replica.topic_partition
    topics[name].partitions.append(
        DescribeLogDirsPartition(
            partition_index=number,
            partition_size=replica.size,
            offset_lag=replica.offset_lag,
            is_future_key=replica.is_future,
        )
    )


def handle_alter_replica_log_dirs(services: Services, request: Request) -> None:
    """Reply when every move has begun or was rejected."""
    body: AlterReplicaLogDirsRequest = request.body
    reply_in_turns(services.runtime.scheduler, request, _altered(services, body))


def _moves(body: AlterReplicaLogDirsRequest) -> Work[dict[TopicPartition, str]]:
    """Return the directory of each partition; one that is named twice moves to the last one."""
    wanted: dict[TopicPartition, str] = {}
    groups = (
        ((directory.path, topic.name), topic.partitions)
        for directory in body.dirs
        for topic in directory.topics
    )
    for part in nested_parts(groups, GATHERED_PER_TURN):
        if part is None:
            yield
            continue
        (path, name), numbers = part
        wanted.update((TopicPartition(name, number), path) for number in numbers)
    return wanted


def _altered(
    services: Services, body: AlterReplicaLogDirsRequest
) -> Work[AlterReplicaLogDirsResponse]:
    wanted = yield from _moves(body)
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
