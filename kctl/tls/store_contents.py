"""StoreContents: what a key store or trust store holds, whatever its format."""

from dataclasses import field

from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass


class WrongPasswordError(KctlError):
    """A store or key cannot be decrypted with the given password."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A private key and the certificates from its own to the CA's."""

    # PKCS#8 in DER, not encrypted.
    key: bytes = field(repr=False)
    # DER; the key's own certificate is the first.
    chain: list[bytes]


@dataclass(frozen=True, slots=True)
class StoreContents:
    """The entries of a store."""

    keys: list[KeyEntry]
    # DER.
    certificates: list[bytes]
