"""TlsStack: what a RealNetwork needs to accept and to make connections with TLS."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from kctl.runtime.network import Receiver, Transport
from kctl.runtime.real.handshakes import Handshakes
from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.real.tls_context import ClientContexts, read_stores, server_context
from kctl.runtime.real.tls_failures import client_error, server_error
from kctl.runtime.real.tls_transport import TlsTransport
from kctl.runtime.real.transport import RealTransport
from kctl.runtime.trace import Trace
from kctl.tls.settings import TlsSettings

# A certificate that expires in this time is logged at the start.
EXPIRY_WARNING = timedelta(days=30)

OnSecured = Callable[[Exception | None], object]


class TlsStack:
    """The TLS of one network: its contexts and its handshakes under way."""

    def __init__(self, scheduler: RealScheduler, trace: Trace) -> None:
        self.scheduler = scheduler
        self.trace = trace
        self.handshakes = Handshakes()
        self._clients = ClientContexts()

    def acceptor(self, tls: TlsSettings) -> "TlsAcceptor":
        """Return the TLS of a listener; raise UsageError."""
        return TlsAcceptor(self, tls)

    def connector(self, tls: TlsSettings, host: str, name: str) -> "TlsConnector":
        """Return the TLS of a connection to `host`, for errors `name`; raise UsageError."""
        return TlsConnector(self, self._clients.get(tls), host, name)

    def reload_clients(self) -> None:
        """Read the files of clients again; raise UsageError, and keep all, if one is unusable."""
        self._clients.reload()


class TlsAcceptor:
    """Secures the connections that a listener accepts."""

    def __init__(self, stack: TlsStack, tls: TlsSettings) -> None:
        self._stack = stack
        self._context = self._loaded(tls)

    def change(self, tls: TlsSettings) -> None:
        """Use `tls` for new connections; raise UsageError, without a change."""
        self._context = self._loaded(tls)

    def accepted(
        self, lower: RealTransport, on_connection: Callable[[Transport], Receiver | None]
    ) -> None:
        """Offer a connection to its owner, and begin the handshake."""
        stack = self._stack
        transport = TlsTransport(
            stack.scheduler, lower, self._context, stack.handshakes, server_error
        )
        receiver = on_connection(transport)
        if receiver is None:
            lower.abort()
        else:
            transport.attach(receiver)

    def _loaded(self, tls: TlsSettings) -> ssl.SSLContext:
        context = server_context(tls)
        key = read_stores(tls).key
        if key is not None:
            ends = key.certificate.not_after
            if ends < datetime.now(UTC) + EXPIRY_WARNING:
                self._stack.trace.warning(
                    f"The certificate of {key.certificate.subject} expires at {ends:%Y-%m-%d %H:%M}"
                )
        return context


class TlsConnector:
    """Secures a connection to a broker."""

    def __init__(self, stack: TlsStack, context: ssl.SSLContext, host: str, name: str) -> None:
        self._stack = stack
        self._context = context
        self._host = host
        self._name = name

    def connected(
        self,
        lower: RealTransport,
        on_connection: Callable[[Transport], Receiver],
        on_secured: OnSecured,
    ) -> Transport:
        """Begin the handshake of a connection; `on_secured(error)` is called at its end."""
        stack = self._stack
        transport = TlsTransport(
            stack.scheduler,
            lower,
            self._context,
            stack.handshakes,
            partial(client_error, self._name),
            host=self._host,
            on_secured=on_secured,
        )
        transport.attach(on_connection(transport))
        return transport
