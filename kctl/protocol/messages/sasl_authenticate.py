"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, bytes_, int16, int64, string


class SaslAuthenticateRequest(Message, api=ApiKey.SASL_AUTHENTICATE):
    """TODO."""

    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Message, api=ApiKey.SASL_AUTHENTICATE):
    """TODO."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", ignorable=True)
