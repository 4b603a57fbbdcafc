"""Cipher suites: the standard's names, which Kafka's settings have, as OpenSSL names them."""

from collections.abc import Iterable
from typing import NamedTuple

from kctl.errors import UsageError

SETTING = "ssl.cipher.suites"

_TLS_1_3 = ("TLS_AES_", "TLS_CHACHA20_", "TLS_SM4_")
# Anonymous, not encrypted, or broken.
_REFUSED = ("_anon_", "_NULL_", "_EXPORT_", "_RC4_", "_DES_", "_3DES_", "_RC2_", "_KRB5_", "_MD5")
_KEY_EXCHANGES = {
    "RSA": "",
    "ECDHE_RSA": "ECDHE-RSA-",
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "PSK": "PSK-",
}


class CipherSuites(NamedTuple):
    """The suites of a setting; one version's are empty if it names none of them."""

    # OpenSSL's names.
    tls_1_2: tuple[str, ...]
    tls_1_3: tuple[str, ...]


# OpenSSL's choice, in every version.
ANY_SUITES = CipherSuites((), ())


def cipher_suites(names: Iterable[str]) -> CipherSuites:
    """Return the suites that `names` lists, in either spelling; raise UsageError for unsafe
    ones."""
    older, newer = [], []
    for name in names:
        if name.startswith(_TLS_1_3):
            newer.append(name)
        else:
            older.append(_openssl_name(name))
    return CipherSuites(tuple(older), tuple(newer))


def _openssl_name(name: str) -> str:
    for part in _REFUSED:
        if part in name:
            raise UsageError(f"{SETTING}: {name} is not safe, and not supported")
    exchange, separator, cipher = name.partition("_WITH_")
    if not separator:
        if "_" in name:
            raise UsageError(f"{SETTING}: no cipher suite {name}")
        return name
    prefix = _KEY_EXCHANGES.get(exchange.removeprefix("TLS_"))
    if prefix is None:
        raise UsageError(f"{SETTING}: {name} is not supported")
    return prefix + _openssl_cipher(cipher)


def _openssl_cipher(cipher: str) -> str:
    """Return e.g. AES128-GCM-SHA256 for AES_128_GCM_SHA256, AES128-SHA for AES_128_CBC_SHA."""
    if cipher.startswith("CHACHA20_POLY1305"):
        return "CHACHA20-POLY1305"
    family, _, rest = cipher.partition("_")
    return f"{family}{rest}".replace("_CBC_", "_").replace("_", "-")
