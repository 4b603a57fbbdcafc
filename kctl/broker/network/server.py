"""SocketServer: a broker's listeners and connections, and the limits on both.

It accepts, counts and closes; what comes over a connection is ServerConnection's affair.
At max.connections the listeners leave new connections in the backlog; beyond
max.connections.per.ip a connection is closed at once; one that asked for nothing during
connections.max.idle.ms is closed by a sweep, of which there are SWEEPS_PER_IDLE in that time.
What all requests take of memory is RequestMemory's affair; what is large, of `in_slices`.

Short roads: for an API whose requests are mostly of one plain shape there may be a function that
takes a whole frame and a way to send the answer's whole frame. It answers before it returns,
and says so; or it does nothing and says that, and the request is decoded and dispatched as any.

Kafka 2.7: kafka.network.SocketServer, ConnectionQuotas; KIP-402, KIP-72
"""

import traceback
from collections.abc import Callable, Mapping, Sequence

from kctl.broker.network.complaints import Complaints
from kctl.broker.network.counters import NetworkCounters
from kctl.broker.network.limits import NetworkLimits
from kctl.broker.network.request_memory import RequestMemory
from kctl.broker.network.server_connection import ServerConnection
from kctl.broker.request import Request, RequestContext
from kctl.model import Endpoint
from kctl.protocol.framing import SCRATCH_BYTES, BufferPool
from kctl.protocol.primitives import Buffer
from kctl.runtime.future import Future
from kctl.runtime.network import Listener, Transport
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

# (frame, send the answer) -> whether it was answered.
ShortRoad = Callable[[Buffer, Callable[[bytes], object]], bool]

SWEEPS_PER_IDLE = 8
SWEEP_MS_MIN = 100
DRAIN_MS = 5_000


