"""TokenSource: the bearer tokens of one OAUTHBEARER login: written here, from a file, or fetched.

All connections of a client share the current token. It is used for REUSED_PERCENT of its life; a
login after that gets a new one, so that a session that must be renewed in time finds a token that
is still valid. Opaque tokens and tokens of files are read for each login.

RFC 6749 (4.4), KIP-255, KIP-768; Kafka 2.7: OAuthBearerUnsecuredLoginCallbackHandler.
"""

import base64
import json
import re
from collections.abc import Mapping
from urllib.parse import quote_plus

from kctl.client.security import CurrentToken
from kctl.errors import AuthenticationError, UnreachableError
from kctl.protocol.sasl.bearer_token import expiry_of, unsecured_token
from kctl.protocol.sasl.login import AwsIdentity, BearerLogin, ClientCredentials
from kctl.runtime.runtime import Runtime
from kctl.runtime.web import SignedToken

# The names of MSK's brokers have their region: b-1.it.abc.c2.kafka.eu-west-1.amazonaws.com
_AWS_HOST = re.compile(r"\.kafka(-serverless)?\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?$")
# Kafka: sasl.login.refresh.window.factor.
REUSED_PERCENT = 80


async def bearer_token(
    runtime: Runtime, login: BearerLogin, current: CurrentToken, broker: str = ""
) -> str:
    """Return a token for `login` to `broker` and make it the `current` one; raise
    AuthenticationError."""
    now_ms = runtime.clock.wall_ms()
    if current.token and now_ms < current.reused_until_ms:
        return current.token
    credentials = login.credentials
    if login.aws is not None:
        signed = await _signed(runtime, login.aws, broker)
        current.token = signed.token
        current.reused_until_ms = now_ms + (signed.expires_ms - now_ms) * REUSED_PERCENT // 100
        return signed.token
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


async def _signed(runtime: Runtime, identity: AwsIdentity, broker: str) -> SignedToken:
    """Return a token that AWS's signer makes for the region of `identity`, or of the broker."""
    found = _AWS_HOST.search(broker.rpartition(":")[0])
    region = identity.region or (found["region"] if found else "")
    try:
        return await runtime.web.aws_token(identity, region)
    except UnreachableError as error:
        raise AuthenticationError(f"no token for Amazon MSK: {error}", hint=error.hint) from None


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
