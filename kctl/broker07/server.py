"""Server07: the listener of a broker of Kafka 0.7 and its connections.

Requests that are not whole take memory for as long as their clients like, since 0.7 has no limit
of time. Beyond RECEIVED_BYTES_MAX of all connections, the one that holds the most is closed.

Kafka 0.7: kafka.network.SocketServer
"""

import traceback
from collections.abc import Sequence

from kctl.broker07.connection import Connection07
from kctl.broker07.handlers import Handlers07
from kctl.model import Endpoint
from kctl.protocol.framing import BufferPool, Scratch
from kctl.protocol.primitives import Buffer
from kctl.runtime.complaints import Complaints
from kctl.runtime.future import Future, Task
from kctl.runtime.network import Listener, Part, Transport
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

# Memory of all requests that are not whole: five of the largest, by default.
RECEIVED_BYTES_MAX = 512 * 1024 * 1024
DRAIN_MS = 5_000


class Server07:
    """Owns a listener and its connections."""

    def __init__(self, runtime: Runtime, handlers: Handlers07, request_bytes_max: int) -> None:
        self.scratch = Scratch()
        self.pool = BufferPool()
        self.request_bytes_max = request_bytes_max
        # Bound once, because every request uses it.
        self.is_turn_spent = runtime.scheduler.is_turn_spent
        self._runtime = runtime
        self._handlers = handlers
        self._connections: dict[Connection07, None] = {}
        # Connection -> the memory that it held when it was last looked at.
        self._held: dict[Connection07, int] = {}
        self._held_bytes = 0
        self._complaints = Complaints()
        self._failures = Complaints()
        self._listener: Listener | None = None
        self._closed: Future[None] | None = None
        self._drain_timer: Timer | None = None

    def start(self, host: str, port: int) -> Endpoint:
        """Listen; return where. KctlError if that fails."""
        self._listener = self._runtime.network.listen(host, port, self._accept)
        return Endpoint(host, self._listener.port)

    @property
    def connection_count(self) -> int:
        """Return the number of open connections."""
        return len(self._connections)

    def close(self, drain_ms: int = DRAIN_MS) -> Future[None]:
        """Stop accepting, end the requests in flight within `drain_ms`, and close everything."""
        if self._closed is not None:
            return self._closed
        self._closed = self._runtime.scheduler.future()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close_when_answered()
        if self._connections:
            self._drain_timer = self._runtime.scheduler.call_later(drain_ms, self._abort_all)
        else:
            self._closed.set_result(None)
        return self._closed

    def _abort_all(self) -> None:
        for connection in list(self._connections):
            connection.abort()

    def _accept(self, transport: Transport) -> Connection07:
        connection = Connection07(self, transport)
        self._connections[connection] = None
        return connection

    # --- for connections

    def begin(self, frame: Buffer) -> Task[Sequence[Part]]:
        """Start to answer the request in `frame`."""
        return self._runtime.scheduler.spawn(self._handlers.answer(frame), "request of Kafka 0.7")

    def call_soon(self, connection: Connection07) -> None:
        """Call the connection's `resume` in a later turn."""
        self._runtime.scheduler.call_later(0, connection.resume)

    def received(self, connection: Connection07) -> None:
        """Count the memory of a connection; close the one that holds the most if it is too much."""
        self._count(connection, connection.held_bytes)
        if self._held_bytes > RECEIVED_BYTES_MAX:
            largest = max(self._held, key=self._held.__getitem__)
            self._count(largest, 0)
            largest.evict(
                f"its unfinished request holds the most of more than {RECEIVED_BYTES_MAX} bytes"
            )
            largest.abort()

    def _count(self, connection: Connection07, held: int) -> None:
        self._held_bytes += held - self._held.pop(connection, 0)
        if held:
            self._held[connection] = held

    def complain(self, peer: tuple[str, int], reason: str) -> None:
        """Log why a connection is closed, one line per host and second."""
        line = self._complaints.line(
            peer[0],
            lambda: f"closes the connection of {peer[0]}:{peer[1]}: {reason}",
            self._now_ms(),
        )
        if line is not None:
            self._runtime.trace.warning(line)

    def failed(self, peer: tuple[str, int], error: BaseException) -> None:
        """Log an unexpected error with its traceback, one per host and second."""
        line = self._failures.line(
            peer[0],
            lambda: f"Unexpected error in a request of {peer[0]}:{peer[1]}",
            self._now_ms(),
        )
        if line is not None:
            self._runtime.trace.warning(line, "".join(traceback.format_exception(error)))

    def _now_ms(self) -> int:
        return self._runtime.clock.monotonic_ms()

    def lost(self, connection: Connection07) -> None:
        """Forget a connection."""
        self._count(connection, 0)
        del self._connections[connection]
        if self._closed is not None and not self._connections and not self._closed.done:
            if self._drain_timer is not None:
                self._drain_timer.cancel()
            self._closed.set_result(None)
