"""SCRAM-SHA-256 and SCRAM-SHA-512: credentials, and both sides of the exchange. Pure.

    client                                     server
    n,,n=user,r=NONCE            ->
                                 <-            r=NONCE+OWN,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+OWN,p=PROOF   ->
                                 <-            v=SIGNATURE

The server stores a salted credential from which the password cannot be derived. A login costs it
three HMACs; the client's PBKDF2 takes milliseconds, so `ScramClient` leaves it to the caller.

Both sides compute the signature over the bytes that they received. The server refuses a final
message whose nonce is not its own (CVE-2024-56128) or whose channel binding is not the header of
the first message, which Apache Kafka 2.7.2 does not check. For an unknown user it sends a
salt that does not change, and fails at the end: names cannot be probed. The client limits the
iterations that a server may ask for (CVE-2026-10143).

Invariant: an exchange that failed accepts no further message.

RFC 5802, RFC 7677, KIP-84; Kafka 2.7: ScramSaslServer, ScramFormatter, ScramMessages,
ScramCredentialUtils. Delegation tokens log in with extension `tokenauth=true` (KIP-48).
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.protocol.sasl.mechanism import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Identity,
    InvalidCredentials,
    SaslFailure,
    check_authorization_id,
)

ITERATIONS_MIN = 4_096
# What a server stores at most (Kafka 2.7: AdminManager), and what a client computes at most.
ITERATIONS_MAX = 16_384
CLIENT_ITERATIONS_MAX = 1_000_000
SALT_BYTES = 16
NONCE_BYTES = 24
TOKEN_EXTENSION = "tokenauth"

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"

_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}})"
    rf"{_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class ScramMechanism(Enum):
    """A mechanism: its number in KIP-554's messages, SASL name, and digest."""

    number: int
    digest: str
    digest_bytes: int

    def __new__(cls, name: str, number: int, digest: str, digest_bytes: int) -> "ScramMechanism":
        """Store the facts beside the name."""
        self = object.__new__(cls)
        self._value_ = name
        self.number, self.digest, self.digest_bytes = number, digest, digest_bytes
        return self

    SHA_256 = SCRAM_SHA_256, 1, "sha256", 32
    SHA_512 = SCRAM_SHA_512, 2, "sha512", 64


BY_NUMBER = {mechanism.number: mechanism for mechanism in ScramMechanism}
BY_NAME: dict[str, ScramMechanism] = {mechanism.value: mechanism for mechanism in ScramMechanism}


class ScramCredential(NamedTuple):
    """The keys that a server stores instead of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class TokenCredential(NamedTuple):
    """The credential of a delegation token, and whom it authenticates."""

    credential: ScramCredential
    identity: Identity


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return PBKDF2 of `password`; takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    return ScramCredential(
        salt,
        _hash(mechanism, _hmac(mechanism, salted, b"Client Key")),
        _hmac(mechanism, salted, b"Server Key"),
        iterations,
    )


def credential_of_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a password; takes milliseconds."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def encode_credential(credential: ScramCredential) -> str:
    """Return the text that `/config/users/NAME` holds of `credential`."""
    return (
        f"salt={_base64(credential.salt)},stored_key={_base64(credential.stored_key)},"
        f"server_key={_base64(credential.server_key)},iterations={credential.iterations}"
    )


def decode_credential(text: str) -> ScramCredential:
    """Return the credential that `encode_credential` wrote; raise CorruptDataError."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        if len(fields) != len(ScramCredential._fields):
            raise ValueError
        return ScramCredential(
            _unbase64(fields["salt"]),
            _unbase64(fields["stored_key"]),
            _unbase64(fields["server_key"]),
            int(fields["iterations"]),
        )
    except (KeyError, ValueError):
        raise CorruptDataError("a stored SCRAM credential is malformed") from None


def imaginary_credential(mechanism: ScramMechanism, user: str, secret: bytes) -> ScramCredential:
    """Return a credential that no password fits and that is always the same for `user`."""
    salt = _hmac(mechanism, secret, user.encode())[:SALT_BYTES]
    key = _hmac(mechanism, secret, salt)
    return ScramCredential(salt, key, key, ITERATIONS_MIN)


# --- server ------------------------------------------------------------------------------------


class ClientFirst(NamedTuple):
    """The client's first message."""

    user: str
    authorization_id: str
    nonce: str
    extensions: Mapping[str, str]
    # `n,,`: what the channel binding of the final message repeats.
    header: bytes
    # The message without its header, as received.
    bare: bytes


