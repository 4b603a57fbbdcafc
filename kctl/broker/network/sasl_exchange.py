"""SaslExchange: the broker's side of one exchange of tokens, for each mechanism. Pure.

An exchange takes the client's tokens in order and returns a response to each, and with the last one
the identity of the client. It raises SaslFailure if the client is not who it says.

A delegation token authenticates by SCRAM with the extension `tokenauth=true`: its id is the user
name, its HMAC the password, and the identity is the token's owner (KIP-48).

Kafka 2.7: SaslServerAuthenticator, PlainSaslServer, ScramSaslServer, OAuthBearerSaslServer.
"""

from typing import NamedTuple, Protocol

from kctl.configs.listener_security import SaslListener
from kctl.configs.oauthbearer_configs import BearerConfig
from kctl.protocol.sasl.mechanism import OAUTHBEARER, PLAIN, Identity, SaslFailure
from kctl.protocol.sasl.oauthbearer import (
    CONFIRMATION,
    RejectedToken,
    check_bearer_authorization_id,
    parse_bearer_message,
)
from kctl.protocol.sasl.plain import plain_user
from kctl.protocol.sasl.scram import (
    BY_NAME,
    TOKEN_EXTENSION,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    TokenCredential,
)


class CredentialSource(Protocol):
    """What the clients of a cluster authenticate with."""

    def scram(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """Return the credential of `user`, or one that no password fits."""
        ...

    def delegation_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential:
        """Return the credential of a delegation token, or one that no password fits."""
        ...

    def bearer(self, config: BearerConfig, token: str) -> Identity:
        """Return the identity of a bearer token; raise RejectedToken."""
        ...

    def nonce(self) -> str:
        """Return a random text that SCRAM allows as a nonce."""
        ...


class Reply(NamedTuple):
    """The response to a token; with the last one, the client's identity."""

    token: bytes
    identity: Identity | None = None


class SaslExchange(Protocol):
    """One exchange, from the client's first token to its last."""

    def evaluate(self, token: bytes) -> Reply:
        """Return the response to `token`; raise SaslFailure."""
        ...


def exchange_of(
    mechanism: str, listener: SaslListener, credentials: CredentialSource
) -> SaslExchange:
    """Return a new exchange by `mechanism`, which the listener offers."""
    if mechanism == PLAIN:
        return _PlainExchange(listener)
    if mechanism == OAUTHBEARER:
        assert listener.bearer is not None
        return _BearerExchange(listener.bearer, credentials)
    return _ScramExchange(BY_NAME[mechanism], credentials)


class _PlainExchange:
    def __init__(self, listener: SaslListener) -> None:
        self._passwords = listener.plain_passwords

    def evaluate(self, token: bytes) -> Reply:
        """Return an empty response and the user."""
        return Reply(b"", Identity(plain_user(token, self._passwords)))


class _ScramExchange:
    def __init__(self, mechanism: ScramMechanism, credentials: CredentialSource) -> None:
        self._credentials = credentials
        self._server = ScramServer(mechanism)
        # Whom the first message names.
        self._identity: Identity | None = None

    def evaluate(self, token: bytes) -> Reply:
        """Return the server's first or final message."""
        server = self._server
        if self._identity is not None:
            return Reply(server.final(token), self._identity)
        first = server.parse_first(token)
        if first.extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            credential, self._identity = self._credentials.delegation_token(
                server.mechanism, first.user
            )
        else:
            credential = self._credentials.scram(server.mechanism, first.user)
            self._identity = Identity(first.user)
        return Reply(server.first(credential, self._credentials.nonce()))


class _BearerExchange:
    def __init__(self, config: BearerConfig, credentials: CredentialSource) -> None:
        self._config = config
        self._credentials = credentials
        self._rejection: RejectedToken | None = None

    def evaluate(self, token: bytes) -> Reply:
        """Return an empty response and the token's principal, or a document that rejects the token,
        after which the client can only confirm the rejection."""
        if self._rejection is not None:
            if token != CONFIRMATION:
                raise SaslFailure(str(self._rejection))
            raise self._rejection
        message = parse_bearer_message(token)
        try:
            identity = self._credentials.bearer(self._config, message.token)
        except RejectedToken as error:
            self._rejection = error
            return Reply(str(error).encode())
        check_bearer_authorization_id(message.authorization_id, identity.user)
        return Reply(b"", identity)
