"""ListOffsets: find offsets by timestamp, also in tiered storage.

API 2, v7-10. v7: the largest timestamp (KIP-734); v8: the start of the local log (KIP-405); v9: the
end of the tiered log (KIP-1005); v10: a timeout for remote storage (KIP-1075). The timestamps that
have a meaning of their own are in `constants`.
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    """A timestamp to look up in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, api=LaterApi.LIST_OFFSETS):
    """Timestamps to look up."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """The offset found; -1 for none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """Offsets of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, api=LaterApi.LIST_OFFSETS):
    """Offsets found."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
