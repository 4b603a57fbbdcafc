"""PLAIN: one message with user name and password. Pure.

    [authorization id] NUL user NUL password        in UTF-8

An authorization id is only accepted if it is the user (CVE-2017-12610). A password is compared in
constant time, and an unknown user costs the same comparison (CVE-2021-38153).

RFC 4616; Kafka 2.7: PlainSaslServer, PlainServerCallbackHandler.
"""

import hmac
from collections.abc import Mapping

from kctl.protocol.sasl.mechanism import SaslFailure, check_authorization_id

_TOKENS = 3
_NO_PASSWORD = b"\x00"


def plain_message(user: str, password: str) -> bytes:
    """Return the client's only message."""
    return f"\0{user}\0{password}".encode()


def plain_user(message: bytes, passwords: Mapping[str, str]) -> str:
    """Return the user that `message` authenticates; raise SaslFailure with 2.7.2's message."""
    try:
        tokens = message.decode().split("\0")
    except UnicodeDecodeError:
        raise SaslFailure("Invalid SASL/PLAIN response: not UTF-8") from None
    if len(tokens) != _TOKENS:
        raise SaslFailure(
            f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}"
        )
    authorization_id, user, password = tokens
    if not user:
        raise SaslFailure("Authentication failed: username not specified")
    if not password:
        raise SaslFailure("Authentication failed: password not specified")
    expected = passwords.get(user)
    known = _NO_PASSWORD if expected is None else expected.encode()
    if not hmac.compare_digest(known, password.encode()) or expected is None:
        raise SaslFailure("Authentication failed: Invalid username or password")
    check_authorization_id(authorization_id, user)
    return user
