"""TODO."""

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
    """TODO."""

    topic: str = string()
    partition_index: list[int] = int32_array()


class DescribeLogDirsRequest(Message, api=ApiKey.DESCRIBE_LOG_DIRS):
    """TODO."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """TODO."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """TODO."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)


class DescribeLogDirsResponse(Message, api=ApiKey.DESCRIBE_LOG_DIRS):
    """TODO."""

    throttle_time_ms: int = int32()
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
