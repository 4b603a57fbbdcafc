"""log_in: the client's side of SASL, on a connection whose versions are negotiated.

    SaslHandshake -> SaslAuthenticate ... -> done

PBKDF2 of SCRAM takes milliseconds and runs off the loop.

Kafka 2.7: SaslClientAuthenticator; KIP-152, KIP-368
"""

import base64
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kctl.client.security import ClientSecurity
from kctl.client.token_source import bearer_token
from kctl.errors import AuthenticationError
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.messages.sasl_handshake import SaslHandshakeRequest
from kctl.protocol.sasl.bearer_token import subject_of
from kctl.protocol.sasl.login import BearerLogin, PasswordLogin
from kctl.protocol.sasl.mechanism import PLAIN, SaslFailure
from kctl.protocol.sasl.oauthbearer import CONFIRMATION, bearer_message
from kctl.protocol.sasl.plain import plain_message
from kctl.protocol.sasl.scram import (
    BY_NAME,
    NONCE_BYTES,
    TOKEN_EXTENSION,
    ScramClient,
    salted_password,
)
from kctl.protocol.schema import Message
from kctl.runtime.runtime import Runtime

Send = Callable[[Message], Awaitable[Any]]


async def log_in(runtime: Runtime, security: ClientSecurity, send: Send, name: str) -> int:
    """Authenticate the connection to `name` by `send`; return the session's lifetime in
    milliseconds, 0 for no end. Raise AuthenticationError if either side rejects the other."""
    login = security.login
    assert login is not None
    mechanism = login.mechanism
    handshake = await send(SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise AuthenticationError(
            f"{name} does not offer SASL mechanism {mechanism}",
            hint=f"it offers {offered}: set sasl.mechanism",
        )
    if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        protocol = "PLAINTEXT" if security.tls is None else "SSL"
        raise AuthenticationError(
            f"{name} expects no authentication on this listener",
            hint=f"set security.protocol={protocol}, or use the address of a listener with SASL",
        )
    if handshake.error_code:
        raise AuthenticationError(f"{name}: {ErrorCode(handshake.error_code).text}")
    try:
        if isinstance(login, BearerLogin):
            token = await bearer_token(runtime, login, security.current_token, name)
            return await _log_in_by_bearer(login, token, send, name)
        if mechanism == PLAIN:
            message = plain_message(login.username, login.password)
            return int((await _exchange(send, message, login.username, name)).session_lifetime_ms)
        return await _log_in_by_scram(runtime, login, send, name)
    except SaslFailure as error:
        raise AuthenticationError(f"{name}: {error}") from None


async def _log_in_by_scram(runtime: Runtime, login: PasswordLogin, send: Send, name: str) -> int:
    mechanism = BY_NAME[login.mechanism]
    extensions = {TOKEN_EXTENSION: "true"} if login.is_delegation_token else {}
    nonce = base64.b64encode(runtime.entropy.random_bytes(NONCE_BYTES)).decode()
    client = ScramClient(mechanism, login.username, nonce, extensions)
    response = await _exchange(send, client.first(), login.username, name)
    salt, iterations = client.challenge(bytes(response.auth_bytes))
    salted = await runtime.scheduler.background(
        partial(salted_password, mechanism, login.password, salt, iterations)
    )
    response = await _exchange(send, client.final(salted), login.username, name)
    client.finish(bytes(response.auth_bytes))
    return int(response.session_lifetime_ms)


async def _log_in_by_bearer(login: BearerLogin, token: str, send: Send, name: str) -> int:
    subject = subject_of(token)
    response = await _exchange(send, bearer_message(token, login.extensions), subject, name)
    if response.auth_bytes:
        # The broker rejects the token; the exchange fails when the client confirms that.
        await _exchange(send, CONFIRMATION, subject, name)
    return int(response.session_lifetime_ms)


async def _exchange(send: Send, token: bytes, user: str, name: str) -> Any:
    response = await send(SaslAuthenticateRequest(auth_bytes=token))
    if response.error_code:
        reason = response.error_message or ErrorCode(response.error_code).text
        raise AuthenticationError(
            f"{name} rejects user {user}: {reason}",
            hint="check the credentials and sasl.mechanism",
        )
    return response
