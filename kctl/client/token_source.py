"""TokenSource: the bearer tokens of one OAUTHBEARER login: written here, from a file, or fetched.

All connections of a client share the current token. It is used for REUSED_PERCENT of its life; a
login after that gets a new one, so that a session that must be renewed in time finds a token that
is still valid. Opaque tokens and tokens of files are read for each login.

RFC 6749 (4.4), KIP-255, KIP-768; Kafka 2.7: OAuthBearerUnsecuredLoginCallbackHandler.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote_plus

from kctl.errors import AuthenticationError, UnreachableError
from kctl.protocol.sasl.bearer_token import expiry_of, unsecured_token
from kctl.protocol.sasl.login import BearerLogin, ClientCredentials
from kctl.runtime.runtime import Runtime

# Kafka: sasl.login.refresh.window.factor.
REUSED_PERCENT = 80


@dataclass(slots=True)
class CurrentToken:
    """The token that a client's next login uses; empty if it needs a new one."""

    token: str = field(default="", repr=False)
    # Milliseconds since the epoch.
    reused_until_ms: int = 0


async def bearer_token(runtime: Runtime, login: BearerLogin, current: CurrentToken) -> str:
    """Return a token for `login` and make it the `current` one; raise
    AuthenticationError."""
    now_ms = runtime.clock.wall_ms()
    if current.token and now_ms < current.reused_until_ms:
        return current.token
    credentials = login.credentials
    if credentials is None:
        token = _written(login, now_ms)
    elif credentials.is_file:
        return (await _document(runtime, credentials.url)).decode().strip()
    else:
        token = await _fetched(runtime, credentials)
    expires_ms = expiry_of(token)
    current.token = "" if expires_ms is None else token
    current.reused_until_ms = now_ms + ((expires_ms or now_ms) - now_ms) * REUSED_PERCENT // 100
    return token


def _written(login: BearerLogin, now_ms: int) -> str:
    claims: dict[str, object] = {"iat": now_ms / 1000, "exp": (now_ms + login.lifetime_ms) / 1000}
    for name, value in login.unsecured_claims:
        claims[name] = list(value) if isinstance(value, tuple) else value
    return unsecured_token(claims)


async def _fetched(runtime: Runtime, credentials: ClientCredentials) -> str:
    form = {"grant_type": "client_credentials"}
    if credentials.scope:
        form["scope"] = credentials.scope
    # RFC 6749, 2.3.1: both are form-encoded before they are joined.
    pair = f"{quote_plus(credentials.client_id)}:{quote_plus(credentials.client_secret)}"
    authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    document = await _document(runtime, credentials.url, form, authorization)
    try:
        token = json.loads(document)["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        token = None
    if not isinstance(token, str) or not token:
        # The response is not shown: it may contain a secret.
        raise AuthenticationError(f"{credentials.url} responds without an access_token")
    return token


async def _document(
    runtime: Runtime, url: str, form: Mapping[str, str] | None = None, authorization: str = ""
) -> bytes:
    try:
        return await runtime.web.fetch(url, form, authorization)
    except UnreachableError as error:
        raise AuthenticationError(f"no token for OAUTHBEARER: {error}") from None
