"""RenewDelegationToken: put off a delegation token's expiry (KIP-48).

API 39, v0-2.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, bytes_, int16, int32, int64


class RenewDelegationTokenRequest(Message, api=ApiKey.RENEW_DELEGATION_TOKEN):
    """Which token, and for how long (-1: the broker's period)."""

    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, api=ApiKey.RENEW_DELEGATION_TOKEN):
    """The new expiry time."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
