"""TlsStack: what a RealNetwork needs to accept and to make connections with TLS."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

from kctl.runtime.future import Future
from kctl.runtime.network import Receiver, Transport
from kctl.runtime.real.handshakes import Handshakes
from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.real.tls_context import ClientContexts, client_context, read_stores
from kctl.runtime.real.tls_failures import client_error, server_error
from kctl.runtime.real.tls_listening import LoadedTls
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
        # What `load` has read for the next `acceptor`.
        self._loaded: LoadedTls | None = None

    def load(self, tls: TlsSettings) -> Future[None]:
        """Read the files of `tls` on another thread, for the next `acceptor`; UsageError through
        the Future."""
        loaded: Future[None] = self.scheduler.future()

        def finished(loading: Future[LoadedTls]) -> None:
            error = loading.error()
            if error is not None:
                loaded.set_error(error)
                return
            self._loaded = loading.result()
            loaded.set_result(None)

        loading = self.scheduler.compute(lambda: LoadedTls.of(tls))
        loading.add_done_callback(finished)
        return loaded

    def acceptor(self, tls: TlsSettings) -> "TlsAcceptor":
        """Return the TLS of a listener; raise UsageError."""
        loaded, self._loaded = self._loaded, None
        if loaded is None or loaded.settings != tls:
            loaded = LoadedTls.of(tls)
        return TlsAcceptor(self, loaded)

    def connector(self, tls: TlsSettings, host: str, name: str) -> "TlsConnector":
        """Return the TLS of a connection to `host`, for errors `name`; raise UsageError."""
        return TlsConnector(self, self._clients.get(tls), host, name)

    def substitute(self, given: TlsSettings, used: TlsSettings) -> Future[None]:
        """Connect with `used` wherever `given` is asked for; UsageError through the Future."""
        changed: Future[None] = self.scheduler.future()

        def finished(loading: Future[ssl.SSLContext]) -> None:
            error = loading.error()
            if error is not None:
                changed.set_error(error)
                return
            self._clients.substitute(given, used, loading.result())
            changed.set_result(None)

        loading = self.scheduler.compute(lambda: client_context(used, read_stores(used)))
        loading.add_done_callback(finished)
        return changed

    def reload_clients(self) -> None:
        """Read the files of clients again; raise UsageError, and keep all, if one is unusable."""
        self._clients.reload()


class TlsAcceptor:
    """Secures the connections that a listener accepts."""

    def __init__(self, stack: TlsStack, loaded: LoadedTls) -> None:
        self._stack = stack
        self._loaded = loaded
        self._warn_of_expiry()

    def change(self, tls: TlsSettings) -> None:
        """Use `tls` for new connections; raise UsageError, without a change."""
        self._loaded = LoadedTls.of(tls)
        self._warn_of_expiry()

    def replace(self, tls: TlsSettings, *, validate_only: bool) -> Future[bool]:
        """Use `tls` for new connections if it differs and is compatible; UsageError through the
        Future. What blocks or computes runs on another thread."""
        before = self._loaded
        replaced: Future[bool] = self._stack.scheduler.future()

        def finished(loading: Future[LoadedTls]) -> None:
            error = loading.error()
            if error is not None:
                replaced.set_error(error)
                return
            after = loading.result()
            if after is not before and not validate_only:
                self._loaded = after
                self._warn_of_expiry()
            replaced.set_result(after is not before)

        loading = self._stack.scheduler.compute(lambda: before.replaced_by(tls))
        loading.add_done_callback(finished)
        return replaced

    def accepted(
        self, lower: RealTransport, on_connection: Callable[[Transport], Receiver | None]
    ) -> None:
        """Offer a connection to its owner, and begin the handshake."""
        stack = self._stack
        transport = TlsTransport(
            stack.scheduler, lower, self._loaded.context, stack.handshakes, server_error
        )
        receiver = on_connection(transport)
        if receiver is None:
            lower.abort()
        else:
            transport.attach(receiver)

    def _warn_of_expiry(self) -> None:
        key = self._loaded.stores.key
        if key is None:
            return
        subject, ends = key.certificate.subject, key.certificate.not_after
        warning = expiry_warning(str(subject), ends, datetime.now(UTC))
        if warning is not None:
            self._stack.trace.warning(warning)


def expiry_warning(subject: str, ends: datetime, now: datetime) -> str | None:
    """Return the log line about a certificate of this side that has expired, or does so within
    EXPIRY_WARNING; otherwise None."""
    if ends <= now:
        return f"The certificate of {subject} has expired at {ends:%Y-%m-%d %H:%M}: renew it"
    if ends < now + EXPIRY_WARNING:
        return f"The certificate of {subject} expires at {ends:%Y-%m-%d %H:%M}"
    return None


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
