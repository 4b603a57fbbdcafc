"""OffsetDelete: forget a group's offsets of topics it is not subscribed to (KIP-496).

API 47, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    """One partition."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, api=ApiKey.OFFSET_DELETE):
    """Offsets to forget."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """The outcome of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """Outcomes of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, api=ApiKey.OFFSET_DELETE):
    """Outcomes by partition."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
