"""SyncGroup: the group's leader hands out assignments, and each member gets its own.

API 14, v0-5. v3: static members (KIP-345); v5: protocol type and name (KIP-559).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, bytes_, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member."""

    member_id: str = string()
    assignment: bytes = bytes_()


class SyncGroupRequest(Message, api=ApiKey.SYNC_GROUP):
    """Assignments from the leader; none from the others."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api=ApiKey.SYNC_GROUP):
    """The assignment of this member."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = bytes_()
