"""OffsetForLeaderEpoch: find the end offset of a leader epoch (KIP-101).

API 23, v0-3. v1: the epoch too (KIP-279); v2: fencing (KIP-320); v3: replica id, for followers.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    """An epoch to look up in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    """Epochs to look up; replica_id -2: unknown."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class OffsetForLeaderPartitionResult(Struct):
    """The end offset of the epoch, or of the largest one below it."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64()


class OffsetForLeaderTopicResult(Struct):
    """Answers of one topic."""

    name: str = string()
    partitions: list[OffsetForLeaderPartitionResult] = array(OffsetForLeaderPartitionResult)


class OffsetForLeaderEpochResponse(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    """End offsets found."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
