"""Bearer tokens: which are accepted, and which are not (T38 of the security design)."""

import json

import pytest

from kctl.errors import CorruptDataError, UsageError
from kctl.protocol.sasl.bearer_token import (
    TOKEN_CHARACTERS_MAX,
    BearerToken,
    TokenRules,
    check_signed_token,
    check_unsecured_token,
    expiry_of,
    subject_of,
    unsecured_token,
)
from kctl.protocol.sasl.jwks import JwkSet, UnknownKey
from kctl.protocol.sasl.mechanism import InvalidCredentials
from kctl.protocol.sasl.oauthbearer import (
    RejectedToken,
    bearer_message,
    parse_bearer_message,
)
from tests.support.identity_provider import (
    AUDIENCE,
    ISSUER,
    EcKey,
    RsaKey,
    base64url,
    claims_of,
    jwks,
    now_s,
    part,
    token,
)

RSA, EC = RsaKey(), EcKey()
CURVES = {"ES256": EC, "ES384": EcKey("ec384", "P-384"), "ES512": EcKey("ec521", "P-521")}
KEYS = JwkSet.parse(jwks(RSA, *CURVES.values()))
RULES = TokenRules(audiences=(AUDIENCE, "other"), issuer=ISSUER, clock_skew_ms=1_000)


def now_ms():
    return int(now_s() * 1000)


@pytest.mark.parametrize(
    "algorithm",
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"],
)
def test_signed_tokens_of_every_algorithm(algorithm):
    claims = claims_of("alice")
    text = token(CURVES.get(algorithm, RSA), claims, algorithm)
    expected = BearerToken("alice", claims["exp"] * 1000)
    assert check_signed_token(text, KEYS, RULES, now_ms()) == expected


def stolen(text):
    """The token with other claims and the old signature."""
    header, _, signature = text.split(".")
    return f"{header}.{part(claims_of('admin'))}.{signature}"


HOSTILE = {
    "unsecured": unsecured_token(claims_of("alice")),
    "unsecured with a signature": f"{unsecured_token(claims_of('alice'))}{base64url(b'x')}",
    "HMAC with the public key": token(RSA, claims_of("alice"), "RS256", alg="HS256"),
    "algorithm of another key": token(RSA, claims_of("alice"), "RS256", alg="ES256"),
    "key id that is a path": token(RSA, claims_of("alice"), kid="../../dev/null"),
    "key id that is no text": token(RSA, claims_of("alice"), kid={"a": []}),
    "key of a stranger": token(RsaKey(), claims_of("alice")),
    "other claims": stolen(token(RSA, claims_of("alice"))),
    "expired": token(RSA, claims_of("alice", iat=1, exp=now_s() - 2)),
    "no expiry": token(RSA, claims_of("alice", exp=None)),
    "expiry is infinite": token(RSA, claims_of("alice", exp=float("inf"))),
    "expiry is no number": token(RSA, claims_of("alice", exp="never")),
    "not valid yet": token(RSA, claims_of("alice", nbf=now_s() + 1e6, exp=now_s() + 2e6)),
    "issued in the future": token(RSA, claims_of("alice", iat=now_s() + 1e6, exp=now_s() + 2e6)),
    "another audience": token(RSA, claims_of("alice", aud=["mail"])),
    "no audience": token(RSA, claims_of("alice", aud=None)),
    "another issuer": token(RSA, claims_of("alice", iss="https://evil.example")),
    "no subject": token(RSA, claims_of(None)),
    "blank subject": token(RSA, claims_of("  ")),
    "critical header": token(RSA, claims_of("alice"), crit=["b64"]),
    "huge": token(RSA, claims_of("alice", x="x" * TOKEN_CHARACTERS_MAX)),
    "nested": f"{part({'alg': 'RS256'})}.{base64url(b'[' * 30_000)}.",
    "not a token": "abc",
    "not base64": "a.b.c!",
    "not an object": f"{part([])}.{part([])}.",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_tokens_are_rejected(kind):
    """T38."""
    with pytest.raises(RejectedToken, match='"status":"invalid_token"'):
        check_signed_token(HOSTILE[kind], KEYS, RULES, now_ms())


def test_no_token_is_valid_without_keys():
    """T38: the JWKS is down."""
    with pytest.raises(UnknownKey):
        check_signed_token(token(RSA, claims_of("alice")), JwkSet([]), RULES, now_ms())


def test_key_serves_the_algorithm_that_it_names():
    keys = JwkSet.parse(json.dumps({"keys": [{**RSA.jwk(), "alg": "RS512"}]}).encode())
    check_signed_token(token(RSA, claims_of("a"), "RS512"), keys, RULES, now_ms())
    with pytest.raises(UnknownKey):
        check_signed_token(token(RSA, claims_of("a"), "RS256"), keys, RULES, now_ms())


def test_keys_for_other_uses_are_ignored():
    entries = [{**RSA.jwk(), "use": "enc"}, {"kty": "oct", "k": "AAAA"}, {"kty": "OKP"}, EC.jwk()]
    assert len(JwkSet.parse(json.dumps({"keys": entries}).encode())) == 1


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b'{"keys": 3}', b'{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}', b"[" * 9999,
     json.dumps({"keys": [RsaKey(bits=1024).jwk()]}).encode()],
)  # fmt: skip
def test_what_is_not_a_jwks_document_is_corrupt(document):
    with pytest.raises(CorruptDataError):
        JwkSet.parse(document)


