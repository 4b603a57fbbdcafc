"""ConnectionState: what a client's connection knows about itself, and what others ask it.

`ServerConnection` makes it move. The server and RequestMemory ask for what it holds and waits for.

Invariants: `_current` is set exactly in the phases IN_FLIGHT and DRAINING; once `_input_has_ended`
nothing more is received, and the connection ends with the last request that arrived whole.

Kafka 2.7: org.apache.kafka.common.network.KafkaChannel
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kctl.broker.api_versions import is_valid_software
from kctl.broker.network.connection_host import ConnectionHost, FastPath
from kctl.broker.network.intake import Intake
from kctl.broker.network.limits import UNAUTHENTICATED_BYTES_MAX
from kctl.broker.network.refusals import api_name, reason_of
from kctl.broker.network.throttling import Throttling
from kctl.broker.request import Request, RequestContext
from kctl.broker.request_times import RequestCounter, RequestTimes
from kctl.errors import CorruptDataError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.framing import FrameBuffer
from kctl.protocol.schema import Message
from kctl.protocol.server_phase import ServerPhase
from kctl.runtime.network import TlsSession, Transport
from kctl.runtime.scheduler import Timer

if TYPE_CHECKING:
    from kctl.broker.network.authentication import Authentication

# The version of ApiVersions that names the client's library.
_SOFTWARE_VERSION: Final = 3

# Looked up once: reading a member of an enum costs more than reading a global.
_READING: Final[ServerPhase] = ServerPhase.READING
_OVER: Final[ServerPhase] = ServerPhase.OVER
_MUTED: Final[ServerPhase] = ServerPhase.MUTED


class ConnectionState:
    """What a connection knows about itself."""

    __slots__ = (
        "_authentication",
        "_began_ns",
        "_counter",
        "_current",
        "_current_bytes",
        "_fast_paths",
        "_frames",
        "_input_has_ended",
        "_intake",
        "_is_large",
        "_is_leaving",
        "_is_lost",
        "_is_released",
        "_is_serving",
        "_last_api_key",
        "_phase",
        "_server",
        "_throttling",
        "_timer",
        "_transport",
        "_unsent",
        "context",
        "get_buffer",
        "last_active_ms",
        "unsent_at_last_sweep",
    )

    def __init__(
        self,
        server: ConnectionHost,
        transport: Transport,
        context: RequestContext,
        authentication: "Authentication | None" = None,
    ) -> None:
        """Take `authentication` of a listener with SASL, which handles the first frames."""
        self.context = context
        # Monotonic milliseconds of the last request.
        self.last_active_ms = server.now_ms()
        # The unsent bytes of a slow reader at the server's last sweep.
        self.unsent_at_last_sweep = 0
        self._server = server
        self._transport = transport
        self._authentication = authentication
        # None before authentication, and none for sessions that end: each request is looked at.
        self._fast_paths: dict[bytes, FastPath] = (
            server.fast_paths if authentication is None else {}
        )
        bytes_max = server.limits.request_bytes_max
        if authentication is not None:
            bytes_max = min(bytes_max, UNAUTHENTICATED_BYTES_MAX)
        self._frames = FrameBuffer(server.scratch, server.pool, bytes_max)
        self._intake = Intake(self._frames, self, transport, server.memory, server.backlog)
        self.get_buffer = self._frames.get_buffer
        self._phase = _READING
        # Whether nothing more is received: the connection ends with what arrived before.
        self._input_has_ended = False
        # Whether the server closes the connection, or the peer has reset it: no pause is kept.
        self._is_leaving = False
        # Whether the peer has reset the connection, and whether all is released since.
        self._is_lost = False
        self._is_released = False
        self._current: Request | None = None
        self._current_bytes = 0
        # While the handler of a small request runs: who counts it if it is answered at once, and
        # when it began.
        self._counter: RequestCounter | None = None
        self._began_ns = 0
        # A request with times whose response is not sent completely.
        self._unsent: Request | None = None
        # Whether the last frame had its own buffer, which the next look-up returns.
        self._is_large = False
        self._is_serving = False
        self._throttling = Throttling(server)
        # The end of a pause, or of the delay of a failed authentication; it would keep a connection
        # that has gone.
        self._timer: Timer | None = None
        # Of the last frame, as bytes.
        self._last_api_key = b""

    @property
    def is_busy(self) -> bool:
        """Return whether a request is in flight, or waits for its turn, or its response is
        unsent."""
        phase = self._phase
        if phase is not _READING and phase is not _OVER and phase is not _MUTED:
            return True
        return self._transport.unsent_bytes() > 0

    @property
    def has_unanswered_request(self) -> bool:
        """Return whether a request awaits its response."""
        return self._current is not None

    @property
    def announced_bytes(self) -> int:
        """Return the size of the request being received, about to begin, or awaiting a
        response."""
        return self._frames.announced_bytes if self._current is None else self._current_bytes

    @property
    def received_bytes(self) -> int:
        """Return the bytes of the large request that have arrived."""
        return self._frames.received_bytes

    @property
    def unfinished_small_bytes(self) -> int:
        """Return the bytes held of a small request that is not complete."""
        return self._intake.unfinished_small_bytes if self._phase is _READING else 0

    def unsent_bytes(self) -> int:
        """Return the bytes of responses that the client has not received yet."""
        return self._transport.unsent_bytes()

    @property
    def _is_failed(self) -> bool:
        """Return whether the client has failed to authenticate."""
        return self._authentication is not None and self._authentication.is_failed

    @property
    def _has_requests_left(self) -> bool:
        """Return whether a lost connection has received requests that can be served at once: none
        is in flight that waits for something, and none waits for memory."""
        if self._phase is _OVER or not self._frames.has_whole_frame:
            return False
        if self._intake.is_paused and self._frames.wants_memory():
            return False
        authentication, current = self._authentication, self._current
        if authentication is not None and not authentication.is_complete:
            return False
        return current is None or _waits_for_nothing(current)

    @property
    def _has_more_to_do(self) -> bool:
        """Return whether there are more requests, or actions that waited for the response."""
        return (
            self._is_large
            or self._intake.is_paused
            or self._input_has_ended
            or self._frames.buffered_bytes > 0
        )

    def when_secured(self, session: TlsSession) -> None:
        """Take the client's principal from its certificate, unless SASL authenticates it."""
        self._server.secured(self.context, session)
        certificate = session.certificate
        if certificate is None or self._authentication is not None:
            return
        try:
            principal = self._server.principal_of(self.context.listener_name, certificate)
        except CorruptDataError as error:
            self.evict(str(error))
            return
        if principal is None:
            self.evict("no rule of ssl.principal.mapping.rules applies to its certificate")
        else:
            self.context = replace(self.context, principal=principal)

    def describe_work(self, *_: object) -> str:
        """Name the API of the last request, for the loop's watchdog."""
        return api_name(self._last_api_key)

    def _reason(self, error: CorruptDataError) -> str:
        return reason_of(error, self._frames.first_bytes, self.context)

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _recognize(self, request: Request) -> None:
        """Keep what the client says about itself, for its later requests."""
        body = request.body
        if request.api_version >= _SOFTWARE_VERSION and body and is_valid_software(body):
            self.context = replace(
                self.context,
                software_name=body.client_software_name,
                software_version=body.client_software_version,
            )

    def _times_since_arrival(self, request: Request) -> RequestTimes:
        """Give a small request times after all."""
        self._counter = None
        server = self._server
        times = RequestTimes.since(self._began_ns, server.now_ns, server.request_watchers)
        request.times = times
        return times

    def _time_after_all(self, request: Request, response: Message | None) -> None:
        """Give a small request that has its response times, because its client has to pause, or
        does not receive."""
        times = self._times_since_arrival(request)
        times.answered(request, response)
        if self._transport.unsent_bytes():
            times.posted()
            self._unsent = request
        else:
            times.sent(request)

    def resume(self) -> None:
        """Serve the next request, for RequestMemory."""
        raise NotImplementedError

    def evict(self, reason: str) -> None:
        """Close the connection, and log why."""
        raise NotImplementedError


def _waits_for_nothing(request: Request) -> bool:
    """Return whether a request in flight only waits for its next turn, as a large Produce without
    acknowledgement does, which may not be decoded yet."""
    if request.api_key is not ApiKey.PRODUCE:
        return False
    return request.body is None or request.body.acks == 0
