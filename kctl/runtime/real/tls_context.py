"""TLS contexts: what OpenSSL needs to speak TLS as TlsSettings ask.

A context is made from the files as they are now. Contexts of clients are kept, since each
connection needs one and the system's CAs take long to load; `ClientContexts.reload` makes them
again.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kctl.errors import UsageError
from kctl.tls.settings import TLS_1_2, TLS_1_3, ClientAuth, TlsSettings
from kctl.tls.stores import KeyMaterial, LoadedStores, load_stores

# Contexts of clients that are kept: a process has one or two settings.
CLIENT_CONTEXTS_MAX = 16
# Certificates and keys are small.
STORE_BYTES_MAX = 16 * 1024 * 1024

_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


_MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


def server_context(settings: TlsSettings, stores: LoadedStores) -> ssl.SSLContext:
    """Return the context of a listener whose stores are loaded; raise UsageError naming the
    reason."""
    if stores.key is None:
        raise UsageError(
            "A listener with TLS needs a key and a certificate",
            hint="set ssl.keystore.location, or ssl.keystore.key and"
            " ssl.keystore.certificate.chain",
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings, stores)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_TICKET
    # A resumed session would not look at certificates again.
    context.num_tickets = 0
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    if settings.client_auth is not ClientAuth.NONE:
        _trust(context, stores.trusted)
    return context


def client_context(settings: TlsSettings, stores: LoadedStores) -> ssl.SSLContext:
    """Return the context of connections to brokers; raise UsageError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings, stores)
    context.check_hostname = settings.verifies_host and settings.verifies_broker
    if not settings.verifies_broker:
        context.verify_mode = ssl.CERT_NONE
    else:
        _trust(context, stores.trusted)
    return context


class ClientContexts:
    """The contexts of a process's connections to brokers, by settings."""

    def __init__(self) -> None:
        self._contexts: dict[TlsSettings, ssl.SSLContext] = {}
        # Settings whose stores were changed: as given -> as used now.
        self._substitutes: dict[TlsSettings, TlsSettings] = {}

    def get(self, settings: TlsSettings) -> ssl.SSLContext:
        """Return the context for `settings`; raise UsageError."""
        context = self._contexts.get(settings)
        if context is None:
            while len(self._contexts) >= CLIENT_CONTEXTS_MAX:
                del self._contexts[next(iter(self._contexts))]
            context = self._contexts[settings] = self._loaded(settings)
        return context

    def substitute(self, given: TlsSettings, used: TlsSettings, context: ssl.SSLContext) -> None:
        """Use `context`, which was made of `used`, for connections with the settings `given`."""
        self._substitutes[given] = used
        self._contexts[given] = context

    def reload(self) -> None:
        """Read all files again; raise UsageError, and keep every context, if one is unusable."""
        self._contexts = {settings: self._loaded(settings) for settings in self._contexts}

    def _loaded(self, settings: TlsSettings) -> ssl.SSLContext:
        used = self._substitutes.get(settings, settings)
        return client_context(used, read_stores(used))


def read_stores(settings: TlsSettings) -> LoadedStores:
    """Return the stores of `settings`; raise UsageError."""
    return load_stores(settings, _read_file)


def _read_file(location: str) -> bytes:
    with open(location, "rb") as file:
        return file.read(STORE_BYTES_MAX)


def _context(protocol: int, settings: TlsSettings, stores: LoadedStores) -> ssl.SSLContext:
    # Not create_default_context: its flags reject certificates that Java accepts.
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if settings.suites.tls_1_2:
        _set_ciphers(context, settings.suites.tls_1_2)
    if stores.key is not None:
        _load_key(context, stores.key)
    return context


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:
        raise UsageError(f"ssl.cipher.suites: OpenSSL has none of {', '.join(names)}") from None


def _trust(context: ssl.SSLContext, trusted: str | None) -> None:
    if trusted is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as error:
        raise UsageError(f"The trusted certificates cannot be read: {error.reason}") from None


def _load_key(context: ssl.SSLContext, key: KeyMaterial) -> None:
    with _as_file(key.chain + key.key) as path:
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(path, password=key.password or "")
        except ssl.SSLError as error:
            raise UsageError(_key_failure(error, key)) from None
        except OSError as error:
            raise UsageError(f"The key cannot be loaded: {error.strerror}") from None


def _key_failure(error: ssl.SSLError, key: KeyMaterial) -> str:
    if error.reason in _MISMATCHES:
        return "The private key does not belong to the certificate"
    if key.password is not None:
        return "The private key cannot be decrypted: ssl.key.password is wrong"
    return f"The key or its certificate cannot be loaded: {error.reason or error}"


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """Yield the path of a file that no other user can read: OpenSSL takes keys from files only."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("kctl-key")
        try:
            os.write(fd, pem.encode())
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    fd, path = tempfile.mkstemp()
    try:
        with os.fdopen(fd, "w") as file:
            file.write(pem)
        yield path
    finally:
        Path(path).unlink()
