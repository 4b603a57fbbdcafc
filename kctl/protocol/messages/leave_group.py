"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, string


class MemberIdentity(Struct):
    """TODO."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class LeaveGroupRequest(Message, api=ApiKey.LEAVE_GROUP):
    """TODO."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    """TODO."""

    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, api=ApiKey.LEAVE_GROUP):
    """TODO."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
