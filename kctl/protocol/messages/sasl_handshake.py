"""SaslHandshake: choose a SASL mechanism.

API 17, v0-1. v0: tokens follow as bare bytes; v1: in SaslAuthenticate (KIP-152).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, int16, string, string_array


class SaslHandshakeRequest(Message, api=ApiKey.SASL_HANDSHAKE):
    """The mechanism that the client wants."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, api=ApiKey.SASL_HANDSHAKE):
    """Mechanisms that the broker offers."""

    error_code: int = int16()
    mechanisms: list[str] = string_array()
