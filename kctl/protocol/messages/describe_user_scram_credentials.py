"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int8, int16, int32, string


class UserName(Struct):
    """TODO."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    """TODO."""

    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    """TODO."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    """TODO."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    """TODO."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
