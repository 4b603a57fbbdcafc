"""JwkSet: the public keys of an issuer of tokens, from a JWKS document. Pure.

The algorithm of a token must fit the type of the key that verifies it, and the algorithm that the
key names, if it names one: a token cannot choose to have an RSA key used as an HMAC secret.
Symmetric keys are ignored.

RFC 7517, RFC 7518; the extra `security` (cryptography) is loaded when a key is.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.errors import CorruptDataError, UsageError
from kctl.protocol.sasl.bearer_token import decode_base64url
from kctl.protocol.sasl.oauthbearer import RejectedToken

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    PublicKey = RSAPublicKey | EllipticCurvePublicKey

# Keys of one set.
KEYS_MAX = 100
RSA_BITS_MIN = 2_048


class _Algorithm(NamedTuple):
    key_type: str
    hash_bits: int
    # Of ES*: the curve, and the bytes of each half of a signature.
    curve: str = ""
    half_bytes: int = 0


_ALGORITHMS = {
    **{f"RS{bits}": _Algorithm("RSA", bits) for bits in (256, 384, 512)},
    **{f"PS{bits}": _Algorithm("RSA", bits) for bits in (256, 384, 512)},
    "ES256": _Algorithm("EC", 256, "P-256", 32),
    "ES384": _Algorithm("EC", 384, "P-384", 48),
    "ES512": _Algorithm("EC", 512, "P-521", 66),
}


class UnknownKey(RejectedToken):
    """No key of the set can have signed the token: a newer set may have it."""


class _Jwk(NamedTuple):
    key_id: str | None
    key_type: str
    curve: str
    # None: any that fits the key's type.
    algorithm: str | None
    key: "PublicKey"


class JwkSet:
    """The keys of one document."""

    def __init__(self, keys: list[_Jwk]) -> None:
        self._keys = keys

    @classmethod
    def parse(cls, data: bytes) -> "JwkSet":
        """Return the set that `data` describes, without keys that cannot verify signatures; raise
        CorruptDataError, or UsageError if cryptography is not installed."""
        try:
            found = json.loads(data)["keys"]
            if not isinstance(found, list) or len(found) > KEYS_MAX:
                raise ValueError(f"it has no list of at most {KEYS_MAX} keys")
            keys = [_parsed(entry) for entry in found if _is_usable(entry)]
        except (ValueError, KeyError, TypeError, RecursionError, RejectedToken) as error:
            raise CorruptDataError(f"not a JWKS document: {error!r}") from None
        return cls(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def verify(self, header: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
        """Raise RejectedToken unless one of the keys made `signature` of `signed`; UnknownKey if no
        key fits the token's header."""
        name, key_id = header.get("alg"), header.get("kid")
        algorithm = _ALGORITHMS.get(name) if isinstance(name, str) else None
        if algorithm is None:
            raise RejectedToken(f"the token's algorithm {name!r:.20} is not supported")
        fitting = [
            key
            for key in self._keys
            if (key.key_type, key.curve) == (algorithm.key_type, algorithm.curve)
            and key.algorithm in (None, name)
            and (key_id is None or key.key_id == key_id)
        ]
        if not fitting:
            raise UnknownKey(f"no key for algorithm {name} and key id {key_id!r:.80}")
        if not any(
            _is_signature(key.key, str(name), algorithm, signed, signature) for key in fitting
        ):
            raise RejectedToken("the token's signature is wrong")


def _is_usable(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("kty") in ("RSA", "EC")
        and entry.get("use", "sig") == "sig"
        and entry.get("crv", "P-256") in {it.curve for it in _ALGORITHMS.values()}
    )


def _parsed(entry: Mapping[str, Any]) -> _Jwk:
    try:
        from cryptography.hazmat.primitives.asymmetric import ec, rsa
    except ImportError:
        raise UsageError(
            "Signed tokens need the package cryptography",
            hint="pip install 'kctl-kafka[security]'",
        ) from None
    key: PublicKey
    if entry["kty"] == "RSA":
        key = rsa.RSAPublicNumbers(_integer(entry["e"]), _integer(entry["n"])).public_key()
        if key.key_size < RSA_BITS_MIN:
            raise ValueError(f"an RSA key has less than {RSA_BITS_MIN} bits")
    else:
        curves: dict[str, type[Any]] = {
            "P-256": ec.SECP256R1,
            "P-384": ec.SECP384R1,
            "P-521": ec.SECP521R1,
        }
        curve = curves[entry["crv"]]()
        x, y = _integer(entry["x"]), _integer(entry["y"])
        key = ec.EllipticCurvePublicNumbers(x, y, curve).public_key()
    return _Jwk(entry.get("kid"), entry["kty"], entry.get("crv", ""), entry.get("alg"), key)


def _is_signature(
    key: Any, name: str, algorithm: _Algorithm, signed: bytes, signature: bytes
) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    digests: dict[int, type[Any]] = {
        256: hashes.SHA256,
        384: hashes.SHA384,
        512: hashes.SHA512,
    }
    digest = digests[algorithm.hash_bits]()
    try:
        if algorithm.key_type == "EC":
            half = algorithm.half_bytes
            if len(signature) != 2 * half:
                return False
            r, s = int.from_bytes(signature[:half]), int.from_bytes(signature[half:])
            key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        elif name.startswith("PS"):
            pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
            key.verify(signature, signed, pss, digest)
        else:
            key.verify(signature, signed, padding.PKCS1v15(), digest)
    except InvalidSignature:
        return False
    return True


def _integer(text: str) -> int:
    return int.from_bytes(decode_base64url(text))
