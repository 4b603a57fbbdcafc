"""FindCoordinator: find the broker that coordinates a group or a transactional id.

API 10, v0-3. v1: transactional ids (KIP-98).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, int8, int16, int32, string


class FindCoordinatorRequest(Message, api=ApiKey.FIND_COORDINATOR):
    """A group id (key type 0) or a transactional id (1)."""

    key: str = string()
    key_type: int = int8("1+")


class FindCoordinatorResponse(Message, api=ApiKey.FIND_COORDINATOR):
    """The coordinator's address."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="1+", ignorable=True)
    node_id: int = int32()
    host: str = string()
    port: int = int32()
