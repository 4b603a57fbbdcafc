"""OAUTHBEARER: one message with a bearer token and extensions. Pure.

    n,[a=AUTHORIZATION_ID],^A auth=Bearer TOKEN ^A [KEY=VALUE ^A]... ^A        ^A is byte 1

A server that rejects the token responds with a JSON document instead of an error; the client
confirms it with the single byte ^A, and the exchange fails.

RFC 7628, KIP-255, KIP-342; Kafka 2.7: OAuthBearerClientInitialResponse, OAuthBearerSaslServer.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from kctl.errors import UsageError
from kctl.protocol.sasl.mechanism import InvalidCredentials, SaslFailure

CONFIRMATION = b"\x01"
_SEPARATOR = "\x01"
_AUTH = "auth"

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY = r"[A-Za-z]+"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_PAIRS = rf"(?:{_KEY}={_VALUE}\x01)*"
_MESSAGE = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
# Unlike Kafka 2.7, this accepts all characters of RFC 6750's tokens, as Kafka does since 3.0.
_BEARER = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class BearerMessage(NamedTuple):
    """The fields of the client's message."""

    token: str
    authorization_id: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"BearerMessage(extensions={sorted(self.extensions)})"


class RejectedToken(SaslFailure):
    """The server rejects the token: the message is the JSON document for the client, `reason` is
    for the log."""

    def __init__(
        self, reason: str, status: str = "invalid_token", scope: str | None = None
    ) -> None:
        suffix = "" if scope is None else f', "scope":"{scope}"'
        super().__init__(f'{{"status":"{status}"{suffix}}}')
        self._reason = reason

    @property
    def reason(self) -> str:
        """Return why the token is rejected."""
        return self._reason


def bearer_message(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """Return the client's message; raise UsageError for a token or extensions that it cannot
    contain."""
    if _BEARER.fullmatch(f"Bearer {token}") is None:
        raise UsageError("The OAUTHBEARER token contains characters that are not allowed")
    pairs = {_AUTH: f"Bearer {token}"}
    for key, value in (extensions or {}).items():
        if key == _AUTH or not re.fullmatch(_KEY, key) or not re.fullmatch(_VALUE, value):
            raise UsageError(f"The OAUTHBEARER extension {key!r} is invalid")
        pairs[key] = value
    text = "".join(f"{key}={value}{_SEPARATOR}" for key, value in pairs.items())
    return f"n,,{_SEPARATOR}{text}{_SEPARATOR}".encode()


def parse_bearer_message(message: bytes) -> BearerMessage:
    """Return the fields of the client's message; raise InvalidCredentials."""
    try:
        found = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise InvalidCredentials("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.partition("=")[::2] for pair in found["pairs"].split(_SEPARATOR) if pair)
    bearer = _BEARER.fullmatch(pairs.pop(_AUTH, ""))
    if bearer is None or bearer["scheme"].lower() != "bearer":
        raise InvalidCredentials("Invalid OAUTHBEARER client first message: no bearer token")
    return BearerMessage(bearer["token"], found["authzid"] or "", pairs)


def check_bearer_authorization_id(authorization_id: str, principal: str) -> None:
    """Raise SaslFailure unless the authorization id is absent or the token's principal."""
    if authorization_id and authorization_id != principal:
        raise SaslFailure(
            f"Authentication failed: Client requested an authorization id ({authorization_id})"
            f" that is different from the token's principal name ({principal})"
        )