class ScramServer:
    """The server's side of one exchange: `first`, then `final`, each called once."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self.mechanism = mechanism
        self._client_first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        self._nonce = ""
        self._server_first = b""

    @property
    def user(self) -> str:
        """Return the user that the first message names."""
        assert self._client_first is not None
        return self._client_first.user

    def parse_first(self, message: bytes) -> ClientFirst:
        """Return the fields of the client's first message; raise SaslFailure."""
        fields = _matched(_CLIENT_FIRST, message, "first")
        extensions = dict(
            pair.partition("=")[::2] for pair in fields["extensions"].split(",") if pair
        )
        user = _name(fields["name"])
        authorization_id = _name(fields["authzid"] or "")
        check_authorization_id(authorization_id, user)
        first = ClientFirst(
            user, authorization_id, fields["nonce"], extensions,
            fields["header"].encode(), fields["bare"].encode(),
        )  # fmt: skip
        self._client_first = first
        return first

    def first(self, credential: ScramCredential, nonce: str) -> bytes:
        """Return the response to the first message; `nonce` is this side's part of the nonce."""
        assert self._client_first is not None
        if credential.iterations < ITERATIONS_MIN:
            raise InvalidCredentials(
                f"Iterations {credential.iterations} is less than the minimum {ITERATIONS_MIN}"
                f" for {self.mechanism.value}"
            )
        self._credential = credential
        self._nonce = self._client_first.nonce + nonce
        self._server_first = (
            f"r={self._nonce},s={_base64(credential.salt)},i={credential.iterations}".encode()
        )
        return self._server_first

    def final(self, message: bytes) -> bytes:
        """Return the server's final message if the proof is right; raise SaslFailure."""
        first, credential = self._client_first, self._credential
        assert first is not None
        assert credential is not None
        self._credential = None
        fields = _matched(_CLIENT_FINAL, message, "final")
        if fields["nonce"] != self._nonce:
            raise InvalidCredentials("the client's final message does not repeat the nonce")
        if _unbase64(fields["binding"]) != first.header:
            raise InvalidCredentials("the channel binding is not the header of the first message")
        mechanism = self.mechanism
        proof = _unbase64(fields["proof"])
        if len(proof) != mechanism.digest_bytes:
            raise InvalidCredentials("the client's proof has the wrong length")
        signed = b",".join([first.bare, self._server_first, fields["bare"].encode()])
        signature = _hmac(mechanism, credential.stored_key, signed)
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key):
            raise InvalidCredentials("the client's proof does not fit the stored credential")
        return b"v=" + _base64(_hmac(mechanism, credential.server_key, signed)).encode()


# --- client ------------------------------------------------------------------------------------


class ScramClient:
    """The client's side of one exchange: `first`, `challenge`, `final`, `finish`, in this order."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self.mechanism = mechanism
        self._nonce = nonce
        pairs = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._bare = f"n={_quoted(user)},r={nonce}{pairs}".encode()
        self._server_first = b""
        self._server_nonce = ""
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return b"n,," + self._bare

    def challenge(self, message: bytes) -> tuple[bytes, int]:
        """Return salt and iterations of the server's first message, for `salted_password`; raise
        SaslFailure."""
        fields = _matched(_SERVER_FIRST, message, "first")
        nonce, iterations = fields["nonce"], int(fields["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslFailure("the broker's nonce does not begin with the client's")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise SaslFailure(
                f"the broker asks for {iterations} iterations of {self.mechanism.value}:"
                f" only {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX} are accepted"
            )
        self._server_first, self._server_nonce = message, nonce
        return _unbase64(fields["salt"]), iterations

    def final(self, salted: bytes) -> bytes:
        """Return the final message, with the proof."""
        mechanism = self.mechanism
        bare = f"c={_base64(b'n,,')},r={self._server_nonce}".encode()
        signed = b",".join([self._bare, self._server_first, bare])
        client_key = _hmac(mechanism, salted, b"Client Key")
        signature = _hmac(mechanism, _hash(mechanism, client_key), signed)
        self._signature = _hmac(mechanism, _hmac(mechanism, salted, b"Server Key"), signed)
        return bare + b",p=" + _base64(_xor(client_key, signature)).encode()

    def finish(self, message: bytes) -> None:
        """Check that the server knows the credential, too; raise SaslFailure."""
        fields = _matched(_SERVER_FINAL, message, "final")
        if fields["error"] is not None:
            raise SaslFailure(f"the broker refuses the credentials: {fields['error']}")
        if not hmac.compare_digest(_unbase64(fields["signature"]), self._signature):
            raise SaslFailure("the broker does not know the password: its signature is wrong")


# --- parts -------------------------------------------------------------------------------------


def _matched(pattern: "re.Pattern[str]", message: bytes, which: str) -> "re.Match[str]":
    try:
        found = pattern.fullmatch(message.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise InvalidCredentials(f"the {which} SCRAM message of the peer is malformed")
    return found


def _quoted(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _name(quoted: str) -> str:
    return quoted.replace("=2C", ",").replace("=3D", "=")


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.digest)


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.digest, data).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    both = int.from_bytes(left, "big") ^ int.from_bytes(right, "big")
    return both.to_bytes(len(left), "big")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"not base64: {len(text)} characters") from None
