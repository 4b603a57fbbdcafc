"""Heartbeat: a member says that it is alive, and hears of rebalances.

API 12, v0-4. v3: static members (KIP-345).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, int16, int32, string


class HeartbeatRequest(Message, api=ApiKey.HEARTBEAT):
    """A member that is alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api=ApiKey.HEARTBEAT):
    """The result: NONE, or why the member must rejoin the group."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
