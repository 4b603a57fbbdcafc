"""DescribeLogDirs: which partitions lie in which log directory, and how large they are (KIP-113).

Behaviour:
- topics=null asks for all. Every live directory is named, also an empty one.
- offset_lag is how far a replica is behind the high watermark; 0 for a leader.

Versions: 0-2. v2 flexible.

Kafka 2.7: kafka.server.KafkaApis.handleDescribeLogDirsRequest.
"""

from kctl.broker.replication.replica_manager import LogDirDescription
from kctl.broker.request import Request
from kctl.broker.services import Services
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
    results = [_describe(found, wanted) for found in services.replica_manager.describe_log_dirs()]
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
            )
        )
    return DescribeLogDirsResult(
        error_code=found.error_code, log_dir=found.path, topics=list(topics.values())
    )
