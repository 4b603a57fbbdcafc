"""SaslAuthenticate: one step of a SASL exchange (KIP-152).

API 36, v0-2. v1: session lifetime, for re-authentication (KIP-368).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, bytes_, int16, int64, string


class SaslAuthenticateRequest(Message, api=ApiKey.SASL_AUTHENTICATE):
    """The client's token."""

    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Message, api=ApiKey.SASL_AUTHENTICATE):
    """The broker's token; a session lifetime of 0 has no end."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", ignorable=True)
