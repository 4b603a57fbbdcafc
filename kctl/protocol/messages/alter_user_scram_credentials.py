"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, bytes_, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    """TODO."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """TODO."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


class AlterUserScramCredentialsRequest(Message, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    """TODO."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """TODO."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Message, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    """TODO."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
