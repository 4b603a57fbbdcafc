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


class OffsetFetchRequestTopic(Struct):
    """TODO."""

    name: str = string()
    partition_indexes: list[int] = int32_array()


class OffsetFetchRequest(Message, api=ApiKey.OFFSET_FETCH):
    """TODO."""

    group_id: str = string()
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, nullable="2+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Struct):
    """TODO."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1, ignorable=True)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponse(Message, api=ApiKey.OFFSET_FETCH):
    """TODO."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16("2+", ignorable=True)
