"""PEM: finds the keys and certificates in a text, and writes DER as PEM.

Text around the blocks is ignored, and line ends may be missing: a value that was continued over
lines in a properties file arrives as one line (KIP-651).
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import NamedTuple

from kctl.errors import UsageError

CERTIFICATE = "CERTIFICATE"
PRIVATE_KEY = "PRIVATE KEY"

_LINE_CHARACTERS = 64
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
# Only these say what they hold; `EC PARAMETERS` and the like do not matter.
_CERTIFICATES = (CERTIFICATE, "X509 CERTIFICATE", "TRUSTED CERTIFICATE")


class PemBlock(NamedTuple):
    """One block: its label, and its PEM text with regular line ends."""

    label: str
    text: str

    @property
    def is_certificate(self) -> bool:
        """Return whether the block holds a certificate."""
        return self.label in _CERTIFICATES

    @property
    def is_private_key(self) -> bool:
        """Return whether the block holds a private key, encrypted or not."""
        return self.label.endswith(PRIVATE_KEY)

    @property
    def is_encrypted(self) -> bool:
        """Return whether a password is needed to read the key."""
        return self.label.startswith("ENCRYPTED") or "ENCRYPTED" in self.text[:200]


def pem_blocks(text: str) -> list[PemBlock]:
    """Return the blocks of `text` in order; raise UsageError for one that is not Base64."""
    return [PemBlock(label, _regular(label, body)) for label, body in _BLOCK.findall(text)]


def pem_of(label: str, der: bytes) -> str:
    """Return `der` as a PEM block."""
    encoded = base64.b64encode(der).decode()
    lines = (encoded[at : at + _LINE_CHARACTERS] for at in range(0, len(encoded), _LINE_CHARACTERS))
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def der_of(block: PemBlock) -> bytes:
    """Return the bytes that an unencrypted block holds."""
    return base64.b64decode("".join(block.text.splitlines()[1:-1]))


def certificates_pem(ders: Iterable[bytes]) -> str:
    """Return certificates as PEM."""
    return "".join(pem_of(CERTIFICATE, der) for der in ders)


def _regular(label: str, body: str) -> str:
    if ":" in body:
        # The old encryption of keys has headers, whose lines matter.
        lines = [line.strip() for line in body.strip().splitlines()]
        return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
    try:
        der = base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error as error:
        raise UsageError(f"The PEM block {label} is not Base64: {error}") from None
    return pem_of(label, der)
