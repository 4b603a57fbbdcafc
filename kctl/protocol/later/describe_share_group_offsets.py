"""DescribeShareGroupOffsets: the start offsets of share groups (KIP-932).

API 90, v0.
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int32_array,
    int64,
    string,
    uuid,
)


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[int] = int32_array()


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """A group; null topics: all that it reads."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, api=LaterApi.DESCRIBE_SHARE_GROUP_OFFSETS):
    """Groups to describe."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """The first offset that is not yet acknowledged; -1 if the group has not read it."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """Offsets of one topic."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """Offsets of one group."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Message, api=LaterApi.DESCRIBE_SHARE_GROUP_OFFSETS):
    """Offsets found."""

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )
