"""SocketServer: a broker's listeners and connections, and the limits on both.

It accepts, counts and closes connections; `ServerConnection` serves them. `Acceptors` holds the
listeners back at max.connections. While there are more connections than that, because a protected
listener took one or the limit was lowered, the least recently used ones of other listeners are
closed. So are the connections of a listener that is removed, once their requests are answered.
Beyond max.connections.per.ip a connection is closed at once; a connection without a request
for connections.max.idle.ms is closed by a sweep, which runs SWEEPS_PER_IDLE times in that time.
RequestMemory bounds the memory of all requests; `in_slices` splits large ones.

Fast paths: an API whose requests mostly have one plain form may have a function that takes a whole
frame and a function to send the whole response frame. It either sends the response and returns
True, or changes nothing and returns False; then the request is decoded and dispatched as usual.

Kafka 2.7: kafka.network.SocketServer, ConnectionQuotas; KIP-402, KIP-72
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kctl.broker.client_throttling import ClientQuotas
from kctl.broker.network.acceptors import Acceptors
from kctl.broker.network.backlog import Backlog
from kctl.broker.network.connection_host import FastPath
from kctl.broker.network.counters import NetworkCounters
from kctl.broker.network.least_recently_used import LeastRecentlyUsed
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.request_memory import RequestMemory
from kctl.broker.network.server_connection import ServerConnection
from kctl.broker.request import Request, RequestContext
from kctl.broker.request_times import RequestCounter, RequestWatcher
from kctl.errors import KctlError, UsageError
from kctl.model import Endpoint
from kctl.protocol.framing import BufferPool, Scratch
from kctl.runtime.complaints import Complaints
from kctl.runtime.future import Future
from kctl.runtime.network import TlsSession, Transport
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import alone_in_turns
from kctl.store.errors import StoppingError
from kctl.work import Work

if TYPE_CHECKING:
    from kctl.broker.network.authentication import Authentication
    from kctl.broker.network.sasl_exchange import CredentialSource
    from kctl.configs.listener_security import SaslListener, TlsListener
    from kctl.tls.settings import TlsSettings

SWEEPS_PER_IDLE = 8
SWEEP_MS_MIN = 100
DRAIN_MS = 5_000
# Connections closed in one turn, because there are more than max.connections or because their
# listener is removed.
CLOSED_PER_TURN = 64


class SocketServer:
    """A broker's listeners and the connections of its clients."""

    def __init__(
        self,
        runtime: Runtime,
        listeners: Sequence[Endpoint],
        served: Mapping[int, tuple[int, int]],
        on_request: Callable[[Request], object],
        limits: NetworkLimits | None = None,
        fast_paths: Mapping[bytes, FastPath] | None = None,
        sasl: "Mapping[str, SaslListener] | None" = None,
        credentials: "CredentialSource | None" = None,
        tls: "Mapping[str, TlsListener] | None" = None,
        may_be_decoded: Callable[[Request, int], bool] | None = None,
    ) -> None:
        """Create a server; `fast_paths` maps API keys, as two bytes, to functions, `sasl` the names
        of the listeners with SASL, whose clients' credentials are in `credentials`, and `tls` those
        of the listeners with TLS.

        `may_be_decoded` is asked about a large request, and its size in bytes, before its body is
        decoded; if it returns False, the request has its response.
        """
        self._tls = dict(tls or {})
        self._sasl = dict(sasl or {})
        self._credentials: CredentialSource | None = None
        self._authentication_class: type[Authentication] | None = None
        if credentials is not None:
            self.use_credentials(credentials)
        # Shared by all connections.
        self.fast_paths = dict(fast_paths or {})
        self.client_quotas: ClientQuotas | None = None
        self._limits = limits or NetworkLimits()
        # API key -> (first, last) version that is dispatched; nothing else is.
        self.served = served
        self.on_request = on_request
        self.may_be_decoded = may_be_decoded
        self.request_watchers: tuple[RequestWatcher, ...] = ()
        self.request_counter: RequestCounter | None = None
        # The same, also while others watch.
        self._counter: RequestCounter | None = None
        self.counters = NetworkCounters()
        # Shared by all connections; see FrameBuffer.
        self.scratch = Scratch()
        self.backlog = Backlog(self.scratch)
        self.pool = BufferPool()
        # Bound once, because every request uses them.
        self.now_ms = runtime.clock.monotonic_ms
        self.now_ns = runtime.clock.monotonic_ns
        self.call_soon = runtime.scheduler.call_soon
        self.is_turn_spent = runtime.scheduler.is_turn_spent
        self.scheduler = runtime.scheduler
        self.memory = RequestMemory(
            runtime.scheduler, self.counters, self._limits.queued_request_bytes_max
        )
        self._runtime = runtime
        self._wanted = list(listeners)
        self._acceptors = Acceptors(runtime, self._limits, self.counters, self._accept)
        self._connections: dict[ServerConnection, None] = {}
        self._connections_per_ip: dict[str, int] = {}
        # Those closed because there are more than max.connections, until they are lost.
        self._excess: dict[ServerConnection, None] = {}
        self._is_excess_queued = False
        # Those that are yet to be closed, of removed listeners, or all when the server closes.
        self._leaving: list[ServerConnection] = []
        self._least_recently_used = LeastRecentlyUsed()
        self._connection_count = 0
        self._complaints = Complaints()
        self._failures = Complaints()
        self._sweep_timer: Timer | None = None
        self._drain_timer: Timer | None = None
        self._closed: Future[None] | None = None

    def use_credentials(self, credentials: "CredentialSource") -> None:
        """Authenticate the clients of listeners with SASL by `credentials`."""
        # A local import: servers without such listeners do not need it.
        from kctl.broker.network.authentication import Authentication

        self._credentials, self._authentication_class = credentials, Authentication

    def use_client_quotas(self, quotas: ClientQuotas | None) -> None:
        """Throttle clients by `quotas`. Fast paths count nothing, so they are offered only the
        requests of clients without a limit."""
        self.client_quotas = quotas

    def watch_requests(self, watcher: RequestWatcher) -> None:
        """Measure where the time of each request goes that begins from now on."""
        if watcher not in self.request_watchers:
            self._set_watchers((*self.request_watchers, watcher))

    def count_requests(self, counter: RequestCounter) -> None:
        """Count each request that begins from now on. Unless others watch them, requests that are
        answered at once have no times."""
        self._counter = counter
        self.watch_requests(counter)

    def unwatch_requests(self, watcher: RequestWatcher) -> None:
        """Measure no longer for `watcher`."""
        self._set_watchers(tuple(it for it in self.request_watchers if it is not watcher))

    def _set_watchers(self, watchers: tuple[RequestWatcher, ...]) -> None:
        self.request_watchers = watchers
        self.request_counter = self._counter if watchers == (self._counter,) else None

    def start(self) -> list[Endpoint]:
        """Listen; return the endpoints with the bound ports, or raise KctlError."""
        self._acceptors.open(self._wanted, self._tls_settings())
        self._set_sweep_timer()
        return self.endpoints

    @property
    def endpoints(self) -> list[Endpoint]:
        """Return the listening endpoints with the bound ports."""
        return self._acceptors.endpoints

    @property
    def limits(self) -> NetworkLimits:
        """Return the current limits."""
        return self._limits

    def apply_limits(self, limits: NetworkLimits) -> None:
        """Replace the limits; open connections keep the maximum request size they began with."""
        self._limits = limits
        if self._closed is not None:
            return
        self._acceptors.apply_limits(limits)
        self._close_excess()
        self.memory.bytes_max = limits.queued_request_bytes_max

    @property
    def tls_listeners(self) -> list[str]:
        """Return the names of the listeners with TLS."""
        return [name for name in self._acceptors.names if name in self._tls]

    async def change_listeners(
        self,
        wanted: Sequence[Endpoint],
        sasl: "Mapping[str, SaslListener]",
        tls: "Mapping[str, TlsListener]",
    ) -> None:
        """Listen at `wanted`: open those whose names are new, and close the others.

        Raise KctlError, and listen as before, if one cannot be opened. Clients of a closed listener
        still get the answers to their requests.
        """
        before, after = set(self._acceptors.names), {it.listener_name for it in wanted}
        removed = [it for it in self._wanted if it.listener_name not in after]
        # A new listener may take the port of an old one.
        for endpoint in removed:
            self._acceptors.remove(endpoint.listener_name)
        added: list[Endpoint] = []
        try:
            for endpoint in wanted:
                if endpoint.listener_name not in before:
                    await self._open(endpoint, sasl, tls)
                    added.append(endpoint)
        except KctlError:
            for endpoint in added:
                self._acceptors.remove(endpoint.listener_name)
            if self._closed is None:
                self._acceptors.open(removed, self._tls_settings())
            raise
        self._wanted = list(wanted)
        gone = {endpoint.listener_name for endpoint in removed}
        self._leaving += [it for it in self._connections if it.context.listener_name in gone]
        self._close_leaving()

    async def _open(
        self,
        endpoint: Endpoint,
        sasl: "Mapping[str, SaslListener]",
        tls: "Mapping[str, TlsListener]",
    ) -> None:
        name = endpoint.listener_name
        if name in tls:
            await self._runtime.network.load_tls(tls[name].settings)
            self._tls[name] = tls[name]
        if name in sasl:
            self._sasl[name] = sasl[name]
        if self._closed is None:
            self._acceptors.open([endpoint], self._tls_settings())

    def _tls_settings(self) -> "dict[str, TlsSettings]":
        return {name: listener.settings for name, listener in self._tls.items()}

    def _close_leaving(self) -> None:
        """Close connections that are to go, CLOSED_PER_TURN now and the others in later
        turns."""
        for connection in self._leaving[:CLOSED_PER_TURN]:
            if connection in self._connections:
                connection.close_when_answered()
        del self._leaving[:CLOSED_PER_TURN]
        if self._leaving:
            self._runtime.scheduler.call_soon(self._close_leaving)

    async def replace_tls(
        self,
        listener_name: str,
        wanted: "Mapping[str, TlsListener]",
        *,
        validate_only: bool = False,
    ) -> "TlsSettings | None":
        """Use the stores that `wanted` has for a listener, if they or their files have changed.

        Return the listener's settings if so, else None. Raise UsageError, without a change, if the
        listener cannot use them.
        """
        current, after = self._tls.get(listener_name), wanted.get(listener_name)
        if current is None or after is None:
            return None
        # Its other settings change with a restart only.
        settings = current.settings.with_stores_of(after.settings)
        listener = self._acceptors.listener(listener_name)
        is_changed = await listener.replace_tls(settings, validate_only=validate_only)
        if not is_changed:
            return None
        if not validate_only and self._tls.get(listener_name) is current:
            self._tls[listener_name] = replace(current, settings=settings)
        return settings

    def reload_tls(self) -> None:
        """Read all key and trust stores again, for new connections. Those of a listener that are
        unusable are logged, and its old ones stay; the other listeners have their new ones."""
        for name in self.tls_listeners:
            listener, settings = self._acceptors.listener(name), self._tls[name].settings
            self._reload(f"of listener {name}", partial(listener.change_tls, settings))
        self._reload("of connections to other brokers", self._runtime.network.reload_tls)

    def _reload(self, whose: str, read: Callable[[], None]) -> None:
        trace = self._runtime.trace
        try:
            read()
        except UsageError as error:
            trace.warning(f"The key and trust stores {whose} are not reloaded: {error}")
        else:
            trace.info(f"The key and trust stores {whose} are reloaded")

    @property
    def connection_count(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    def connections_by_listener(self) -> dict[str, int]:
        """Return the number of open connections of each listener, also of one without any."""
        counts = dict.fromkeys(self._acceptors.names, 0)
        for connection in self._connections:
            name = connection.context.listener_name
            counts[name] = counts.get(name, 0) + 1
        return counts

    def close(self, drain_ms: int = DRAIN_MS) -> Future[None]:
        """Stop accepting, complete requests in flight within `drain_ms`, and close everything.

        The Future is done when the last connection is closed.
        """
        if self._closed is not None:
            return self._closed
        self._closed = self._runtime.scheduler.future()
        self._acceptors.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._leaving = list(self._connections)
        self._close_leaving()
        if self._connections:
            self._drain_timer = self._runtime.scheduler.call_later(drain_ms, self._abort_all)
        else:
            self._closed.set_result(None)
        return self._closed

    # For connections

    def connection_lost(self, connection: ServerConnection) -> None:
        """Remove a closed connection."""
        del self._connections[connection]
        self._excess.pop(connection, None)
        self._acceptors.closed(connection.context.listener_name)
        self.counters.connections -= 1
        host = connection.context.client_host
        left = self._connections_per_ip[host] - 1
        if left:
            self._connections_per_ip[host] = left
        else:
            del self._connections_per_ip[host]
        if self._closed is not None and not self._connections and not self._closed.done:
            if self._drain_timer is not None:
                self._drain_timer.cancel()
            self._closed.set_result(None)

    def complain(self, client_host: str, message: str) -> None:
        """Log a client's invalid request, one line per host and second."""
        line = self._complaints.line(client_host, lambda: message, self.now_ms())
        if line is not None:
            self._runtime.trace.warning(line)

    def principal_of(self, listener_name: str, certificate: bytes) -> str | None:
        """Return the principal of a client's certificate; None if no mapping rule applies. Raise
        CorruptDataError."""
        name = self._tls[listener_name].name_of(certificate)
        return None if name is None else f"User:{name}"

    def tls_failed(self, context: RequestContext, reason: str) -> None:
        """Count and log a connection that ends because of TLS, one line per host and second."""
        self.counters.listener(context.listener_name).failed_tls_connections += 1
        self.complain(context.client_host, f"{context.connection_id}: {reason}")

    def secured(self, context: RequestContext, session: TlsSession) -> None:
        """Count a completed TLS handshake."""
        handshakes = self.counters.listener(context.listener_name).handshakes
        key = (session.version, session.cipher)
        handshakes[key] = handshakes.get(key, 0) + 1

    def authenticated(self, context: RequestContext, *, is_again: bool) -> None:
        """Count a successful authentication."""
        counters = self.counters.listener(context.listener_name)
        if is_again:
            counters.reauthentications += 1
        else:
            counters.authentications += 1

    def authentication_failed(
        self, connection: ServerConnection, reason: str, *, is_again: bool
    ) -> None:
        """Count a failed authentication and log it, one line per host and second."""
        context = connection.context
        counters = self.counters.listener(context.listener_name)
        if is_again:
            counters.failed_reauthentications += 1
        else:
            counters.failed_authentications += 1
        self.complain(
            context.client_host, f"{context.connection_id}: failed authentication: {reason}"
        )

    def handler_failed(self, request: Request, error: Exception) -> None:
        """Log a handler's exception with its traceback, one per host and second.

        A request that waits for the store while the broker stops is no failure of its handler: it
        ends with its connection, as all others will.
        """
        if isinstance(error, StoppingError):
            return
        work = f"API {request.api_key} version {request.api_version}"
        self.connection_failed(request.context, work, error)

    def connection_failed(self, context: RequestContext, work: str, error: Exception) -> None:
        """Log an error, with its traceback, that `work` for a connection met: one per host and
        second."""
        self.counters.handler_errors += 1
        line = self._failures.line(
            context.client_host,
            lambda: f"Unexpected error in {work} of {context.connection_id}",
            self.now_ms(),
        )
        if line is not None:
            self._runtime.trace.warning(line, "".join(traceback.format_exception(error)))

    # Accepting

    def _accept(self, endpoint: Endpoint, transport: Transport) -> ServerConnection | None:
        host, port = transport.peer
        listener_name = endpoint.listener_name
        self._acceptors.opened(listener_name)
        count = self._connections_per_ip.get(host, 0)
        limits = self.limits
        allowed = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        if count >= allowed:
            self._acceptors.closed(listener_name)
            self.counters.connections_refused += 1
            self.complain(
                host, f"Refused a connection of {host}: it already has {count} open connections"
            )
            return None
        self._connections_per_ip[host] = count + 1
        self._connection_count += 1
        context = RequestContext(
            connection_id=f"{listener_name}-{host}:{port}-{self._connection_count}",
            client_host=host,
            listener_name=listener_name,
            security_protocol=endpoint.security_protocol,
            connection_number=self._connection_count,
        )
        connection = ServerConnection(self, transport, context, self._authentication(endpoint))
        self._connections[connection] = None
        self.counters.connections += 1
        self.counters.connections_accepted += 1
        accepted = self.counters.accepted_by_listener
        accepted[listener_name] = accepted.get(listener_name, 0) + 1
        self._close_excess()
        return connection

    def _authentication(self, endpoint: Endpoint) -> "Authentication | None":
        listener = self._sasl.get(endpoint.listener_name)
        if listener is None:
            return None
        assert self._authentication_class is not None
        assert self._credentials is not None
        return self._authentication_class(listener, self._credentials, self.served)

    # max.connections

    def _close_excess(self) -> None:
        """Close the least recently used connections of unprotected listeners beyond the maximum,
        CLOSED_PER_TURN now and the others in later turns."""
        quotas = self._acceptors.quotas
        for _ in range(CLOSED_PER_TURN):
            if quotas.excess <= len(self._excess):
                return
            connection = self._least_recently_used.take(
                lambda: filter(self._may_close, self._connections), self._may_close
            )
            if connection is None:
                return
            self._excess[connection] = None
            self.counters.connections_excess_closed += 1
            connection.abort()
        if not self._is_excess_queued:
            self._is_excess_queued = True
            self._runtime.scheduler.call_soon(self._close_more_excess)

    def _close_more_excess(self) -> None:
        self._is_excess_queued = False
        if self._closed is None:
            self._close_excess()

    def _may_close(self, connection: ServerConnection) -> bool:
        return (
            connection in self._connections
            and connection not in self._excess
            and not self._acceptors.quotas.is_protected(connection.context.listener_name)
        )

    # Upkeep

    def _set_sweep_timer(self) -> None:
        delay_ms = max(self.limits.idle_ms_max // SWEEPS_PER_IDLE, SWEEP_MS_MIN)
        self._sweep_timer = self._runtime.scheduler.call_later(delay_ms, self._sweep)

    def _sweep(self) -> None:
        oldest_ms = self.now_ms() - self.limits.idle_ms_max
        idle = [it for it in self._connections if it.last_active_ms <= oldest_ms]
        self._set_sweep_timer()
        alone_in_turns(self.scheduler, self._closing_idle(idle, oldest_ms))

    def _closing_idle(self, idle: Sequence[ServerConnection], oldest_ms: int) -> Work[None]:
        for number, connection in enumerate(idle, 1):
            if connection in self._connections and connection.last_active_ms <= oldest_ms:
                unsent = connection.unsent_bytes()
                is_moving = unsent != connection.unsent_at_last_sweep
                connection.unsent_at_last_sweep = unsent
                if not connection.has_unanswered_request and not (unsent and is_moving):
                    self.counters.connections_idle_closed += 1
                    connection.abort()
            if number % CLOSED_PER_TURN == 0:
                yield

    def _abort_all(self) -> None:
        alone_in_turns(self.scheduler, self._aborting())

    def _aborting(self) -> Work[None]:
        for number, connection in enumerate(list(self._connections), 1):
            if connection in self._connections:
                connection.abort()
            if number % CLOSED_PER_TURN == 0:
                yield
