"""ExpireDelegationToken: let a delegation token expire sooner (KIP-48).

API 40, v0-2.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, bytes_, int16, int32, int64


class ExpireDelegationTokenRequest(Message, api=ApiKey.EXPIRE_DELEGATION_TOKEN):
    """Which token, and in how long (negative: at once)."""

    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, api=ApiKey.EXPIRE_DELEGATION_TOKEN):
    """The new expiry time."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
