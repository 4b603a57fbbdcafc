"""OffsetFetch: read a group's committed offsets.

API 9, v0-7. v2: all partitions of the group (KIP-88); v5: leader epochs (KIP-320); v7: stable
offsets only (KIP-447).
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


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = int32_array()


class OffsetFetchRequest(Message, api=ApiKey.OFFSET_FETCH):
    """Partitions to look up; null: all that the group has."""

    group_id: str = string()
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, nullable="2+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Struct):
    """A committed offset; -1 for none."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1, ignorable=True)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """Offsets of one topic."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponse(Message, api=ApiKey.OFFSET_FETCH):
    """Committed offsets."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16("2+", ignorable=True)
