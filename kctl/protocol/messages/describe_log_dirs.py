"""DescribeLogDirs: describe the contents of a broker's log directories (KIP-113).

API 35, v0-2. v2: flexible.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32_array,
    int64,
    string,
)


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partition_index: list[int] = int32_array()


class DescribeLogDirsRequest(Message, api=ApiKey.DESCRIBE_LOG_DIRS):
    """Partitions to look for; null: all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """Size and lag of one replica in bytes and offsets."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """Replicas of one topic."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One log directory."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)


class DescribeLogDirsResponse(Message, api=ApiKey.DESCRIBE_LOG_DIRS):
    """The broker's log directories."""

    throttle_time_ms: int = int32()
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
