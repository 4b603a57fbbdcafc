"""The replicas in each log directory of a broker.

Kafka 2.7: kafka.server.ReplicaManager (`describeLogDirs`); KIP-113.
"""

from dataclasses import dataclass, field

from kctl.broker.log.log_manager import LogManager
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode

UNKNOWN_LAG = -1


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a log directory; size in bytes, lag in offsets."""

    topic_partition: TopicPartition
    size: int
    # Lag behind the high watermark; of a future log, behind the current log.
    offset_lag: int
    # Whether it is moving into this directory.
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory."""

    path: str
    error_code: int = 0
    replicas: list[ReplicaInfo] = field(default_factory=list)


def describe_log_dirs(manager: LogManager) -> list[LogDirDescription]:
    """Return each log directory with its replicas; the failed ones come last."""
    found = {path: LogDirDescription(path) for path in manager.live_log_dirs}
    for log in manager.all_logs():
        lag = max(0, log.high_watermark - log.log_end_offset)
        found[log.log_directory].replicas.append(ReplicaInfo(log.topic_partition, log.size, lag))
    for log in manager.futures.all():
        current = manager.get_log(log.topic_partition)
        lag = UNKNOWN_LAG if current is None else current.log_end_offset - log.log_end_offset
        info = ReplicaInfo(log.topic_partition, log.size, lag, is_future=True)
        found[log.log_directory].replicas.append(info)
    failed = [
        LogDirDescription(path, ErrorCode.KAFKA_STORAGE_ERROR) for path in manager.offline_log_dirs
    ]
    return [*found.values(), *failed]
