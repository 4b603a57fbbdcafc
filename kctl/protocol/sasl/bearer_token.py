"""Bearer tokens: JSON Web Tokens in compact form, written unsecured, checked in either form. Pure.

    base64url(HEADER) . base64url(CLAIMS) . base64url(SIGNATURE)

An unsecured token has algorithm `none` and no signature: any client can write one. A token is
checked as unsecured or as signed, never as what its header claims: `alg: none` on a broker with
keys is rejected, and so is a signature on a broker without them.

RFC 7515, RFC 7519, KIP-255, KIP-768; Kafka 2.7: OAuthBearerUnsecuredJws,
OAuthBearerUnsecuredValidatorCallbackHandler, OAuthBearerValidationUtils.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from kctl.lazy_dataclass import dataclass
from kctl.protocol.sasl.oauthbearer import RejectedToken

# Maximum length of a token.
TOKEN_CHARACTERS_MAX = 64 * 1024
_PARTS = 3
_UNSECURED = "none"


class TokenKeys(Protocol):
    """The keys of the issuers that a broker trusts."""

    def verify(self, header: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
        """Raise RejectedToken unless one of the keys made `signature`."""
        ...


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a broker requires of a token."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    # All of them must be in the token's scope.
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0
    # One of them must be in `aud`; empty: any.
    audiences: tuple[str, ...] = ()
    issuer: str | None = None


class BearerToken(NamedTuple):
    """The facts of a valid token."""

    principal: str
    # Milliseconds since the epoch.
    expires_ms: int


def unsecured_token(claims: Mapping[str, object]) -> str:
    """Return an unsecured token with `claims`."""
    return f"{_encoded({'alg': _UNSECURED})}.{_encoded(claims)}."


def check_unsecured_token(text: str, rules: TokenRules, now_ms: int) -> BearerToken:
    """Return the facts of an unsecured token at `now_ms` since the epoch; raise RejectedToken."""
    header, claims, signature = _parts(text)
    if header.get("alg") != _UNSECURED or signature:
        raise RejectedToken("only unsecured tokens are accepted, and this one is signed")
    return _checked(claims, rules, now_ms)


def check_signed_token(text: str, keys: TokenKeys, rules: TokenRules, now_ms: int) -> BearerToken:
    """Return the facts of a token that one of `keys` signed; raise RejectedToken."""
    header, claims, signature = _parts(text)
    if "crit" in header:
        raise RejectedToken("the token has critical headers, which are not supported")
    keys.verify(header, text.rpartition(".")[0].encode(), signature)
    return _checked(claims, rules, now_ms)


def expiry_of(text: str) -> int | None:
    """Return when a token expires, in milliseconds since the epoch; None if it is opaque. For
    clients, which do not check tokens."""
    try:
        _, claims, _ = _parts(text)
        return int(_number(claims, "exp", is_required=True) * 1000)
    except RejectedToken:
        return None


def subject_of(text: str) -> str:
    """Return the subject of a token, for messages; empty if it is opaque."""
    try:
        return str(_parts(text)[1].get("sub", ""))
    except RejectedToken:
        return ""


def _checked(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> BearerToken:
    principal = claims.get(rules.principal_claim)
    if not isinstance(principal, str) or not principal.strip():
        raise RejectedToken(f"the token has no principal in claim {rules.principal_claim}")
    expires_ms = _checked_times(claims, rules, now_ms)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise RejectedToken(f"the token's issuer is not {rules.issuer}")
    if rules.audiences and not set(rules.audiences) & set(_texts(claims, "aud")):
        raise RejectedToken(f"the token's audience is not {', '.join(rules.audiences)}")
    missing = set(rules.required_scope) - set(_texts(claims, rules.scope_claim))
    if missing:
        # As Java prints a list.
        required = f"[{', '.join(rules.required_scope)}]"
        raise RejectedToken("the token's scope is insufficient", "insufficient_scope", required)
    return BearerToken(principal, expires_ms)


def _checked_times(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> int:
    """Return when the token expires; raise RejectedToken unless it is valid now."""
    expires_ms = _number(claims, "exp", is_required=True) * 1000
    issued_ms = _number(claims, "iat") * 1000
    if now_ms - rules.clock_skew_ms >= expires_ms:
        raise RejectedToken("the token has expired")
    if max(issued_ms, _number(claims, "nbf") * 1000) > now_ms + rules.clock_skew_ms:
        raise RejectedToken("the token is not valid yet")
    if expires_ms <= issued_ms:
        raise RejectedToken("the token expires before it is issued")
    return int(expires_ms)


def _parts(text: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return header, claims and signature; raise RejectedToken."""
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise RejectedToken(f"the token is longer than {TOKEN_CHARACTERS_MAX} characters")
    parts = text.split(".")
    if len(parts) != _PARTS:
        raise RejectedToken("the token is not a JSON Web Token")
    return _object(parts[0]), _object(parts[1]), decode_base64url(parts[2])


def _object(part: str) -> dict[str, Any]:
    try:
        found = json.loads(decode_base64url(part))
    except (ValueError, RecursionError):
        raise RejectedToken("the token is not valid JSON") from None
    if not isinstance(found, dict):
        raise RejectedToken("the token is not a JSON object")
    return found


def _number(claims: Mapping[str, Any], name: str, *, is_required: bool = False) -> float:
    """Return a time in seconds since the epoch; 0 if it may be missing and is."""
    value = claims.get(name)
    if value is None and not is_required:
        return 0
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Not NaN either, which is not less than anything.
    if is_number and abs(value or 0) < _SECONDS_MAX:
        return float(value or 0)
    raise RejectedToken(f"claim {name} of the token is not a time")


# The year 9999: also excludes infinity, which Python's JSON accepts.
_SECONDS_MAX = 253_402_300_800


def _texts(claims: Mapping[str, Any], name: str) -> list[str]:
    """Return a claim that is a string or a list of strings as a list."""
    value = claims.get(name, [])
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(it, str) for it in values):
        raise RejectedToken(f"claim {name} of the token is not a string or a list of strings")
    return values


def _encoded(document: Mapping[str, object]) -> str:
    data = json.dumps(document, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Return the bytes of base64 in either alphabet, padded or not; raise RejectedToken."""
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise RejectedToken("the token is not base64") from None
