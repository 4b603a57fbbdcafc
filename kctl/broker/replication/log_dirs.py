"""The replicas in each log directory of a broker.

Kafka 2.7: kafka.server.ReplicaManager (`describeLogDirs`); KIP-113.
"""

from collections.abc import Container
from dataclasses import field

from kctl.broker.log.log_manager import LogManager
from kctl.broker.log.unified_log import UnifiedLog
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.work import Work, parts

UNKNOWN_LAG = -1
# Replicas that are described in one turn, within 5 ms.
REPLICAS_PER_TURN = 500


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
    # Every topic with a replica here, wanted or not; a dict for its order.
    topics: dict[str, None] = field(default_factory=dict)


def describe_log_dirs(
    manager: LogManager, wanted: Container[tuple[str, int]] | None = None
) -> Work[list[LogDirDescription]]:
    """Return each log directory with its replicas, or those of `wanted` partitions, with a `yield`
    after every REPLICAS_PER_TURN, and the names of all topics; the directories that failed come
    last, without replicas."""
    replicas: dict[str, list[ReplicaInfo]] = {path: [] for path in manager.live_log_dirs}
    topics: dict[str, dict[str, None]] = {path: {} for path in manager.live_log_dirs}
    logs = [(log, False) for log in manager.all_logs()]
    logs += [(log, True) for log in manager.futures.all()]
    for part in parts(logs, REPLICAS_PER_TURN):
        if part[0] is not logs[0]:
            yield
        for log, is_future in part:
            # A turn may have closed a log, because it was deleted or its directory failed.
            if log.is_closed:
                continue
            topics[log.log_directory][log.topic_partition.topic] = None
            if wanted is None or log.topic_partition in wanted:
                lag = _lag(manager, log, is_future=is_future)
                info = ReplicaInfo(log.topic_partition, log.size, lag, is_future)
                replicas[log.log_directory].append(info)
    live = [
        LogDirDescription(path, 0, replicas[path], topics[path]) for path in manager.live_log_dirs
    ]
    failed = [
        LogDirDescription(path, ErrorCode.KAFKA_STORAGE_ERROR) for path in manager.offline_log_dirs
    ]
    return [*live, *failed]


def _lag(manager: LogManager, log: UnifiedLog, *, is_future: bool) -> int:
    if not is_future:
        return max(0, log.high_watermark - log.log_end_offset)
    current = manager.get_log(log.topic_partition)
    return UNKNOWN_LAG if current is None else current.log_end_offset - log.log_end_offset
