"""JKS: reads Java's own key store format, of version 1 and 2.

A store is a list of entries and a digest over everything before it, keyed by the store's password.
A private key is encrypted by a stream of SHA-1 digests of its password and a salt, and followed by
a digest of its own. The format is weak; it is read here because clusters have such stores.

Java: sun.security.provider.JavaKeyStore, KeyProtector
"""

import hashlib
import hmac
from collections.abc import Iterator

from kctl.errors import CorruptDataError
from kctl.tls.der import children, octets
from kctl.tls.store_contents import KeyEntry, StoreContents, WrongPasswordError

MAGIC = b"\xfe\xed\xfe\xed"
_DIGEST_BYTES = 20
_KEY_TAG, _CERTIFICATE_TAG = 1, 2
_WHITENER = b"Mighty Aphrodite"


def read_jks(data: bytes, password: str | None, key_password: str | None) -> StoreContents:
    """Return the entries of a store.

    Without `password` the store's integrity is not checked, as in Java. Keys are decrypted with
    `key_password`, or `password`. Raise CorruptDataError or WrongPasswordError.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_characters(password) + _WHITENER + body).digest()
        if not hmac.compare_digest(digest, expected):
            raise WrongPasswordError("the password of the store is wrong, or the store is damaged")
    contents = StoreContents([], [])
    reader = _Reader(body)
    reader.take(len(MAGIC))
    version = reader.number(4)
    if version not in (1, 2):
        raise CorruptDataError(f"version {version} of the JKS format is unknown")
    for _ in range(reader.number(4)):
        tag = reader.number(4)
        reader.text()  # the alias
        reader.take(8)  # when it was created
        if tag == _KEY_TAG:
            encrypted = reader.take(reader.number(4))
            chain = [reader.certificate(version) for _ in range(reader.number(4))]
            key = _decrypted(encrypted, key_password or password or "")
            contents.keys.append(KeyEntry(key, chain))
        elif tag == _CERTIFICATE_TAG:
            contents.certificates.append(reader.certificate(version))
        else:
            raise CorruptDataError(f"an entry of the unknown kind {tag}")
    return contents


class _Reader:
    """Reads big-endian numbers and lengths; never beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        taken = self._data[self._position : self._position + count]
        if len(taken) < count:
            raise CorruptDataError("the store ends early")
        self._position += count
        return taken

    def number(self, size: int) -> int:
        """Return an unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size))

    def text(self) -> str:
        """Return a text with its length in two bytes."""
        return self.take(self.number(2)).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        """Return a certificate; version 2 names its type."""
        if version > 1:
            self.text()
        return self.take(self.number(4))


def _decrypted(encrypted: bytes, password: str) -> bytes:
    """Return the PKCS#8 key in an EncryptedPrivateKeyInfo."""
    protected = octets(children(encrypted)[1])
    salt = protected[:_DIGEST_BYTES]
    cipher_text = protected[_DIGEST_BYTES:-_DIGEST_BYTES]
    digest = protected[-_DIGEST_BYTES:]
    secret = _characters(password)
    stream = b"".join(_key_stream(secret, salt, len(cipher_text)))
    number = int.from_bytes(cipher_text) ^ int.from_bytes(stream[: len(cipher_text)])
    key = number.to_bytes(len(cipher_text))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), digest):
        raise WrongPasswordError("the password of the key is wrong")
    return key


def _key_stream(secret: bytes, salt: bytes, size: int) -> Iterator[bytes]:
    digest = salt
    for _ in range(0, size, _DIGEST_BYTES):
        digest = hashlib.sha1(secret + digest).digest()
        yield digest


def _characters(password: str) -> bytes:
    return password.encode("utf-16-be")
