"""DescribeUserScramCredentials: which SCRAM credentials users have (KIP-554).

API 50, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int8, int16, int32, string


class UserName(Struct):
    """A user to describe."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    """Users to describe; null or none: all."""

    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    """One credential: mechanism 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    """Credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    """Credentials by user."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