# --- unsecured tokens, as in Kafka 2.7


def test_unsecured_token_is_accepted_where_tokens_are_unsecured():
    text = unsecured_token({"sub": "bob", "exp": 100.5, "iat": 1, "scope": ["a", "b"]})
    rules = TokenRules(required_scope=("a",))
    assert check_unsecured_token(text, rules, 50_000) == BearerToken("bob", 100_500)
    assert (expiry_of(text), subject_of(text)) == (100_500, "bob")


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"sub": "bob", "exp": 50}, "invalid_token"),
        ({"sub": "bob", "exp": 60, "iat": 51}, "invalid_token"),
        ({"sub": "bob", "exp": 60, "iat": 60}, "invalid_token"),
        ({"sub": 3, "exp": 60}, "invalid_token"),
        ({"sub": "bob", "exp": 60}, r'insufficient_scope", "scope":"\[a, b\]"'),
        # A string is one element.
        ({"sub": "bob", "exp": 60, "scope": "a b"}, "insufficient_scope"),
    ],
)
def test_unsecured_tokens_that_are_rejected(claims, reason):
    with pytest.raises(RejectedToken, match=reason):
        check_unsecured_token(
            unsecured_token(claims), TokenRules(required_scope=("a", "b")), 50_000
        )


def test_signed_token_is_rejected_where_tokens_are_unsecured():
    with pytest.raises(RejectedToken):
        check_unsecured_token(token(RSA, claims_of("alice")), TokenRules(), now_ms())


def test_opaque_token_has_no_expiry():
    assert (expiry_of("opaque"), subject_of("opaque")) == (None, "")


# --- messages


def test_message_has_token_and_extensions():
    message = bearer_message("a.b.c", {"logicalCluster": "lkc-1", "trace": "x y"})
    assert message == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01trace=x y\x01\x01"
    assert parse_bearer_message(message) == (
        "a.b.c", "", {"logicalCluster": "lkc-1", "trace": "x y"}
    )  # fmt: skip
    assert "a.b.c" not in repr(parse_bearer_message(message))
    named = parse_bearer_message(b"n,a=bob,\x01auth=bearer t\x01\x01")
    assert (named.token, named.authorization_id) == ("t", "bob")


@pytest.mark.parametrize(
    "message",
    [b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic t\x01\x01", b"n,,\x01auth=Bearer \x01\x01",
     b"y,,\x01auth=Bearer t\x01\x01", b"n,,\x01auth=Bearer t\x01",
     b"n,,\x01auth=Bearer t\x01x=\x01\x01",
     b"n,a=a=b,\x01auth=Bearer t\x01\x01", b"\xff", b"n,,\x01x=y\x01\x01"],
)  # fmt: skip
def test_malformed_messages_are_rejected(message):
    with pytest.raises(InvalidCredentials):
        parse_bearer_message(message)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"a": "\x01"}, {"a": ""}])
def test_extensions_that_cannot_be_sent(extensions):
    with pytest.raises(UsageError):
        bearer_message("t", extensions)


def test_token_that_cannot_be_sent():
    with pytest.raises(UsageError) as raised:
        bearer_message("secret\x01auth=Bearer other")
    assert "secret" not in str(raised.value)
