"""JoinGroup: become a member of a group, or stay one through a rebalance.

API 11, v0-7. v1: rebalance timeout (KIP-62); v4: members get an id first (KIP-394); v5: static
members (KIP-345); v7: protocol type (KIP-559).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, bytes_, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    """An assignor that the member supports, with its subscription."""

    name: str = string()
    metadata: bytes = bytes_()


class JoinGroupRequest(Message, api=ApiKey.JOIN_GROUP):
    """A member that joins; an empty member id: a new member."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)


class JoinGroupResponseMember(Struct):
    """A member, for the leader's assignment."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    metadata: bytes = bytes_()


class JoinGroupResponse(Message, api=ApiKey.JOIN_GROUP):
    """The new generation; only the leader receives the members."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
