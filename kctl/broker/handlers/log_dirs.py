"""DescribeLogDirs: which partitions lie in which log directory, and how large they are (KIP-113).

Behaviour:
- topics=null asks for all. Every live directory is named, also an empty one.
- offset_lag is how far a replica is behind the high watermark; 0 for a leader.

Versions: 0-2. v2 flexible.

Kafka 2.7: kafka.server.KafkaApis.handleDescribeLogDirsRequest.
"""

from kctl.broker.log.unified_log import UnifiedLog
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle_describe_log_dirs(services: Services, request: Request) -> None:
    """Answer at once, directory by directory."""
    body: DescribeLogDirsRequest = request.body
    wanted = (
        None
        if body.topics is None
        else {(topic.topic, number) for topic in body.topics for number in topic.partition_index}
    )
    manager = services.log_manager
    by_directory: dict[str, list[UnifiedLog]] = {path: [] for path in manager.live_log_dirs}
    for log in manager.all_logs():
        if wanted is None or log.topic_partition in wanted:
            by_directory.setdefault(log.log_directory, []).append(log)
    results = [_describe(path, logs) for path, logs in by_directory.items()]
    results += [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        for path in manager.offline_log_dirs
    ]
    request.reply(DescribeLogDirsResponse(results=results))


def _describe(path: str, logs: list[UnifiedLog]) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in logs:
        name, number = log.topic_partition
        if name not in topics:
            topics[name] = DescribeLogDirsTopic(name=name)
        topics[name].partitions.append(
            DescribeLogDirsPartition(
                partition_index=number,
                partition_size=log.size,
                offset_lag=max(0, log.high_watermark - log.log_end_offset),
            )
        )
    return DescribeLogDirsResult(log_dir=path, topics=list(topics.values()))
