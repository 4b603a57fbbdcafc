"""DescribeGroups: a group's state and members.

API 15, v0-5. v3: authorized operations (KIP-430); v4: static members (KIP-345).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    int16,
    int32,
    string,
    string_array,
)


class DescribeGroupsRequest(Message, api=ApiKey.DESCRIBE_GROUPS):
    """Groups to describe."""

    groups: list[str] = string_array()
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    """One member."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Struct):
    """One group."""

    error_code: int = int16()
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-(2**31))


class DescribeGroupsResponse(Message, api=ApiKey.DESCRIBE_GROUPS):
    """Groups described."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
