"""Stores: loads the key and the trusted certificates that TlsSettings name, as PEM.

The format of a file is recognized by its first bytes, since keytool writes PKCS12 under any name.
Every error names the setting or the file, and the reason.

Kafka 2.7: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory; KIP-651
"""

from collections.abc import Callable
from dataclasses import field

from kctl.errors import CorruptDataError, KctlError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.tls.certificate import Certificate
from kctl.tls.jks import MAGIC as JKS_MAGIC
from kctl.tls.jks import read_jks
from kctl.tls.pem import PRIVATE_KEY, PemBlock, certificates_pem, der_of, pem_blocks, pem_of
from kctl.tls.pkcs12 import read_pkcs12
from kctl.tls.settings import KeyStoreSettings, TlsSettings, TrustStoreSettings
from kctl.tls.store_contents import StoreContents, WrongPasswordError

_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DER_SEQUENCE = b"\x30"

# Returns the bytes of a file; raises OSError.
ReadFile = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificates, in PEM."""

    key: str = field(repr=False)
    chain: str
    # None: the key is not encrypted.
    password: str | None = field(default=None, repr=False)

    @property
    def certificate(self) -> Certificate:
        """Return the certificate of the key."""
        return Certificate.of(der_of(pem_blocks(self.chain)[0]))


@dataclass(frozen=True, slots=True)
class LoadedStores:
    """What TlsSettings name, loaded."""

    key: KeyMaterial | None
    # PEM; None: the CAs that the system trusts.
    trusted: str | None
    # The certificates of the key store's entries, without those of their issuers.
    entries: tuple[Certificate, ...] = ()


def load_stores(settings: TlsSettings, read_file: ReadFile) -> LoadedStores:
    """Load the stores of `settings`; raise UsageError with the file or setting and the reason."""
    key_store, trust_store = settings.key_store, settings.trust_store
    key, entries = (None, ()) if key_store is None else _load_key(key_store, read_file)
    trusted = None if trust_store is None else _load_trusted(trust_store, read_file)
    return LoadedStores(key, trusted, entries)


def _load_key(
    store: KeyStoreSettings, read_file: ReadFile
) -> tuple[KeyMaterial, tuple[Certificate, ...]]:
    """Return the key of a key store, and the certificates of its entries."""
    if store.key is not None and store.chain is not None:
        key_blocks = _blocks("ssl.keystore.key", store.key)
        chain_blocks = _blocks("ssl.keystore.certificate.chain", store.chain)
        return _only(_pem_key("ssl.keystore.key", key_blocks, chain_blocks, store.key_password))
    location = str(store.location)
    data = _read("ssl.keystore.location", location, read_file)
    if _is_binary(location, data):
        contents = _binary_store(location, data, store.password, store.key_password)
        if not contents.keys:
            raise UsageError(f"The key store {location} has no private key")
        entry = contents.keys[0]
        issuers = {it for key in contents.keys for it in key.chain}
        entries = [
            *(key.chain[0] for key in contents.keys),
            *(it for it in contents.certificates if it not in issuers),
        ]
        key = KeyMaterial(pem_of(PRIVATE_KEY, entry.key), certificates_pem(entry.chain))
        return key, tuple(map(Certificate.of, entries))
    key_blocks = chain_blocks = _blocks(location, data)
    if store.chain_location is not None:
        chain_data = _read("ssl.certificate.location", store.chain_location, read_file)
        chain_blocks = _blocks(store.chain_location, chain_data)
    return _only(_pem_key(location, key_blocks, chain_blocks, store.key_password))


def _only(key: KeyMaterial) -> tuple[KeyMaterial, tuple[Certificate, ...]]:
    return key, (key.certificate,)


def _load_trusted(store: TrustStoreSettings, read_file: ReadFile) -> str:
    if store.certificates is not None:
        where = "ssl.truststore.certificates"
        blocks = _blocks(where, store.certificates)
    else:
        where = str(store.location)
        data = _read("ssl.truststore.location", where, read_file)
        if _is_binary(where, data):
            contents = _binary_store(where, data, store.password, None)
            if not contents.certificates:
                raise UsageError(f"The trust store {where} has no certificate")
            return certificates_pem(contents.certificates)
        blocks = _blocks(where, data)
    pem = "".join(block.text for block in blocks if block.is_certificate)
    if not pem:
        raise UsageError(f"{where} has no certificate")
    return pem


def _pem_key(
    where: str, key_blocks: list[PemBlock], chain_blocks: list[PemBlock], password: str | None
) -> KeyMaterial:
    keys = [block for block in key_blocks if block.is_private_key]
    chain = "".join(block.text for block in chain_blocks if block.is_certificate)
    if len(keys) != 1:
        raise UsageError(f"{where} has {len(keys) or 'no'} private keys: it must have one")
    if not chain:
        raise UsageError(f"{where}: the key has no certificate")
    if keys[0].is_encrypted and password is None:
        raise UsageError(f"{where}: the key is encrypted", hint="set ssl.key.password")
    return KeyMaterial(keys[0].text, chain, password if keys[0].is_encrypted else None)


def _blocks(where: str, data: str | bytes) -> list[PemBlock]:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        blocks = pem_blocks(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    if not blocks:
        raise UsageError(f"{where} has neither a key nor a certificate in PEM")
    return blocks


def _read(setting: str, location: str, read_file: ReadFile) -> bytes:
    try:
        return read_file(location)
    except OSError as error:
        raise UsageError(f"{setting}: cannot read {location}: {error.strerror}") from None


def _is_binary(location: str, data: bytes) -> bool:
    if data.startswith(_JCEKS_MAGIC):
        raise UsageError(
            f"{location} is a JCEKS store, which is not supported",
            hint=f"keytool -importkeystore -srckeystore {location} -srcstoretype JCEKS"
            " -destkeystore store.p12 -deststoretype PKCS12",
        )
    return data.startswith((JKS_MAGIC, _DER_SEQUENCE))


def _binary_store(
    location: str, data: bytes, password: str | None, key_password: str | None
) -> StoreContents:
    try:
        if data.startswith(JKS_MAGIC):
            return read_jks(data, password, key_password)
        return read_pkcs12(data, password)
    except UsageError:
        raise
    except (CorruptDataError, WrongPasswordError, IndexError) as error:
        hint = error.hint if isinstance(error, KctlError) else None
        raise UsageError(f"Cannot read the store {location}: {error}", hint=hint) from None
