"""ConsumerGroupDescribe: a group of the consumer protocol and its members (KIP-848).

API 69, v0-1. v1: the protocol of each member (KIP-1099).
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int32_array,
    string,
    string_array,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Message, api=LaterApi.CONSUMER_GROUP_DESCRIBE):
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
    """A member; its type is 0 for the classic protocol, 1 for the consumer protocol."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = string_array()
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


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


class ConsumerGroupDescribeResponse(Message, api=LaterApi.CONSUMER_GROUP_DESCRIBE):
    """Groups described."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
