"""PKCS12: reads the standard's key stores, also those that Java's keytool writes.

The library `cryptography` decrypts them. It comes with the extra `security`, and is loaded when it
is needed.
"""

from kctl.errors import CorruptDataError, missing_extra
from kctl.tls.store_contents import KeyEntry, StoreContents, WrongPasswordError


def read_pkcs12(data: bytes, password: str | None) -> StoreContents:
    """Return the key and certificates of a store.

    Raise CorruptDataError, WrongPasswordError, or UsageError without the extra `security`.
    """
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise missing_extra("PKCS12 stores need the library cryptography", "security") from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        if "password" in str(error).lower():
            raise WrongPasswordError("the password is wrong, or the store is damaged") from None
        raise CorruptDataError(f"it cannot be read as PKCS12: {error}") from None
    others = [it.certificate.public_bytes(Encoding.DER) for it in store.additional_certs]
    if store.key is None or store.cert is None:
        return StoreContents([], others)
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    own = store.cert.certificate.public_bytes(Encoding.DER)
    return StoreContents([KeyEntry(key, [own, *others])], others)
