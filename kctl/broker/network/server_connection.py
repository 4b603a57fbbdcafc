"""ServerConnection: one client's connection; requests one at a time, answers in order.

A request is in flight from its dispatch until its answer has left for the kernel; only then is
the next one looked at, so that at most one request and one answer of a connection exist, however
many the peer has sent (Kafka mutes the channel). Meanwhile bytes are still taken, up to
PIPELINED_BYTES_MAX, which spares a system call per request; beyond that reading stops.

Bytes that are no request, APIs and versions that are not served, bodies that cannot be decoded or
that a handler finds corrupt end this connection and nothing else. The exception is ApiVersions of
an unknown version, answered in version 0 with UNSUPPORTED_VERSION (KIP-511). A handler that fails
ends the connection too. A peer that only finished speaking still gets its answers (half-close).

A request is offered to its API's short road first (see `SocketServer`), which answers from the
bytes, at once, or not at all: then nothing has happened. A small one that comes alone, as nearly
all do, is offered before any books are kept.

Invariants: `_current` is set exactly while a request waits for its answer; a frame's bytes stay
until that answer; a request's bytes are charged to RequestMemory from its first byte to its answer,
and a large frame grows only as RequestMemory allows.

Kafka 2.7: kafka.network.Processor, org.apache.kafka.common.network.KafkaChannel; KIP-511
"""

from typing import TYPE_CHECKING

from kctl.broker.network.slices import in_slices
from kctl.broker.request import Request, RequestContext
from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.connection import read_request_header, response_frame
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.framing import FrameBuffer
from kctl.protocol.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseKey
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, Part
from kctl.runtime.network import Transport

if TYPE_CHECKING:
    from kctl.broker.network.server import SocketServer

# Bytes taken while a request is in flight, before reading stops.
PIPELINED_BYTES_MAX = 32 * 1024

# Requests of so few bytes are not worth cutting.
LIGHT_FRAME_MAX = 16_384

# What a frame begins with, and what the short roads are filed under.
API_KEY_BYTES = 2

_NOT_SERVED = (0, -1)


