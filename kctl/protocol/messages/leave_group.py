"""LeaveGroup: members leave a group.

API 13, v0-4. v3: several at once, static ones too (KIP-345).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    """A member to remove, by member id or group.instance.id."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class LeaveGroupRequest(Message, api=ApiKey.LEAVE_GROUP):
    """The members that leave; one member until v2."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    """The outcome of one member."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, api=ApiKey.LEAVE_GROUP):
    """Outcomes by member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
