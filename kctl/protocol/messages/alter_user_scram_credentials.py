"""AlterUserScramCredentials: set and delete users' SCRAM credentials (KIP-554).

API 51, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, bytes_, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    """A credential to delete."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """A credential to set, salted by the client."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


class AlterUserScramCredentialsRequest(Message, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    """Credentials to change."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """The outcome of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Message, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    """Outcomes by user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
