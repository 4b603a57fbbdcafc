"""SaslHandshake and SaslAuthenticate as ordinary requests: on connections that are already
authenticated.

Behaviour:

- The exchange that authenticates a connection is `kctl.broker.network.authentication`; requests
  that reach this handler come from connections that need no authentication: ILLEGAL_SASL_STATE.

Versions: SaslHandshake 0-1, SaslAuthenticate 0-2.

Kafka 2.7: KafkaApis.handleSaslHandshakeRequest, handleSaslAuthenticateRequest.
"""

from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kctl.protocol.messages.sasl_handshake import SaslHandshakeResponse


def handle_sasl_handshake(_services: Services, request: Request) -> None:
    """Reply at once with an error."""
    request.reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


def handle_sasl_authenticate(_services: Services, request: Request) -> None:
    """Reply at once with an error."""
    request.reply(
        SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    )
