"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    """TODO."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    """TODO."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class OffsetForLeaderPartitionResult(Struct):
    """TODO."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64()


class OffsetForLeaderTopicResult(Struct):
    """TODO."""

    name: str = string()
    partitions: list[OffsetForLeaderPartitionResult] = array(OffsetForLeaderPartitionResult)


class OffsetForLeaderEpochResponse(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    """TODO."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
