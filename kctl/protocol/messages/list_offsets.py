"""ListOffsets: find offsets by timestamp; -1 is the end of the log, -2 its start.

API 2, v0-5. v1: one offset instead of several (KIP-79); v2: isolation levels (KIP-98); v4: leader
epochs (KIP-320).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    int64_array,
    string,
)


class ListOffsetPartition(Struct):
    """A timestamp to look up in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


class ListOffsetTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetPartition] = array(ListOffsetPartition)


class ListOffsetRequest(Message, api=ApiKey.LIST_OFFSETS):
    """Timestamps to look up."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetTopic] = array(ListOffsetTopic)


class ListOffsetPartitionResponse(Struct):
    """The first offset at or after the timestamp; -1 for none."""

    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = int64_array("0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetTopicResponse(Struct):
    """Answers of one topic."""

    name: str = string()
    partitions: list[ListOffsetPartitionResponse] = array(ListOffsetPartitionResponse)


class ListOffsetResponse(Message, api=ApiKey.LIST_OFFSETS):
    """Offsets found."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetTopicResponse] = array(ListOffsetTopicResponse)
