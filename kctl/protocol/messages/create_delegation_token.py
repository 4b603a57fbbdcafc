"""CreateDelegationToken: get a delegation token (KIP-48).

API 38, v0-2.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, bytes_, int16, int32, int64, string


class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Message, api=ApiKey.CREATE_DELEGATION_TOKEN):
    """The renewers, and the maximum lifetime in milliseconds (-1: the broker's)."""

    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Message, api=ApiKey.CREATE_DELEGATION_TOKEN):
    """The new token."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32()