class ServerConnection:
    """The Receiver of one accepted connection."""

    __slots__ = (
        "_abort",
        "_charged_bytes",
        "_current",
        "_current_bytes",
        "_frames",
        "_has_begun_frame",
        "_is_draining",
        "_is_large",
        "_is_over",
        "_is_reading_paused",
        "_is_sending",
        "_is_serving",
        "_is_speechless",
        "_memory",
        "_post_whole",
        "_reply",
        "_server",
        "_short_roads",
        "_transport",
        "context",
        "get_buffer",
        "last_active_ms",
        "unsent_at_last_sweep",
    )

    def __init__(
        self, server: "SocketServer", transport: Transport, context: RequestContext
    ) -> None:
        self.context = context
        # Monotonic milliseconds of the last request.
        self.last_active_ms = server.now_ms()
        # What a slow reader had yet to take when the server last looked.
        self.unsent_at_last_sweep = 0
        self._server = server
        self._memory = server.memory
        self._transport = transport
        self._short_roads = server.short_roads
        self._frames = FrameBuffer(server.scratch, server.pool, server.limits.request_bytes_max)
        self.get_buffer = self._frames.get_buffer
        self._current: Request | None = None
        self._current_bytes = 0
        # Whether the last frame had a buffer of its own, which the next look gives back.
        self._is_large = False
        self._has_begun_frame = False
        self._charged_bytes = 0
        self._is_serving = False
        self._is_reading_paused = False
        # The last answer waits for the peer to read.
        self._is_sending = False
        # The peer has said all it will say.
        self._is_speechless = False
        # The server is about to stop.
        self._is_draining = False
        # Closed, or closing with nothing more to serve.
        self._is_over = False
        # Bound once instead of once a request.
        self._reply = self._answer
        self._abort = self.abort
        self._post_whole = self._post_frame

    # Receiver

    def buffer_updated(self, count: int) -> None:
        """Serve what is whole now, unless a request is in flight."""
        self._server.counters.bytes_in += count
        frames = self._frames
        if self._current is None and not self._is_sending:
            frame = frames.only_frame(count)
            if frame is None:
                frames.buffer_updated(count)
            elif self._is_at_rest and self._took_short_road(frame):
                if self._transport.unsent_bytes():
                    self._wait_for_reader()
                return
            self._serve(frame)
        else:
            frames.buffer_updated(count)
        self._settle()

    def eof_received(self) -> bool:
        """Stay open for the answers that are due."""
        self._is_speechless = True
        return self.is_busy

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget everything; an answer that still comes is dropped."""
        self._is_over = True
        if self._current is None or not self._is_large:
            self._frames.close()
        # Else a handler may still read the frame: its buffer must not go back to the pool.
        self._current = None
        self._charge(0)
        self._memory.forget(self)
        self._server.connection_lost(self)

    # The server's side

    @property
    def is_busy(self) -> bool:
        """Whether a request is in flight or its answer not yet gone."""
        return self._current is not None or self._transport.unsent_bytes() > 0

    @property
    def has_unanswered_request(self) -> bool:
        """Whether a handler still owes an answer."""
        return self._current is not None

    @property
    def received_bytes(self) -> int:
        """Bytes of the large request that is on its way."""
        return self._frames.received_bytes

    def evict(self, words: str) -> None:
        """Close it, and say why."""
        self._reject(words)

    def unsent_bytes(self) -> int:
        """Bytes of answers that the peer has yet to take."""
        return self._transport.unsent_bytes()

    def close_when_answered(self) -> None:
        """Close as soon as no request is in flight and what is queued is sent."""
        self._is_draining = True
        if self._current is None:
            self._end()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()

    def resume(self) -> None:
        """Go on after an answer, or once there is memory."""
        if self._is_over or self._current is not None or self._transport.unsent_bytes():
            return
        self._is_sending = False
        self._serve()
        self._settle()

    # Requests

    def _serve(self, frame: Buffer | None = None) -> None:
        """Dispatch request after request, `frame` first if it was taken and offered already, until
        one is in flight or nothing is whole."""
        self._is_serving = True
        is_offered = frame is not None
        try:
            while self._may_begin_request():
                if frame is None:
                    frame = self._frames.next_frame()
                if frame is None:
                    self._wait_for_bytes()
                    break
                self._has_begun_frame = False
                self._is_large = type(frame) is memoryview
                if is_offered or not self._took_short_road(frame):
                    self._dispatch(frame)
                frame, is_offered = None, False
                if self._transport.unsent_bytes():
                    self._wait_for_reader()
                    break
                # Look again only if something is to be found or done: mostly nothing is.
                if self._current is not None or not self._has_more_to_do:
                    break
        except CorruptDataError as error:
            self._reject(str(error))
        finally:
            self._is_serving = False

    @property
    def _is_at_rest(self) -> bool:
        """Whether nothing is to be done but to answer."""
        return not (
            self._is_over or self._is_speechless or self._is_draining or self._is_reading_paused
        )

    def _took_short_road(self, frame: Buffer) -> bool:
        """Whether `frame` was answered at once."""
        road = self._short_roads.get(bytes(frame[:API_KEY_BYTES]))
        if road is None or not road(frame, self._post_whole):
            return False
        server = self._server
        server.counters.requests += 1
        self.last_active_ms = server.now_ms()
        return True

    def _may_begin_request(self) -> bool:
        if self._is_draining:
            self._end()
        if self._is_over:
            return False
        memory = self._memory
        if memory.is_short() and self._frames.wants_memory() and not memory.grant(self):
            self._pause_reading()
            return False
        return True

    def _wait_for_bytes(self) -> None:
        """No request is whole."""
        self._has_begun_frame = self._frames.buffered_bytes > 0
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()
        if self._is_speechless:
            self._end()

    @property
    def _has_more_to_do(self) -> bool:
        """Whether to look again after an answer: for requests, or for what waited for it."""
        return (
            self._is_large
            or self._is_reading_paused
            or self._is_speechless
            or self._is_draining
            or self._frames.buffered_bytes > 0
        )

    def _dispatch(self, frame: Buffer) -> None:
        server = self._server
        api, version, correlation_id, client_id, position = read_request_header(frame)
        first, last = server.served.get(api, _NOT_SERVED)
        if not first <= version <= last:
            self._refuse(api, version, correlation_id)
            return
        body = decode(api.request_class, version, frame, position)
        server.counters.requests += 1
        now_ms = self.last_active_ms = server.now_ms()
        self._current = request = Request(
            api, version, correlation_id, client_id, body, self.context, now_ms,
            self._reply, self._abort,
        )  # fmt: skip
        self._current_bytes = len(frame)
        try:
            if len(frame) > LIGHT_FRAME_MAX:
                in_slices(request, server.on_request, server.scheduler)
            else:
                server.on_request(request)
        except CorruptDataError:
            raise
        except Exception as error:  # noqa: BLE001 - one request's failure is not the broker's
            server.handler_failed(request, error)
            if not request.answered:
                self._end()

    def _refuse(self, api: ApiKey, version: int, correlation_id: int) -> None:
        """A request for what is not served."""
        if api is not ApiKey.API_VERSIONS:
            raise CorruptDataError(f"API {api} version {version} is not served")
        first, last = self._server.served.get(api, (0, 0))
        response = ApiVersionsResponse(
            error_code=int(ErrorCode.UNSUPPORTED_VERSION),
            api_keys=[ApiVersionsResponseKey(api_key=api, min_version=first, max_version=last)],
        )
        self._post(response_frame(correlation_id, 0, encode(response, 0)))

    def _answer(self, response: Message | None) -> None:
        """What a handler calls, now or later: send the answer, then look at the next request."""
        request = self._current
        if request is None:
            return
        self._current = None
        if response is not None:
            try:
                version = request.api_version
                header_version = request.api_key.response_header_version(version)
                body = encode(response, version)
                self._post(response_frame(request.correlation_id, header_version, body))
            except Exception as error:  # noqa: BLE001 - whoever completes it must not suffer
                self._server.handler_failed(request, error)
                self._end()
                return
        if not self._is_serving:
            self._go_on()

    def _post(self, parts: list[Part]) -> None:
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        self._server.counters.bytes_out += size
        self._transport.send(parts)

    def _post_frame(self, frame: bytes) -> None:
        self._server.counters.bytes_out += len(frame)
        self._transport.send((frame,))

    def _go_on(self) -> None:
        """After a late answer: never in its caller's stack, which may be another connection."""
        if self._transport.unsent_bytes():
            self._wait_for_reader()
        elif self._has_more_to_do:
            self._server.call_soon(self.resume)
        if self._charged_bytes:
            self._charge(0)

    def _wait_for_reader(self) -> None:
        self._is_sending = True
        self._transport.when_sent(self.resume)

    def _reject(self, words: str) -> None:
        server = self._server
        server.counters.bad_requests += 1
        server.complain(self.context.client_host, f"{self.context.connection_id}: {words}")
        self._end()

    def _end(self) -> None:
        """Close once what is queued is sent; nothing more is served."""
        self._is_over = True
        self._current = None
        self._transport.close()

    # Bytes

    def _settle(self) -> None:
        """Before the loop goes on: leave the scratch buffer, keep the books."""
        frames = self._frames
        held = frames.buffered_bytes
        if held:
            frames.release()
        if held >= PIPELINED_BYTES_MAX and (self._current is not None or self._is_sending):
            self._pause_reading()
        # What waits for its turn is not charged: those who wait would keep each other waiting.
        charged = held if self._has_begun_frame else 0
        if charged and not self._is_reading_paused:
            charged += frames.growth_bytes
        if self._current is not None:
            charged += self._current_bytes
        if charged != self._charged_bytes:
            self._charge(charged)

    def _charge(self, held: int) -> None:
        change, self._charged_bytes = held - self._charged_bytes, held
        self._memory.charge(self, change)

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
