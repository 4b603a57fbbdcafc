"""PasswordEncoder: encrypts the passwords of a broker's configs as Apache Kafka stores them. Pure.

An encoded password is a list of `name:value`: how the key follows from password.encoder.secret, the
cipher, and the text that it encrypted. Decoding follows the list, encoding the settings, so that
brokers with different settings but the same secret read each other's.

The library `cryptography` has the cipher. It comes with the extra `security`, and is loaded when it
is needed.

Kafka 2.7: kafka.utils.PasswordEncoder; KIP-226
"""

import base64
import binascii
import hashlib
from typing import Any

from kctl.errors import CorruptDataError, UsageError, missing_extra
from kctl.lazy_dataclass import dataclass

SALT_BYTES = 256
IV_BYTES = 16
GCM_IV_BYTES = 12
GCM_TAG_BITS = 128
# Java's default, and the hash functions of the other key factories that it has for PBKDF2.
KEY_FACTORY = "PBKDF2WithHmacSHA512"
_HASHES = {f"PBKDF2WithHmacSHA{bits}": f"sha{bits}" for bits in ("1", "224", "256", "384", "512")}
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
_KEY_BITS = (128, 192, 256)
# What a stored list may ask for: a key takes 1 ms per 1,000 iterations.
ITERATIONS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The settings password.encoder.*, without the secret."""

    key_factory: str = KEY_FACTORY
    cipher: str = _CBC
    key_bits: int = 128
    iterations: int = 4096

    def check(self) -> None:
        """Raise UsageError for algorithms that are not supported."""
        if self.key_factory not in _HASHES:
            raise UsageError(
                f"password.encoder.keyfactory.algorithm={self.key_factory} is not supported",
                hint=f"set it to one of {', '.join(_HASHES)}",
            )
        if self.cipher not in (_CBC, _GCM) or self.key_bits not in _KEY_BITS:
            raise UsageError(
                f"password.encoder.cipher.algorithm={self.cipher} with keys of {self.key_bits} bits"
                " is not supported",
                hint=f"set it to {_CBC} or {_GCM}, and password.encoder.key.length to 128, 192 or"
                " 256",
            )
        if self.iterations > ITERATIONS_MAX:
            raise UsageError(f"password.encoder.iterations is above {ITERATIONS_MAX}")


class PasswordEncoder:
    """Encodes and decodes with one secret."""

    def __init__(self, secret: str, settings: EncoderSettings) -> None:
        """Raise UsageError for algorithms that are not supported."""
        settings.check()
        self._secret = secret
        self._settings = settings

    def encode(self, password: str, salt: bytes, iv: bytes) -> str:
        """Return `password` encrypted, with SALT_BYTES and IV_BYTES of random bytes. Takes about
        4 ms. Raise UsageError without the extra `security`."""
        settings = self._settings
        is_gcm = settings.cipher == _GCM
        if is_gcm:
            iv = iv[:GCM_IV_BYTES]
        encryptor = _cipher(settings, self._key(settings, salt), iv).encryptor()
        data = password.encode() if is_gcm else _padded(password.encode())
        encrypted = encryptor.update(data) + encryptor.finalize()
        fields = {
            "keyFactoryAlgorithm": settings.key_factory,
            "cipherAlgorithm": settings.cipher,
            "keyLength": settings.key_bits,
            "iterations": settings.iterations,
            "initializationVector": _text(iv),
            "salt": _text(salt),
            "encryptedPassword": _text(encrypted + encryptor.tag if is_gcm else encrypted),
            "passwordLength": _java_length(password),
        }
        if is_gcm:
            fields["authenticationTagLength"] = GCM_TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password that `encode`, here or in Apache Kafka, made `text` of.

        Raise CorruptDataError for another secret or other text, UsageError for an algorithm that is
        not supported or without the extra `security`.
        """
        try:
            fields = dict(item.strip().rsplit(":", 1) for item in text.split(","))
            settings = EncoderSettings(
                fields["keyFactoryAlgorithm"],
                fields["cipherAlgorithm"],
                int(fields["keyLength"]),
                int(fields["iterations"]),
            )
            settings.check()
            password = self._decrypted(settings, fields)
            length = int(fields["passwordLength"])
        except (KeyError, ValueError, binascii.Error):
            raise CorruptDataError("it is not an encoded password, or of another secret") from None
        if _java_length(password) != length:
            raise CorruptDataError("it was encoded with another password.encoder.secret")
        return password

    def _decrypted(self, settings: EncoderSettings, fields: dict[str, str]) -> str:
        iv, data = _bytes(fields["initializationVector"]), _bytes(fields["encryptedPassword"])
        key = self._key(settings, _bytes(fields["salt"]))
        if settings.cipher == _CBC:
            decryptor = _cipher(settings, key, iv).decryptor()
            padded: bytes = decryptor.update(data) + decryptor.finalize()
            return _unpadded(padded).decode()
        tag_bytes = int(fields["authenticationTagLength"]) // 8
        decryptor = _cipher(settings, key, iv, data[-tag_bytes:]).decryptor()
        from cryptography.exceptions import InvalidTag

        try:
            password: bytes = decryptor.update(data[:-tag_bytes]) + decryptor.finalize()
        except InvalidTag:
            raise ValueError from None
        return password.decode()

    def _key(self, settings: EncoderSettings, salt: bytes) -> bytes:
        return hashlib.pbkdf2_hmac(
            _HASHES[settings.key_factory],
            self._secret.encode(),
            salt,
            settings.iterations,
            settings.key_bits // 8,
        )


def _cipher(settings: EncoderSettings, key: bytes, iv: bytes, tag: bytes | None = None) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError:
        raise missing_extra(
            "Passwords in the metadata store need the library cryptography", "security"
        ) from None
    mode = modes.GCM(iv, tag) if settings.cipher == _GCM else modes.CBC(iv)
    return Cipher(algorithms.AES(key), mode)


def _padded(data: bytes) -> bytes:
    missing = IV_BYTES - len(data) % IV_BYTES
    return data + bytes([missing]) * missing


def _unpadded(data: bytes) -> bytes:
    count = data[-1] if data else 0
    if not 1 <= count <= IV_BYTES or data[-count:] != bytes([count]) * count:
        raise ValueError
    return data[:-count]


def _java_length(text: str) -> int:
    """Return the number of UTF-16 units, which is the length of a string in Java."""
    return len(text.encode("utf-16-le")) // 2


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
