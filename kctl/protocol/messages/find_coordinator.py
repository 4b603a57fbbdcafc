"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, int8, int16, int32, string


class FindCoordinatorRequest(Message, api=ApiKey.FIND_COORDINATOR):
    """TODO."""

    key: str = string()
    key_type: int = int8("1+")


class FindCoordinatorResponse(Message, api=ApiKey.FIND_COORDINATOR):
    """TODO."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="1+", ignorable=True)
    node_id: int = int32()
    host: str = string()
    port: int = int32()
