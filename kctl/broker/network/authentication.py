"""Authentication: the SASL exchange that a connection must complete before its first request.

    INITIAL ----ApiVersions----> VERSIONED
    INITIAL, VERSIONED --SaslHandshake v1--> EXCHANGE      tokens in SaslAuthenticate requests
    INITIAL, VERSIONED --SaslHandshake v0--> RAW_EXCHANGE  tokens as frames of their own
    EXCHANGE, RAW_EXCHANGE --the last token--> COMPLETE
    COMPLETE --SaslHandshake, if the session has a lifetime--> EXCHANGE, RAW_EXCHANGE   (KIP-368)
    any state but COMPLETE --anything else--> FAILED

A client may send ApiVersions once, not counting requests with an unknown version or an invalid
software name. The body of any other request is not parsed. After a failure the connection sends
the error response, if there is one, when the failure delay has passed, and closes.

A re-authentication must be by the same mechanism and the same principal, and its frames are as
small as those of the first. When the
session has expired, any request but SaslHandshake closes the connection.

Invariants: an illegal move raises and changes nothing; nothing follows FAILED; the principal
changes only with a move to COMPLETE.

The mechanisms are in `sasl_exchange.py`.

Kafka 2.7: SaslServerAuthenticator, SaslServerAuthenticator.ReauthInfo; KIP-43, KIP-152, KIP-368
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

from kctl.broker.api_versions import api_versions_response, is_valid_software
from kctl.broker.network.limits import UNAUTHENTICATED_BYTES_MAX
from kctl.broker.network.sasl_exchange import (
    CredentialSource,
    Reply,
    SaslExchange,
    exchange_of,
)
from kctl.broker.request import UNKNOWN_SOFTWARE, RequestContext
from kctl.configs.listener_security import SaslListener
from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.connection import read_request_header, response_frame
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kctl.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kctl.protocol.primitives import Buffer
from kctl.protocol.sasl.mechanism import (
    Identity,
    InvalidCredentials,
    SaslFailure,
    failure_message,
)
from kctl.protocol.schema import Message, Part

# Minimum time between the starts of two re-authentications of a connection.
REAUTHENTICATION_INTERVAL_MS = 1_000
_SIZE_BYTES = 4
_UNKNOWN_EPOCH = -1
# Maximum length of a mechanism's name in messages.
_NAME_SHOWN_MAX = 64


class AuthenticationState(Enum):
    """The state of the exchange."""

    INITIAL = "initial"
    VERSIONED = "versioned"
    EXCHANGE = "exchange"
    RAW_EXCHANGE = "raw exchange"
    COMPLETE = "complete"
    FAILED = "failed"


_S = AuthenticationState

LEGAL_MOVES: dict[AuthenticationState, frozenset[AuthenticationState]] = {
    _S.INITIAL: frozenset({_S.VERSIONED, _S.EXCHANGE, _S.RAW_EXCHANGE, _S.FAILED}),
    _S.VERSIONED: frozenset({_S.EXCHANGE, _S.RAW_EXCHANGE, _S.FAILED}),
    _S.EXCHANGE: frozenset({_S.COMPLETE, _S.FAILED}),
    _S.RAW_EXCHANGE: frozenset({_S.COMPLETE, _S.FAILED}),
    _S.COMPLETE: frozenset({_S.EXCHANGE, _S.RAW_EXCHANGE, _S.FAILED}),
    _S.FAILED: frozenset(),
}


class Step(NamedTuple):
    """The result of a frame: a response to send, if any; after a failure, wait and close."""

    response: list[Part] | None
    # Why the exchange failed, for the log; None if it did not.
    failure: str | None = None


class Authentication:
    """The SASL state of one connection, from its first byte to its last."""

    __slots__ = (
        "_credentials",
        "_exchange",
        "_lifetime_end_ms",
        "_listener",
        "_mechanism",
        "_new_mechanism",
        "_reauthenticated_ms",
        "_served",
        "_software",
        "is_token_authenticated",
        "principal",
        "state",
    )

    def __init__(
        self,
        listener: SaslListener,
        credentials: CredentialSource,
        served: Mapping[int, tuple[int, int]],
    ) -> None:
        self.state = _S.INITIAL
        # `User:name`, once authenticated.
        self.principal: str | None = None
        # Whether a delegation token authenticated it.
        self.is_token_authenticated = False
        self._listener = listener
        self._credentials = credentials
        self._served = served
        # When the last re-authentication began; None before the first.
        self._reauthenticated_ms: int | None = None
        self._lifetime_end_ms: int | None = None
        # The name and version of the client's library.
        self._software = (UNKNOWN_SOFTWARE, UNKNOWN_SOFTWARE)
        # The mechanism that authenticated the connection, and the one under way.
        self._mechanism: str | None = None
        self._new_mechanism = ""
        self._exchange: SaslExchange | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether requests may be served."""
        return self.state is _S.COMPLETE

    @property
    def is_failed(self) -> bool:
        """Return whether the connection is about to be closed."""
        return self.state is _S.FAILED

    @property
    def failure_delay_ms(self) -> int:
        """Return how long the response to a failure is delayed."""
        return self._listener.failure_delay_ms

    @property
    def has_lifetime(self) -> bool:
        """Return whether the session expires."""
        return self._lifetime_end_ms is not None

    def takes(self, frame: Buffer, now_ms: int) -> bool:
        """Return whether `frame` belongs to the exchange rather than to a handler.

        Raise CorruptDataError if the session has expired and the frame does not begin another one.
        """
        if self.state is not _S.COMPLETE:
            return True
        if self._lifetime_end_ms is None:
            return False
        api, *_ = read_request_header(frame)
        if api is ApiKey.SASL_HANDSHAKE and self._may_begin_again(now_ms):
            return True
        if now_ms >= self._lifetime_end_ms:
            raise CorruptDataError(f"{self.principal}: the session has expired")
        return False

    def receive(self, frame: Buffer, now_ms: int) -> Step:
        """Return what to do after `frame`; raise CorruptDataError if it is not a request."""
        if len(frame) > UNAUTHENTICATED_BYTES_MAX:
            # A re-authentication: the connection takes larger requests, but no client larger
            # tokens. Each costs work in proportion to its size.
            raise CorruptDataError(
                f"{len(frame)} bytes of authentication exceed {UNAUTHENTICATED_BYTES_MAX}"
            )
        if self.state is _S.RAW_EXCHANGE:
            return self._raw_token(bytes(frame), now_ms)
        api, version, correlation_id, _, position = read_request_header(frame)
        request = _RequestFrame(api, version, correlation_id, frame, position)
        if self.state is _S.EXCHANGE:
            if api is not ApiKey.SASL_AUTHENTICATE or not api.has_version(version):
                return self._fail(None, f"{api.title} v{version} during authentication")
            return self._token(request, now_ms)
        if api is ApiKey.API_VERSIONS and self.state is _S.INITIAL:
            return self._api_versions(request)
        if api is ApiKey.SASL_HANDSHAKE and api.has_version(version):
            return self._handshake(request, now_ms)
        return self._fail(None, f"{api.title} v{version} before authentication")

    def authenticated(self, context: RequestContext) -> RequestContext:
        """Return `context` with the principal of this connection."""
        assert self.principal is not None
        name, version = self._software
        return replace(
            context,
            principal=self.principal,
            is_token_authenticated=self.is_token_authenticated,
            software_name=name,
            software_version=version,
        )

    def _may_begin_again(self, now_ms: int) -> bool:
        last_ms = self._reauthenticated_ms
        return last_ms is None or now_ms - last_ms >= REAUTHENTICATION_INTERVAL_MS

    # --- one method for each kind of frame

    def _api_versions(self, request: "_RequestFrame") -> Step:
        api, version = request.api, request.version
        if not api.has_version(version):
            refusal = api_versions_response(
                {api: (api.min_version, api.max_version)}, ErrorCode.UNSUPPORTED_VERSION
            )
            return Step(response_frame(request.correlation_id, 0, encode(refusal, 0)))
        body = request.body()
        if version >= 3 and not is_valid_software(body):
            return Step(request.response(api_versions_response({}, ErrorCode.INVALID_REQUEST)))
        if version >= 3:
            self._software = (body.client_software_name, body.client_software_version)
        self._move(_S.VERSIONED)
        response = api_versions_response(self._served)
        response.finalized_features_epoch = _UNKNOWN_EPOCH
        return Step(request.response(response))

    def _handshake(self, request: "_RequestFrame", now_ms: int) -> Step:
        mechanism = request.body().mechanism
        offered = list(self._listener.mechanisms)
        response = SaslHandshakeResponse(mechanisms=offered)
        if mechanism not in offered and self._mechanism is None:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._fail(
                request.response(response),
                f"unsupported SASL mechanism {mechanism[:_NAME_SHOWN_MAX]}",
            )
        if self.state is _S.COMPLETE:
            self._reauthenticated_ms = now_ms
        self._move(_S.EXCHANGE if request.version else _S.RAW_EXCHANGE)
        self._new_mechanism = mechanism
        self._exchange = None
        return Step(request.response(response))

    def _token(self, request: "_RequestFrame", now_ms: int) -> Step:
        try:
            reply = self._evaluate(bytes(request.body().auth_bytes))
        except SaslFailure as error:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=self._public_reason(error),
            )
            return self._fail(request.response(response), error.reason)
        response = SaslAuthenticateResponse(error_message=None, auth_bytes=reply.token)
        if reply.identity is not None:
            response.session_lifetime_ms = self._complete(reply.identity, now_ms)
        return Step(request.response(response))

    def _raw_token(self, token: bytes, now_ms: int) -> Step:
        try:
            reply = self._evaluate(token)
        except SaslFailure as error:
            return self._fail(None, error.reason)
        if reply.identity is not None:
            self._complete(reply.identity, now_ms)
        return Step([len(reply.token).to_bytes(_SIZE_BYTES, "big") + reply.token])

    # --- identities

    def _evaluate(self, token: bytes) -> Reply:
        """Return the response to a token; raise SaslFailure."""
        mechanism = self._new_mechanism
        if self._mechanism not in (None, mechanism):
            raise InvalidCredentials(
                f"re-authentication by {mechanism[:_NAME_SHOWN_MAX]} instead of {self._mechanism}"
            )
        if self._exchange is None:
            self._exchange = exchange_of(mechanism, self._listener, self._credentials)
        reply = self._exchange.evaluate(token)
        if reply.identity is not None:
            self._check_same_principal(reply.identity)
        return reply

    def _check_same_principal(self, identity: Identity) -> None:
        principal = f"User:{identity.user}"
        if self.principal not in (None, principal):
            raise SaslFailure(
                "Cannot change principals during re-authentication from"
                f" {_with_dot(self.principal or '')}: {_with_dot(principal)}"
            )

    def _public_reason(self, error: SaslFailure) -> str:
        """Return the message for the client."""
        if isinstance(error, InvalidCredentials):
            mechanism = self._new_mechanism[:_NAME_SHOWN_MAX]
            return failure_message(mechanism, is_again=self._mechanism is not None)
        return str(error)

    # --- moves

    def _complete(self, identity: Identity, now_ms: int) -> int:
        """Return the lifetime of the session in milliseconds, 0 for no end."""
        self._move(_S.COMPLETE)
        self.principal, self._mechanism = f"User:{identity.user}", self._new_mechanism
        self.is_token_authenticated = identity.is_token_authenticated
        self._exchange = None
        lifetime_ms = self._listener.lifetime_ms(self._mechanism, identity.remaining_ms)
        self._lifetime_end_ms = now_ms + lifetime_ms if lifetime_ms else None
        return lifetime_ms

    def _fail(self, response: list[Part] | None, reason: str) -> Step:
        self._move(_S.FAILED)
        return Step(response, reason)

    def _move(self, target: AuthenticationState) -> None:
        if target not in LEGAL_MOVES[self.state]:
            raise RuntimeError(f"an authentication cannot go from {self.state} to {target}")
        self.state = target


class _RequestFrame(NamedTuple):
    """A request with a decoded header."""

    api: ApiKey
    version: int
    correlation_id: int
    frame: Buffer
    position: int

    def body(self) -> Any:
        """Return the decoded body; raise CorruptDataError."""
        return decode(self.api.request_class, self.version, self.frame, self.position)

    def response(self, response: Message) -> list[Part]:
        """Return the frame of `response`."""
        header_version = self.api.response_header_version(self.version)
        return response_frame(self.correlation_id, header_version, encode(response, self.version))


def _with_dot(principal: str) -> str:
    # Kafka 2.7's message has a dot there.
    return principal.replace(":", ".", 1)
