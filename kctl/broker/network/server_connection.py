"""ServerConnection: serves one client's connection, one request at a time, in order.

The phases and their moves are those of `kctl.protocol.server_phase`. While a request is in flight,
more is received, up to the limits of `Backlog`. Requests received meanwhile are served until the
loop's turn is spent, and the rest in later turns.

Invalid frames, APIs and versions that are not served, and bodies that cannot be decoded or that a
handler finds corrupt close this connection and nothing else, as does a handler that fails. The
exception is an unknown version of ApiVersions, which is answered in version 0 with
UNSUPPORTED_VERSION (KIP-511).

When the client shuts down its sending side or resets the connection, and when the server stops,
the requests that arrived whole are served before the connection ends (decision 0146).

A request is first offered to its API's fast path (see `SocketServer`), which either sends the
response at once or does nothing. A small request that arrives alone, as nearly all do, is offered
before any memory is accounted for.

Invariants: a frame's bytes stay valid until its response; memory is accounted for by `Intake`;
`connection_lost` of the server is called once, when nothing is left to serve.

Kafka 2.7: kafka.network.Processor, org.apache.kafka.common.network.KafkaChannel; KIP-511
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kctl.broker.network.connection_host import ConnectionHost
from kctl.broker.network.connection_state import ConnectionState
from kctl.broker.network.refusals import unknown_version_response
from kctl.broker.network.slices import in_slices, is_heavy_response
from kctl.broker.request import Request, RequestContext
from kctl.broker.request_times import RequestTimes
from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, decoding, encode, encoding, releasing
from kctl.protocol.connection import read_request_header, response_frame
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, Part
from kctl.protocol.server_phase import ServerPhase, moved
from kctl.runtime.network import TlsError, Transport
from kctl.runtime.turns import alone_in_turns, in_turns
from kctl.work import Work, while_wanted

if TYPE_CHECKING:
    from kctl.broker.network.authentication import Authentication, Step

# Smaller requests are never sliced: an element takes at least four bytes, so that they hold no more
# elements than a slice.
LIGHT_FRAME_MAX: Final = 1_024

# Larger requests are decoded in turns: these hold at most 3,000 or so structs.
DECODED_AT_ONCE_BYTES_MAX: Final = 32 * 1024

# The bytes at the start of a frame that select its fast path.
API_KEY_BYTES: Final = 2

_NOT_SERVED: Final = (0, -1)

_NS_PER_MS: Final = 1_000_000

_API_VERSIONS: Final = ApiKey.API_VERSIONS

# Looked up once: reading a member of an enum costs more than reading a global.
_READING: Final[ServerPhase] = ServerPhase.READING
_IN_FLIGHT: Final[ServerPhase] = ServerPhase.IN_FLIGHT
_SENDING: Final[ServerPhase] = ServerPhase.SENDING
_DRAINING: Final[ServerPhase] = ServerPhase.DRAINING
_OVER: Final[ServerPhase] = ServerPhase.OVER
_MUTED: Final[ServerPhase] = ServerPhase.MUTED
# The move of most answers, checked here and not each time.
_ANSWERED: Final = moved(_IN_FLIGHT, _READING)


class ServerConnection(ConnectionState):
    """One accepted connection, as the Receiver of its transport."""

    __slots__ = ("_abort", "_failed", "_post_whole", "_reply")

    def __init__(
        self,
        server: ConnectionHost,
        transport: Transport,
        context: RequestContext,
        authentication: "Authentication | None" = None,
    ) -> None:
        """Take `authentication` of a listener with SASL, which handles the first frames."""
        super().__init__(server, transport, context, authentication)
        # Bound once instead of once per request.
        self._reply: Callable[[Message | None], None] = self._answer
        self._abort: Callable[[], None] = self.abort
        self._failed: Callable[[Request, Exception], None] = self._fail
        self._post_whole: Callable[[bytes], object] = self._post_frame

    # Receiver

    def buffer_updated(self, count: int) -> None:
        """Serve the requests that are complete, unless one is in flight."""
        self._server.counters.bytes_in += count
        frames = self._frames
        phase = self._phase
        if phase is _READING:
            frame = frames.only_frame(count)
            if frame is None:
                frames.buffer_updated(count)
            elif not self._intake.is_paused:
                try:
                    if self._took_fast_path(frame):
                        if self._transport.unsent_bytes():
                            self._wait_for_reader()
                        return
                except Exception as error:  # noqa: BLE001 - it ends this connection only
                    self._end_after(error)
                    return
            self._serve(frame)
        elif phase is _OVER:
            return
        else:
            frames.buffer_updated(count)
        self._settle()

    def eof_received(self) -> bool:
        """Return whether to stay open for responses that cannot be cancelled, or for requests: a
        producer with acks=0 sends and closes."""
        self._input_has_ended = True
        if not self._frames.buffered_bytes:
            return self.is_busy and not (self._current and self._current.is_cancellable)
        if self._phase is _READING:
            # They wait for their turn or for memory; an incomplete one ends the connection here.
            self.resume()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """Release everything; a late response is dropped."""
        if isinstance(error, TlsError):
            self._server.tls_failed(self.context, str(error))
        self._is_lost = True
        if error is not None and self._has_requests_left:
            # Nothing can be sent any longer, but producers with acks=0 want no answer.
            self._input_has_ended = self._is_leaving = True
            self._server.call_soon(self._unmute if self._phase is _MUTED else self.resume)
        else:
            self._release()

    def _release(self) -> None:
        if self._is_released:
            return
        self._is_released = True
        self._cancel_timer()
        self._all_sent()
        self._phase = moved(self._phase, _OVER)
        is_frame_in_use = self._current is not None and self._is_large
        self._abandon()
        self._intake.close(is_frame_in_use=is_frame_in_use)
        self._server.connection_lost(self)
        # Each refers to this connection, which would not go before the next search for cycles.
        self._reply = self._abort = self._failed = self._post_whole = _nothing

    # The server's side

    def close_when_answered(self) -> None:
        """Receive nothing more, and close as soon as every request that arrived is answered and
        queued data is sent. A client that has to pause is served now."""
        phase = self._phase
        if phase is _OVER or phase is _DRAINING:
            return
        self._input_has_ended = self._is_leaving = True
        self._intake.pause()
        if not self._frames.has_whole_frame or self._is_failed:
            if phase is _IN_FLIGHT:
                self._phase = moved(_IN_FLIGHT, _DRAINING)
            else:
                self._end()
        elif phase is _MUTED:
            self._server.call_soon(self._unmute)
        elif phase is _READING:
            self._server.call_soon(self.resume)

    def abort(self) -> None:
        """Close at once."""
        if self._is_lost:
            self._server.call_soon(self._release)
        self._transport.abort()

    def resume(self) -> None:
        """Serve the next request after a response was sent, or once memory is available."""
        if self._transport.unsent_bytes():
            return
        if self._unsent is not None:
            self._all_sent()
        if self._is_failed:
            return
        if self._phase is _SENDING:
            self._phase = moved(_SENDING, _READING)
        if self._phase is not _READING:
            return
        if self._input_has_ended and not self._frames.has_whole_frame:
            # The rest of a frame, or the memory for it, would be waited for in vain.
            self._end()
            return
        self._serve()
        self._settle()

    # Requests

    def _serve(self, frame: Buffer | None = None) -> None:
        """Dispatch requests, `frame` first if it was offered already, until one is in flight or
        none is complete."""
        self._is_serving = True
        is_offered = frame is not None
        try:
            while self._phase is _READING and self._intake.may_begin_request():
                if frame is None:
                    frame = self._frames.next_frame()
                if frame is None:
                    self._wait_for_bytes()
                    break
                self._intake.has_begun_frame = False
                self._is_large = type(frame) is memoryview
                if is_offered or not self._took_fast_path(frame):
                    self._dispatch(frame)
                frame, is_offered = None, False
                if self._phase is not _READING:
                    break
                if self._transport.unsent_bytes():
                    self._wait_for_reader()
                    break
                # Usually nothing else was received: skip the next look-up.
                if not self._has_more_to_do:
                    break
                if self._server.is_turn_spent():
                    self._wait_for_turn()
                    break
        except Exception as error:  # noqa: BLE001 - it ends this connection only
            self._end_after(error)
        finally:
            self._is_serving = False

    def _took_fast_path(self, frame: Buffer) -> bool:
        """Offer `frame` to its fast path; return whether a response was sent."""
        api_key = self._last_api_key = bytes(frame[:API_KEY_BYTES])
        fast_path = self._fast_paths.get(api_key)
        if fast_path is None:
            return False
        server = self._server
        quotas = server.client_quotas
        if quotas is not None and not self._throttling.is_unlimited(frame, quotas, self.context):
            return False
        if not fast_path(frame, self._post_whole, self.context):
            return False
        server.counters.requests += 1
        self.last_active_ms = server.now_ms()
        return True

    def _wait_for_bytes(self) -> None:
        """Wait for data because no request is complete."""
        if self._input_has_ended:
            self._end()
        else:
            self._intake.wait_for_bytes()

    def _dispatch(self, frame: Buffer) -> None:
        server = self._server
        authentication = self._authentication
        if authentication is not None and authentication.takes(frame, server.now_ms()):
            self._authenticate(authentication, frame)
            return
        api, version, correlation_id, client_id, position = read_request_header(frame)
        first, last = server.served.get(api, _NOT_SERVED)
        if not first <= version <= last:
            self._post(unknown_version_response(api, version, correlation_id, server.served))
            return
        is_huge = len(frame) > DECODED_AT_ONCE_BYTES_MAX
        body = None if is_huge else decode(api.request_class, version, frame, position)
        server.counters.requests += 1
        counter = server.request_counter
        if counter is None or len(frame) > LIGHT_FRAME_MAX or self._throttling.needs_times():
            counter = None
            now_ms = server.now_ms()
        else:
            self._began_ns = server.now_ns()
            now_ms = self._began_ns // _NS_PER_MS
        self.last_active_ms = now_ms
        request = Request(
            api, version, correlation_id, client_id, body, self.context, now_ms,
            self._reply, self._abort, failed=self._failed,
        )  # fmt: skip
        if counter is None and (server.request_watchers or self._throttling.needs_times()):
            request.times = RequestTimes(server.now_ns, server.request_watchers)
        if api is _API_VERSIONS:
            self._recognize(request)
        self._phase = moved(self._phase, _IN_FLIGHT)
        self._current, self._current_bytes = request, len(frame)
        if is_huge:
            if server.may_be_decoded is None or server.may_be_decoded(request, len(frame)):
                work = self._decoding(request, frame, position)
                in_turns(server.scheduler, work, self._decoded, self._not_decoded)
        else:
            self._counter = counter
            self._handle(request, may_be_sliced=len(frame) > LIGHT_FRAME_MAX)
            if self._counter is not None:
                # It waits for its response, or has failed.
                self._times_since_arrival(request).handler_returned()

    def _decoding(self, request: Request, frame: Buffer, position: int) -> Work[Request]:
        """Decode a body, in turns, unless the connection closes meanwhile."""
        cls, version = request.api_key.request_class, request.api_version
        elements: list[object] = []
        request.release = partial(self._release_elements, elements)
        work = decoding(cls, version, frame, position, elements)
        try:
            request.body = yield from while_wanted(work, lambda: self._current is request)
        except CorruptDataError:
            request.release()
            raise
        # Its handling begins in a turn of its own.
        yield
        return request

    def _decoded(self, request: Request) -> None:
        if self._current is request:
            self._handle(request, may_be_sliced=True)
        elif request.release is not None:
            request.release()

    def _release_elements(self, elements: list[object]) -> None:
        """Release a message that was coded in turns, in turns after this one: the caller's frames
        still refer to it."""
        alone_in_turns(self._server.scheduler, releasing(elements))

    def _not_decoded(self, error: Exception) -> None:
        if isinstance(error, CorruptDataError):
            self._reject(self._reason(error))
        elif self._current is not None:
            self._fail(self._current, error)

    def _handle(self, request: Request, *, may_be_sliced: bool) -> None:
        server = self._server
        on_request = server.on_request
        if request.times is not None:
            on_request = request.times.timed(on_request)
        try:
            if may_be_sliced:
                in_slices(request, on_request, server.scheduler)
            else:
                on_request(request)
        except CorruptDataError:
            raise
        except Exception as error:  # noqa: BLE001 - a failed request must not stop the broker
            self._fail(request, error)

    def _mute(self) -> None:
        """Serve nothing more until the client has paused (KIP-219), whether it does so or not."""
        pause_ms, self._throttling.pause_ms = self._throttling.pause_ms, 0
        self._phase = moved(self._phase, _MUTED)
        self._frames.give_back()
        self._is_large = False
        # A muted connection is not idle.
        self.last_active_ms += pause_ms
        if self._unsent is not None:
            self._transport.when_sent(self._all_sent)
        self._timer = self._server.scheduler.call_later(pause_ms, self._unmute)

    def _unmute(self) -> None:
        if self._phase is not _MUTED:
            return
        self._cancel_timer()
        self._phase = moved(_MUTED, _READING)
        if self._transport.unsent_bytes():
            self._wait_for_reader()
        else:
            self.resume()

    def _authenticate(self, authentication: "Authentication", frame: Buffer) -> None:
        """Handle a frame of the SASL exchange; after a failure, respond and close later."""
        server = self._server
        now_ms = self.last_active_ms = server.now_ms()
        was_complete = authentication.principal is not None
        step = authentication.receive(frame, now_ms)
        if step.failure is not None:
            server.authentication_failed(self, step.failure, is_again=was_complete)
            self._phase = moved(self._phase, _SENDING)
            delay_ms = authentication.failure_delay_ms
            self._timer = server.scheduler.call_later(delay_ms, self._end_authentication, step)
            return
        if step.response is not None:
            self._post(step.response)
        if authentication.is_complete:
            server.authenticated(self.context, is_again=was_complete)
            self.context = authentication.authenticated(self.context)
            self._throttling.forget()
            self._frames.frame_bytes_max = server.limits.request_bytes_max
            if not authentication.has_lifetime:
                self._fast_paths = server.fast_paths

    def _end_authentication(self, step: "Step") -> None:
        """Send the response to a failed authentication and close."""
        if self._phase is _OVER:
            return
        if step.response is not None:
            self._post(step.response)
        self._end()

    def _answer(self, response: Message | None) -> None:
        """Send the response of the request in flight; handlers call this, now or later."""
        request = self._current
        if request is None:
            return
        times = request.times
        if times is not None:
            times.answered(request, response)
        quotas = self._server.client_quotas
        if quotas is not None:
            self._throttling.count(quotas, request, self._current_bytes, response)
        if response is not None and is_heavy_response(request.api_key, response):
            self._post_in_turns(request, response)
            return
        if response is not None:
            try:
                self._post_body(request, encode(response, request.api_version))
            except Exception as error:  # noqa: BLE001 - its completer must not fail
                self._fail(request, error)
                return
        elif times is not None:
            times.sent(request)
        counter = self._counter
        if counter is not None:
            if request.throttle_ms or self._transport.unsent_bytes():
                self._time_after_all(request, response)
            else:
                self._counter = None
                took_ns = self._server.now_ns() - self._began_ns
                counter.answered_at_once(request, response, took_ns)
        self._finish()

    def _finish(self) -> None:
        """End the request that has its response and continue with the next one."""
        request, self._current = self._current, None
        if request is not None and request.release is not None:
            request.release()
        if self._phase is _IN_FLIGHT:
            self._phase = _ANSWERED
            if self._throttling.pause_ms and not self._is_leaving:
                self._mute()
        elif self._phase is _DRAINING:
            self._end()
        if not self._is_serving:
            self._continue()

    def _post_in_turns(self, request: Request, response: Message) -> None:
        """Keep the request in flight until its response is encoded and sent."""
        if self._counter is not None:
            self._times_since_arrival(request).answered(request, response)
        work = self._posting(request, response)
        in_turns(self._server.scheduler, work, self._posted, request.fail)

    def _posting(self, request: Request, response: Message) -> Work[bool]:
        """Encode and send a response, in turns; return False if the connection is closed before."""
        elements: list[object] = []
        work = encoding(response, request.api_version, elements)
        # The handler that made it has used this turn.
        yield
        try:
            body = yield from while_wanted(work, lambda: self._current is request)
            if body is not None:
                self._post_body(request, body)
        except Exception as error:  # noqa: BLE001 - a failed request must not stop the broker
            self._fail(request, error)
            return False
        finally:
            self._release_elements(elements)
        return body is not None

    def _posted(self, is_posted: bool) -> None:
        if is_posted:
            self._finish()

    def _post_body(self, request: Request, body: list[Part]) -> None:
        header_version = request.api_key.response_header_version(request.api_version)
        frame = response_frame(request.correlation_id, header_version, body)
        times = request.times
        if times is None:
            self._post(frame)
            return
        times.posted()
        self._post(frame)
        self._unsent = request
        if not self._transport.unsent_bytes():
            self._all_sent()

    def _all_sent(self) -> None:
        """Report that a response is sent, or that its client has gone."""
        request, self._unsent = self._unsent, None
        if request is not None and request.times is not None:
            request.times.sent(request)

    def _fail(self, request: Request, error: Exception) -> None:
        """Close unless the request already has its response; log an unexpected error."""
        if request.release is not None:
            request.release()
        is_current = self._current is request
        if is_current and isinstance(error, CorruptDataError):
            # A later part of its handling found what the first one did not.
            self._reject(self._reason(error))
            return
        self._server.handler_failed(request, error)
        if is_current:
            self._end()

    def _post(self, parts: list[Part]) -> None:
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        self._server.counters.bytes_out += size
        self._transport.send(parts)

    def _post_frame(self, frame: bytes) -> None:
        self._server.counters.bytes_out += len(frame)
        self._transport.send((frame,))

    def _continue(self) -> None:
        """Continue after a late response, but not in its caller's stack, which may belong to
        another connection."""
        if self._phase is not _READING:
            pass
        elif self._transport.unsent_bytes():
            self._wait_for_reader()
        elif self._has_more_to_do:
            self._server.call_soon(self.resume)
        self._intake.discharge()

    def _wait_for_reader(self) -> None:
        if self._phase is _OVER:
            return
        self._phase = moved(self._phase, _SENDING)
        self._transport.when_sent(self.resume)

    def _wait_for_turn(self) -> None:
        """Let other connections run: many small requests in one read must not block the loop."""
        self._phase = moved(self._phase, _SENDING)
        self._server.call_soon(self.resume)

    def _end_after(self, error: Exception) -> None:
        """Close because of a frame that is invalid, or of an error, which is logged."""
        if isinstance(error, CorruptDataError):
            self._reject(self._reason(error))
        elif self._current is not None:
            self._fail(self._current, error)
        else:
            self._server.connection_failed(self.context, self.describe_work(), error)
            self._end()

    def _reject(self, reason: str) -> None:
        server = self._server
        server.counters.bad_requests += 1
        server.complain(self.context.client_host, f"{self.context.connection_id}: {reason}")
        self._end()

    def evict(self, reason: str) -> None:
        """Close the connection, for RequestMemory."""
        self._reject(reason)

    def _end(self) -> None:
        """Close once everything queued is sent; serve no further request."""
        self._phase = moved(self._phase, _OVER)
        self._abandon()
        self._transport.close()
        if self._is_lost:
            self._server.call_soon(self._release)

    def _abandon(self) -> None:
        if self._current is not None:
            self._current.is_abandoned = True
            self._current = None

    def _settle(self) -> None:
        """Save what was received, and update the memory that is charged."""
        phase = self._phase
        self._intake.settle(
            0 if self._current is None else self._current_bytes,
            is_behind=phase is not _READING and phase is not _OVER,
        )


def _nothing(*_: object) -> None:
    """Do what remains to be done for a connection that is lost."""
