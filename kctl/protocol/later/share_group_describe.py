"""ShareGroupDescribe: a share group and its members (KIP-932).

API 77, v1.
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32_array,
    string,
    string_array,
    struct,
    uuid,
)


class ShareGroupDescribeRequest(Message, api=LaterApi.SHARE_GROUP_DESCRIBE):
    """Groups to describe."""

    group_ids: list[str] = string_array()
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = int32_array()


class Assignment(Struct):
    """The partitions of a member."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    """A member; several members may read the same partition."""

    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = string_array()
    assignment: Assignment = struct(Assignment)


class DescribedGroup(Struct):
    """One group."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-(2**31))


class ShareGroupDescribeResponse(Message, api=LaterApi.SHARE_GROUP_DESCRIBE):
    """Groups described."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
