"""LoadedTls: the TLS of a listener as loaded from its stores, and what may replace it.

Between brokers, each side is client and server with the same stores. While a change of stores makes
its way through a cluster, brokers with the old and with the new ones connect to each other, so new
stores must complete handshakes with the old ones in both directions.

Kafka 2.7: org.apache.kafka.common.security.ssl.SslFactory (`createNewSslEngineFactory`,
`SslEngineValidator`); KIP-226
"""

import os
import ssl
from contextlib import suppress
from dataclasses import replace

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.real.tls_context import client_context, read_stores, server_context
from kctl.tls.settings import TlsSettings
from kctl.tls.store_changes import check_replacement
from kctl.tls.stores import LoadedStores

# Steps of one handshake: TLS 1.2 takes four flights.
STEPS_MAX = 16


@dataclass(frozen=True, slots=True, eq=False)
class LoadedTls:
    """The TLS of a listener, loaded."""

    settings: TlsSettings
    stores: LoadedStores
    context: ssl.SSLContext
    # How brokers connect to the listener; None: they use another one.
    client: ssl.SSLContext | None
    # The files' times of modification and sizes, when they were read.
    stamps: tuple[tuple[int, int] | None, ...]

    @classmethod
    def of(cls, settings: TlsSettings) -> "LoadedTls":
        """Load the stores; raise UsageError naming the file and the reason."""
        stamps = _stamps(settings)
        stores = read_stores(settings)
        context = server_context(settings, stores)
        client = None
        if settings.is_between_brokers:
            client = client_context(replace(settings, verifies_host=False), stores)
        return cls(settings, stores, context, client, stamps)

    def replaced_by(self, settings: TlsSettings) -> "LoadedTls":
        """Return `settings` loaded, or this if neither they nor their files have changed; raise
        UsageError if the stores are unusable, or may not replace these."""
        if settings == self.settings and _stamps(settings) == self.stamps:
            return self
        new = LoadedTls.of(settings)
        check_replacement(self.stores, new.stores)
        if self.client is not None and new.client is not None and _agree(self.client, self.context):
            for client, server, whose in (
                (self.client, new.context, "brokers with the existing stores cannot connect"),
                (new.client, self.context, "a broker with the new stores cannot connect to others"),
            ):
                if not _agree(client, server):
                    raise UsageError(f"The stores do not fit together: {whose}")
        return new


def _stamps(settings: TlsSettings) -> tuple[tuple[int, int] | None, ...]:
    return tuple(map(_stamp, settings.locations))


def _stamp(location: str) -> tuple[int, int] | None:
    with suppress(OSError):
        status = os.stat(location)
        return status.st_mtime_ns, status.st_size
    return None


def _agree(client: ssl.SSLContext, server: ssl.SSLContext) -> bool:
    """Return whether a handshake succeeds; the host's name does not matter."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for step in range(STEPS_MAX):
        side = sides[step % 2]
        try:
            side.do_handshake()
            # With TLS 1.3 a server rejects a client's certificate after the client's last step.
            if step:
                with suppress(ssl.SSLWantReadError):
                    side.read(1)
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
    return all(side.version() is not None for side in sides)
