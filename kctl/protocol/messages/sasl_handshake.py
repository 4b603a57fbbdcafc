"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, int16, string, string_array


class SaslHandshakeRequest(Message, api=ApiKey.SASL_HANDSHAKE):
    """TODO."""

    mechanism: str = string()


class SaslHandshakeResponse(Message, api=ApiKey.SASL_HANDSHAKE):
    """TODO."""

    error_code: int = int16()
    mechanisms: list[str] = string_array()