class SocketServer:
    """Everything a broker has open towards its clients."""

    def __init__(
        self,
        runtime: Runtime,
        listeners: Sequence[Endpoint],
        served: Mapping[int, tuple[int, int]],
        on_request: Callable[[Request], object],
        limits: NetworkLimits | None = None,
        short_roads: Mapping[bytes, ShortRoad] | None = None,
    ) -> None:
        """`short_roads`: by API key as two bytes."""
        self.short_roads = short_roads or {}
        self._limits = limits or NetworkLimits()
        # API key -> (first, last) version that is dispatched; nothing else is.
        self.served = served
        self.on_request = on_request
        self.counters = NetworkCounters()
        # Shared by all connections; see FrameBuffer.
        self.scratch = bytearray(SCRATCH_BYTES)
        self.pool = BufferPool()
        # Bound once, as every request asks.
        self.now_ms = runtime.clock.monotonic_ms
        self.call_soon = runtime.scheduler.call_soon
        self.scheduler = runtime.scheduler
        self.memory = RequestMemory(
            runtime.scheduler, self.counters, self._limits.queued_request_bytes_max
        )
        self._runtime = runtime
        self._wanted = list(listeners)
        # Listeners in the order of `listeners`, once started.
        self._listeners: list[Listener] = []
        self._is_accepting_paused = False
        self._connections: dict[ServerConnection, None] = {}
        self._connections_per_ip: dict[str, int] = {}
        self._connection_count = 0
        self._complaints = Complaints()
        self._failures = Complaints()
        self._sweep_timer: Timer | None = None
        self._drain_timer: Timer | None = None
        self._closed: Future[None] | None = None

    def start(self) -> list[Endpoint]:
        """Listen; the endpoints with the ports in fact bound. KctlError if one cannot be."""
        try:
            for endpoint in self._wanted:
                self._listeners.append(self._listen(endpoint))
        except BaseException:
            for listener in self._listeners:
                listener.close()
            raise
        self._set_sweep_timer()
        return self.endpoints

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where it listens, with the ports in fact bound."""
        return [
            Endpoint(wanted.host, listener.port, wanted.listener_name, wanted.security_protocol)
            for wanted, listener in zip(self._wanted, self._listeners, strict=True)
        ]

    @property
    def limits(self) -> NetworkLimits:
        """What peers are allowed; assign new ones at any time. Connections that are open stay,
        and keep the largest request that they began with."""
        return self._limits

    @limits.setter
    def limits(self, limits: NetworkLimits) -> None:
        self._limits = limits
        if self._closed is not None:
            return
        if self._is_accepting_paused:
            self._resume_accepting_if_room()
        elif not self._has_room():
            self._pause_accepting()
        self.memory.bytes_max = limits.queued_request_bytes_max

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    def close(self, drain_ms: int = DRAIN_MS) -> Future[None]:
        """Accept no more, answer what is in flight for at most `drain_ms`, close everything.
        Done when the last connection is gone."""
        if self._closed is not None:
            return self._closed
        self._closed = self._runtime.scheduler.future()
        for listener in self._listeners:
            listener.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._connections):
            connection.close_when_answered()
        if self._connections:
            self._drain_timer = self._runtime.scheduler.call_later(drain_ms, self._abort_all)
        else:
            self._closed.set_result(None)
        return self._closed

    # For connections

    def connection_lost(self, connection: ServerConnection) -> None:
        """`connection` is gone."""
        del self._connections[connection]
        self.counters.connections -= 1
        host = connection.context.client_host
        left = self._connections_per_ip[host] - 1
        if left:
            self._connections_per_ip[host] = left
        else:
            del self._connections_per_ip[host]
        if self._closed is not None:
            if not self._connections and not self._closed.done:
                if self._drain_timer is not None:
                    self._drain_timer.cancel()
                self._closed.set_result(None)
        elif self._is_accepting_paused:
            self._resume_accepting_if_room()

    def complain(self, host: str, words: str) -> None:
        """Log a line about a peer, unless it has had its line this second."""
        self._tell(self._complaints, host, lambda: words)

    def handler_failed(self, request: Request, error: Exception) -> None:
        """A bug of ours: log all there is to know, unless its peer had one this second."""
        self.counters.handler_errors += 1

        def words() -> str:
            lines = "".join(traceback.format_exception(error)).rstrip()
            return (
                f"Unexpected error in API {request.api_key} version {request.api_version}"
                f" of {request.context.connection_id}\n{lines}"
            )

        self._tell(self._failures, request.context.client_host, words)

    def _tell(self, complaints: Complaints, host: str, words: Callable[[], str]) -> None:
        line = complaints.line(host, words, self.now_ms())
        if line is not None:
            self._runtime.trace.warning(line)

    # Accepting

    def _listen(self, endpoint: Endpoint) -> Listener:
        def accept(transport: Transport) -> ServerConnection | None:
            return self._accept(endpoint, transport)

        return self._runtime.network.listen(
            endpoint.host,
            endpoint.port,
            accept,
            send_buffer_bytes=self._limits.send_buffer_bytes,
        )

    def _accept(self, endpoint: Endpoint, transport: Transport) -> ServerConnection | None:
        host, port = transport.peer
        count = self._connections_per_ip.get(host, 0)
        limits = self.limits
        allowed = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        if count >= allowed:
            self.counters.connections_refused += 1
            self.complain(host, f"Refused a connection of {host}: it has {count} open already")
            return None
        self._connections_per_ip[host] = count + 1
        self._connection_count += 1
        context = RequestContext(
            connection_id=f"{endpoint.listener_name}-{host}:{port}-{self._connection_count}",
            client_host=host,
            listener_name=endpoint.listener_name,
            security_protocol=endpoint.security_protocol,
            connection_number=self._connection_count,
        )
        connection = ServerConnection(self, transport, context)
        self._connections[connection] = None
        self.counters.connections += 1
        self.counters.connections_accepted += 1
        if not self._has_room():
            self._pause_accepting()
        return connection

    def _has_room(self) -> bool:
        return len(self._connections) < self.limits.connections_max

    def _resume_accepting_if_room(self) -> None:
        if self._has_room():
            self._is_accepting_paused = False
            for listener in self._listeners:
                listener.resume_accepting()

    def _pause_accepting(self) -> None:
        self._is_accepting_paused = True
        self.counters.accepting_paused += 1
        self._runtime.trace.warning(
            f"{len(self._connections)} connections are open, as many as max.connections allows:"
            " others wait"
        )
        for listener in self._listeners:
            listener.pause_accepting()

    # Upkeep

    def _set_sweep_timer(self) -> None:
        delay_ms = max(self.limits.idle_ms_max // SWEEPS_PER_IDLE, SWEEP_MS_MIN)
        self._sweep_timer = self._runtime.scheduler.call_later(delay_ms, self._sweep)

    def _sweep(self) -> None:
        oldest_ms = self.now_ms() - self.limits.idle_ms_max
        idle = [it for it in self._connections if it.last_active_ms <= oldest_ms]
        for connection in idle:
            unsent = connection.unsent_bytes()
            is_moving = unsent != connection.unsent_at_last_sweep
            connection.unsent_at_last_sweep = unsent
            if not connection.has_unanswered_request and not (unsent and is_moving):
                self.counters.connections_idle_closed += 1
                connection.abort()
        self._set_sweep_timer()

    def _abort_all(self) -> None:
        for connection in list(self._connections):
            connection.abort()
