"""DescribeDelegationToken: list delegation tokens (KIP-48).

API 41, v0-2.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, bytes_, int16, int32, int64, string


class DescribeDelegationTokenOwner(Struct):
    """An owner of tokens to describe."""

    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Message, api=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    """The owners of the tokens; null: all."""

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable="0+"
    )


class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew the token."""

    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Struct):
    """One token."""

    principal_type: str = string()
    principal_name: str = string()
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Message, api=ApiKey.DESCRIBE_DELEGATION_TOKEN):
    """Tokens that the asker may see."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
