"""Connection07: serves one client of Kafka 0.7, one request at a time, in order.

The phases and their moves are those of `kctl.protocol.server_phase`. The next request begins when
the one before is over and its answer has left; up to PIPELINED_BYTES_MAX bytes of what follows are
received meanwhile. Half a request is waited for without a time limit.

What cannot be served closes this connection, without an answer, and nothing else. A client that
has shut down its sending side still gets the answers to what it sent.

Invariant: a frame's bytes stay valid until its request is over.

Kafka 0.7: kafka.network.Processor
"""

from collections.abc import Sequence
from typing import Protocol

from kctl.errors import CorruptDataError, KctlError
from kctl.protocol.framing import BufferPool, FrameBuffer, Scratch
from kctl.protocol.primitives import Buffer
from kctl.protocol.server_phase import ServerPhase, moved
from kctl.runtime.future import Future, Task
from kctl.runtime.network import Part, Transport

# Bytes accepted while a request is in flight, before reading stops.
PIPELINED_BYTES_MAX = 32 * 1024


class ConnectionHost(Protocol):
    """What a connection needs of its server."""

    scratch: Scratch
    pool: BufferPool
    request_bytes_max: int

    def begin(self, frame: Buffer) -> Task[Sequence[Part]]:
        """Start to answer the request in `frame`."""
        ...

    def call_soon(self, connection: "Connection07") -> None:
        """Call the connection's `resume` in a later turn."""
        ...

    def is_turn_spent(self) -> bool:
        """Return whether other connections should be served first."""
        ...

    def received(self, connection: "Connection07") -> None:
        """Look at the memory of all requests, which has changed."""
        ...

    def complain(self, peer: tuple[str, int], reason: str) -> None:
        """Log why a connection is closed."""
        ...

    def failed(self, peer: tuple[str, int], error: BaseException) -> None:
        """Log an unexpected error."""
        ...

    def lost(self, connection: "Connection07") -> None:
        """Forget a connection."""
        ...


class Connection07:
    """One accepted connection, as the Receiver of its transport."""

    __slots__ = (
        "_frames",
        "_has_eof",
        "_host",
        "_is_paused",
        "_phase",
        "_task",
        "_transport",
        "get_buffer",
        "held_bytes",
    )

    def __init__(self, host: ConnectionHost, transport: Transport) -> None:
        self._host = host
        self._transport = transport
        self._frames = FrameBuffer(host.scratch, host.pool, host.request_bytes_max)
        self.get_buffer = self._frames.get_buffer
        self._phase = ServerPhase.READING
        # The request in flight.
        self._task: Task[Sequence[Part]] | None = None
        self._has_eof = False
        self._is_paused = False
        # The memory of a request that is not whole yet.
        self.held_bytes = 0

    # --- Receiver

    def buffer_updated(self, count: int) -> None:
        """Serve the requests that are whole, unless one is in flight."""
        if self._phase is ServerPhase.OVER:
            return
        self._frames.buffer_updated(count)
        self._serve()

    def eof_received(self) -> bool:
        """Return whether to stay open for answers that are due."""
        self._has_eof = True
        return self.is_busy

    def connection_lost(self, _error: Exception | None) -> None:
        """Release everything; a late answer is dropped."""
        self._phase = moved(self._phase, ServerPhase.OVER)
        if self._task is None:
            self._frames.close()
        # Otherwise its request may still read the frame, whose buffer must not be used again.
        self.held_bytes = 0
        self._host.lost(self)

    # --- the server's side

    @property
    def is_busy(self) -> bool:
        """Return whether a request is in flight or its answer unsent."""
        if self._phase is ServerPhase.OVER:
            return False
        return self._phase is not ServerPhase.READING or self._transport.unsent_bytes() > 0

    def evict(self, reason: str) -> None:
        """Close the connection and log `reason`."""
        self._reject(reason)

    def close_when_answered(self) -> None:
        """Close as soon as no request is in flight and its answer is sent."""
        if self._phase is ServerPhase.IN_FLIGHT:
            self._phase = moved(self._phase, ServerPhase.DRAINING)
        elif self._phase is not ServerPhase.DRAINING:
            self._end()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def resume(self) -> None:
        """Serve the next request, now that the last answer has left."""
        if self._phase is ServerPhase.SENDING:
            self._phase = moved(self._phase, ServerPhase.READING)
            self._serve()

    # --- requests

    def _serve(self) -> None:
        try:
            while self._phase is ServerPhase.READING:
                frame = self._frames.next_frame()
                if frame is None:
                    self._wait_for_bytes()
                    break
                self._begin(frame)
        except CorruptDataError as error:
            self._reject(str(error))
        self._settle()

    def _wait_for_bytes(self) -> None:
        if self._has_eof:
            self._end()
        elif self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _begin(self, frame: Buffer) -> None:
        self._phase = moved(self._phase, ServerPhase.IN_FLIGHT)
        task = self._task = self._host.begin(frame)
        if task.done:
            self._finish(task)
        else:
            task.add_done_callback(self._finish_later)

    def _finish_later(self, task: Future[Sequence[Part]]) -> None:
        if self._phase is ServerPhase.OVER:
            # Its errors matter nonetheless.
            self._parts_of(task)
            return
        self._finish(task)
        if self._phase is ServerPhase.READING:
            self._serve()

    def _finish(self, task: Future[Sequence[Part]]) -> None:
        self._task = None
        parts = self._parts_of(task)
        if parts is None:
            self._end()
            return
        if parts:
            self._transport.send(parts)
        if self._phase is ServerPhase.DRAINING:
            self._end()
            return
        self._phase = moved(self._phase, ServerPhase.READING)
        if self._transport.unsent_bytes():
            self._phase = moved(self._phase, ServerPhase.SENDING)
            self._transport.when_sent(self.resume)
        elif self._host.is_turn_spent():
            self._phase = moved(self._phase, ServerPhase.SENDING)
            self._host.call_soon(self)

    def _parts_of(self, task: Future[Sequence[Part]]) -> Sequence[Part] | None:
        """Return the answer, or None if the connection must be closed."""
        error = task.error()
        if error is None:
            return task.result()
        if isinstance(error, KctlError):
            self._host.complain(self._transport.peer, str(error))
        else:
            self._host.failed(self._transport.peer, error)
        return None

    def _reject(self, reason: str) -> None:
        self._host.complain(self._transport.peer, reason)
        self._end()

    def _end(self) -> None:
        """Close once everything is sent; serve no further request."""
        self._phase = moved(self._phase, ServerPhase.OVER)
        self._transport.close()

    def _settle(self) -> None:
        """Save the rest of the scratch buffer, which other connections will overwrite."""
        frames = self._frames
        held = frames.buffered_bytes
        if held:
            frames.release()
        is_waiting = self._phase not in (ServerPhase.READING, ServerPhase.OVER)
        if held >= PIPELINED_BYTES_MAX and is_waiting and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        if held != self.held_bytes:
            self.held_bytes = held
            self._host.received(self)
