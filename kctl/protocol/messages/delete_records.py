"""DeleteRecords: move the start of logs forward (KIP-107).

API 21, v0-2. v2: flexible.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    """The first offset to keep in one partition; -1: delete all records."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, api=ApiKey.DELETE_RECORDS):
    """Records to delete."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """The new start of one partition's log."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """Outcomes of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, api=ApiKey.DELETE_RECORDS):
    """Outcomes by partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
