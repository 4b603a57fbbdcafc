"""BrokerChannel: one connection to one broker, with handshake, pipelining and time limits.

States: CONNECTING (the socket, then ApiVersions, then SASL) -> READY -> CLOSED, or CONNECTING ->
CLOSED; READY -> REAUTHENTICATING -> READY where sessions end (KIP-368). The
broker answers requests in the order in which they were sent (`protocol.connection` checks it). A
response that is late closes the channel, as later responses cannot overtake it: requests in flight
fail with UnreachableError, and it is unknown whether the broker carried them out.

Versions are negotiated with ApiVersions (KIP-35): first with v3, and if the broker does not support
it (it answers UNSUPPORTED_VERSION in the form of v0), again with a version that it supports. A
channel to a broker that does not know ApiVersions is given its versions (`old_brokers`).

Re-authentication begins after 85 to 95 % of the session's lifetime: requests wait until those in
flight are answered and the client is authenticated again.

Kafka 2.7: org.apache.kafka.clients.NetworkClient, ApiVersions; KIP-35, KIP-368, KIP-511
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from kctl import __version__
from kctl.client.foreign_protocols import foreign_protocol, hint_for
from kctl.client.security import NO_SECURITY, ClientSecurity
from kctl.errors import CorruptDataError, KctlError, TimedOutError, UnreachableError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import Api, ApiKey
from kctl.protocol.codec import decoding, encoding
from kctl.protocol.connection import ClientConnection, Reader
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.framing import BufferPool
from kctl.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.negotiation import NegotiatedVersions
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message, Part
from kctl.runtime.future import Future
from kctl.runtime.network import Transport
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import done_in_turns

DEFAULT_TIMEOUT_MS = 30_000
# A response is about as big as the fetch that asks for it.
RESPONSE_BYTES_MAX = 1 << 30
# Larger responses to `send_in_turns` are decoded in turns: these hold at most 3,000 or so structs.
DECODED_AT_ONCE_BYTES_MAX = 32 * 1024
# Until the channel is ready: responses to ApiVersions and SASL (CVE-2026-10142). The first bytes of
# another protocol look like a larger size.
NEGOTIATION_BYTES_MAX = 1 << 20
# When a session is renewed, in percent of its lifetime.
REAUTHENTICATE_FROM_PERCENT = 85
REAUTHENTICATE_RANGE_PERCENT = 11
IN_FLIGHT_MAX = 1_000
SOFTWARE_NAME = "kctl"
# A proxy with TLS may close the connection of a client without TLS and send no alert.
_PLAINTEXT_HINT = (
    "is the broker running? A listener with TLS needs security.protocol SSL or SASL_SSL"
)
_LOGIN_HINT = "does the listener require authentication? set security.protocol and sasl.*"


class NoHandshakeError(UnreachableError):
    """The broker did not answer ApiVersions, and sent nothing else: it may be too old for it."""


class UnansweredError(UnreachableError):
    """The broker answered ApiVersions, and closed the connection at the first requests: so does a
    listener that requires authentication."""


class ChannelState(Enum):
    """The states of a channel."""

    CONNECTING = "connecting"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"
    CLOSED = "closed"


NEXT_STATES = {
    ChannelState.CONNECTING: {ChannelState.READY, ChannelState.CLOSED},
    ChannelState.READY: {ChannelState.REAUTHENTICATING, ChannelState.CLOSED},
    ChannelState.REAUTHENTICATING: {ChannelState.READY, ChannelState.CLOSED},
    ChannelState.CLOSED: set[ChannelState](),
}


@dataclass(slots=True)
class _Pending:
    """A request that waits for its response."""

    api: Api
    future: Future[Any]
    # Monotonic milliseconds.
    deadline_ms: int
    # The request, if the channel explains refusals.
    message: Message | None = None


class _Undecoded(NamedTuple):
    """The frame of a response, and where its body begins."""

    frame: Buffer
    position: int


@dataclass(slots=True)
class _Waiting:
    """A request that waits for re-authentication."""

    message: Message
    api: Api
    version: int
    deadline_ms: int
    future: Future[Any]


class BrokerChannel:
    """A connection to the broker at `host:port`; call `connect` first."""

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        port: int,
        *,
        client_id: str = "kctl",
        request_timeout_ms: int = DEFAULT_TIMEOUT_MS,
        in_flight_max: int = IN_FLIGHT_MAX,
        security: ClientSecurity = NO_SECURITY,
        reads_only: bool = False,
        explains_refusals: bool = False,
        versions: NegotiatedVersions | None = None,
        buffers: BufferPool | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.state = ChannelState.CONNECTING
        self._runtime = runtime
        self._connection = ClientConnection(
            client_id, pool=buffers, frame_bytes_max=NEGOTIATION_BYTES_MAX
        )
        self._security = security
        # Whether requests that could change something are refused.
        self._reads_only = reads_only
        # Whether authorization errors get the permission that is missing: for clients of users.
        self._explains_refusals = explains_refusals
        self._login_timer: Timer | None = None
        self._is_logging_in = False
        self._waiting: list[_Waiting] = []
        # Whether a request has been answered since the channel became ready.
        self._has_been_answered = False
        # Where the next bytes of responses go (Receiver).
        self.get_buffer = self._connection.get_buffer
        self._request_timeout_ms = request_timeout_ms
        self._in_flight_max = in_flight_max
        self._transport: Transport | None = None
        # Whether the broker is asked for its versions.
        self._asks_versions = versions is None
        self._versions = versions or NegotiatedVersions([], self.name)
        # In the order sent.
        self._pending: deque[_Pending] = deque()
        self._timer: Timer | None = None
        # When the timer fires, in monotonic milliseconds.
        self._timer_ms = 0
        self._closing_error: KctlError | None = None
        self._on_closed: Callable[[BrokerChannel], object] | None = None

    @property
    def name(self) -> str:
        """Return `host:port`, for messages."""
        return f"{self.host}:{self.port}"

    @property
    def is_usable(self) -> bool:
        """Return whether requests are accepted, if only to wait for a re-authentication."""
        return self.state is ChannelState.READY or self.state is ChannelState.REAUTHENTICATING

    @property
    def is_ready(self) -> bool:
        """Return whether requests are sent at once."""
        return self.state is ChannelState.READY and len(self._pending) < self._in_flight_max

    @property
    def awaits_versions(self) -> bool:
        """Return whether ApiVersions was sent and nothing came back."""
        is_asking = self.state is ChannelState.CONNECTING and bool(self._pending)
        return is_asking and not self._connection.frames.first_bytes

    @property
    def in_flight(self) -> int:
        """Return the number of requests that wait for their responses."""
        return len(self._pending)

    async def connect(self, timeout_ms: int | None = None) -> None:
        """Open the connection and negotiate versions; raise UnreachableError."""
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._runtime.clock.monotonic_ms() + limit_ms
        try:
            await self._runtime.network.connect(
                self.host, self.port, self._attach, limit_ms, tls=self._security.tls
            )
            if self._asks_versions:
                await self._negotiate(deadline_ms)
            lifetime_ms = 0
            if self._security.login is not None:
                lifetime_ms = await self._log_in(deadline_ms)
            if self._closing_error is not None:
                # The connection was lost after ApiVersions, before this coroutine ran again.
                raise self._closing_error
        except KctlError as error:
            self._close(error)
            raise
        self._become_ready(lifetime_ms)

    async def send(
        self, message: Message, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send `message` and return the response; raise UnreachableError or TimedOutError."""
        return await self.request(message, version, timeout_ms)

    async def send_in_turns(self, message: Message) -> Any:
        """Do the same with a large message, which is encoded in several turns of the loop and must
        not change meanwhile; so is a large response decoded."""
        api, scheduler = _api_of(message), self._runtime.scheduler
        version = self.version_of(api)
        body = await done_in_turns(scheduler, encoding(message, version))
        response = await self.request(message, version, body=body, reader=_undecoded_if_large)
        if not isinstance(response, _Undecoded):
            return response
        work = decoding(api.response_class, version, response.frame, response.position)
        try:
            return await done_in_turns(scheduler, work)
        except CorruptDataError as error:
            unusable = self._not_kafka(error)
            self._close(unusable)
            raise unusable from error

    def request(
        self,
        message: Message,
        version: int | None = None,
        timeout_ms: int | None = None,
        *,
        body: list[Part] | None = None,
        reader: Reader | None = None,
    ) -> Future[Any]:
        """Send `message` now and return a Future of its response. A Produce request with acks=0 has
        no response: its Future is done at once, with None. `body` is the message in that version,
        if it is encoded already; `reader` decodes the responses that it knows, whose refusals are
        not explained."""
        api = _api_of(message)
        if self._reads_only:
            # A local import, for the profiles that are read-only.
            from kctl.client.read_only import check_reads_only

            check_reads_only(message)
        if not self.is_usable:
            return self._failed()
        if version is None:
            version = self.version_of(api)
        if len(self._pending) + len(self._waiting) >= self._in_flight_max:
            raise UsageError(f"{self._in_flight_max} requests to {self.name} are in flight")
        deadline_ms = self._runtime.clock.monotonic_ms() + (
            self._request_timeout_ms if timeout_ms is None else timeout_ms
        )
        if self.state is ChannelState.REAUTHENTICATING:
            future: Future[Any] = self._runtime.scheduler.future()
            self._waiting.append(_Waiting(message, api, version, deadline_ms, future))
            return future
        return self._post(message, api, version, deadline_ms, body=body, reader=reader)

    def probe(self, message: Message) -> Future[Any]:
        """Send `message` in version 0, whatever the client may send and the broker may know: for
        requests that change nothing in any cluster."""
        deadline_ms = self._runtime.clock.monotonic_ms() + self._request_timeout_ms
        return self._post(message, _api_of(message), 0, deadline_ms)

    def version_of(self, api: Api) -> int:
        """Return the highest version of `api` that both sides support; raise ApiError if there is
        none."""
        return self._versions.pick(api)

    def has_api(self, api: Api, version: int = 0) -> bool:
        """Return whether both sides support `version` of `api` or a later one."""
        return self._versions.has(api, version)

    def speaks(self, api: Api, version: int) -> bool:
        """Return whether both sides support exactly this version of `api`."""
        return self._versions.speaks(api, version)

    def when_closed(self, callback: "Callable[[BrokerChannel], object]") -> None:
        """Call `callback(self)` when the channel closes, for whatever reason."""
        self._on_closed = callback

    def give_up_handshake(self) -> None:
        """Close the channel if the broker has not answered ApiVersions by now."""
        if self.awaits_versions:
            self._close(NoHandshakeError(f"{self.name} does not answer ApiVersions"))

    def close(self) -> None:
        """Close the channel; requests in flight fail."""
        self._close(UnreachableError(f"the connection to {self.name} was closed"))

    # Receiver

    def buffer_updated(self, count: int) -> None:
        """Handle received bytes."""
        connection = self._connection
        connection.buffer_updated(count)
        try:
            while (event := connection.next_event()) is not None:
                self._has_been_answered = self.is_usable
                pending = self._pending.popleft()
                if pending.message is not None:
                    _explain(pending.message, event.body)
                pending.future.set_result(event.body)
            if self.state is ChannelState.REAUTHENTICATING:
                self._log_in_when_idle()
        except CorruptDataError as error:
            self._close(self._not_kafka(error))
        connection.release()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the requests in flight."""
        if isinstance(error, KctlError):
            # TLS knows the cause.
            self._close(error)
            return
        protocol = foreign_protocol(self._connection.frames.first_bytes)
        if protocol is not None and self.state is ChannelState.CONNECTING:
            self._close(self._foreign(protocol))
            return
        reason = getattr(error, "strerror", None) or (str(error) if error else "closed by the peer")
        if self.awaits_versions:
            hint = None if self._security.tls is not None else _PLAINTEXT_HINT
            self._close(
                NoHandshakeError(f"lost the connection to {self.name}: {reason}", hint=hint)
            )
            return
        message = f"lost the connection to {self.name}: {reason}"
        is_unanswered = self.is_usable and not self._has_been_answered
        if is_unanswered and self._pending and self._security.login is None:
            self._close(UnansweredError(message, hint=_LOGIN_HINT))
        else:
            self._close(UnreachableError(message))

    # Inside

    def _attach(self, transport: Transport) -> "BrokerChannel":
        self._transport = transport
        if self.state is ChannelState.CLOSED:
            transport.abort()
        return self

    def _not_kafka(self, error: CorruptDataError) -> UnreachableError:
        """Return the error for a peer whose bytes are not a response."""
        protocol = foreign_protocol(self._connection.frames.first_bytes)
        if self.state is not ChannelState.CONNECTING or protocol is None:
            return UnreachableError(f"{self.name} does not speak Kafka's protocol: {error}")
        return self._foreign(protocol)

    def _foreign(self, protocol: str) -> UnreachableError:
        return UnreachableError(
            f"{self.name} speaks {protocol}, not Kafka's protocol", hint=hint_for(protocol)
        )

    async def _negotiate(self, deadline_ms: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )
        version = ApiKey.API_VERSIONS.max_version
        response = await self._post(request, ApiKey.API_VERSIONS, version, deadline_ms)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = _fallback_version(response)
            response = await self._post(request, ApiKey.API_VERSIONS, version, deadline_ms)
        if response.error_code:
            raise ApiError(response.error_code)
        self._versions = NegotiatedVersions(response.api_keys, f"the broker at {self.name}")

    # Authentication

    async def _log_in(self, deadline_ms: int) -> int:
        """Authenticate; return the session's lifetime in milliseconds, 0 for no end."""
        from kctl.client.sasl_login import log_in

        def send(message: Message) -> Future[Any]:
            api = _api_of(message)
            return self._post(message, api, self.version_of(api), deadline_ms)

        return await log_in(self._runtime, self._security, send, self.name)

    def _become_ready(self, lifetime_ms: int) -> None:
        self._move_to(ChannelState.READY)
        self._connection.frames.frame_bytes_max = RESPONSE_BYTES_MAX
        if lifetime_ms:
            jitter = self._runtime.entropy.random_below(REAUTHENTICATE_RANGE_PERCENT)
            percent = REAUTHENTICATE_FROM_PERCENT + jitter
            self._login_timer = self._runtime.scheduler.call_later(
                lifetime_ms * percent // 100, self._renew_session
            )
        waiting, self._waiting = self._waiting, []
        for it in waiting:
            self._post(it.message, it.api, it.version, it.deadline_ms, it.future)

    def _renew_session(self) -> None:
        self._login_timer = None
        self._move_to(ChannelState.REAUTHENTICATING)
        self._log_in_when_idle()

    def _log_in_when_idle(self) -> None:
        """Begin the exchange once all requests sent before it are answered."""
        if not self._pending and not self._is_logging_in:
            self._is_logging_in = True
            self._runtime.scheduler.spawn(self._log_in_again(), "re-authentication")

    async def _log_in_again(self) -> None:
        deadline_ms = self._runtime.clock.monotonic_ms() + self._request_timeout_ms
        try:
            lifetime_ms = await self._log_in(deadline_ms)
        except KctlError as error:
            self._close(error)
            return
        finally:
            self._is_logging_in = False
        if self.state is ChannelState.REAUTHENTICATING:
            self._become_ready(lifetime_ms)

    def _post(
        self,
        message: Message,
        api: Api,
        version: int,
        deadline_ms: int,
        future: Future[Any] | None = None,
        body: list[Part] | None = None,
        reader: Reader | None = None,
    ) -> Future[Any]:
        if self._transport is None or self.state is ChannelState.CLOSED:
            return self._failed()
        is_answered = api is not ApiKey.PRODUCE or getattr(message, "acks", 1) != 0
        _, parts = self._connection.send_request(
            message, version, is_answered=is_answered, body=body, reader=reader
        )
        if future is None:
            future = self._runtime.scheduler.future()
        if is_answered:
            explained = message if self._explains_refusals and reader is None else None
            self._pending.append(_Pending(api, future, deadline_ms, explained))
            self._set_timer(deadline_ms)
        else:
            future.set_result(None)
        self._transport.send(parts)
        return future

    def _failed(self) -> Future[Any]:
        future: Future[Any] = self._runtime.scheduler.future()
        future.set_error(self._closing_error or UnreachableError(f"{self.name} is not connected"))
        return future

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._runtime.scheduler.call_at(deadline_ms, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        if not self._pending:
            return
        now_ms = self._runtime.clock.monotonic_ms()
        late = next((it for it in self._pending if it.deadline_ms <= now_ms), None)
        if late is not None:
            self._close(TimedOutError(f"{self.name} did not answer {late.api.title} in time"))
        else:
            self._set_timer(min(it.deadline_ms for it in self._pending))

    def _move_to(self, state: ChannelState) -> None:
        if state not in NEXT_STATES[self.state]:
            raise RuntimeError(f"a channel cannot go from {self.state} to {state}")
        self.state = state

    def _close(self, error: KctlError) -> None:
        if self.state is ChannelState.CLOSED:
            return
        self._move_to(ChannelState.CLOSED)
        self._closing_error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None
        pending, self._pending = self._pending, deque()
        waiting, self._waiting = self._waiting, []
        for future in [*(it.future for it in pending), *(it.future for it in waiting)]:
            future.set_error(error)
        if self._transport is not None:
            # Requests without a response (acks=0) are still sent; others have failed already.
            if pending:
                self._transport.abort()
            else:
                self._transport.close()
        if self._on_closed is not None:
            self._on_closed(self)


def _undecoded_if_large(frame: Buffer, position: int) -> _Undecoded | None:
    """Keep a large response as it is (a Reader); its frame lasts as long as it is referenced."""
    return _Undecoded(frame, position) if len(frame) > DECODED_AT_ONCE_BYTES_MAX else None


def _fallback_version(response: ApiVersionsResponse) -> int:
    for supported in response.api_keys:
        if supported.api_key == ApiKey.API_VERSIONS:
            return min(supported.max_version, ApiKey.API_VERSIONS.max_version)
    return 0


def _explain(request: Message, response: Any) -> None:
    # A local import: it is not needed before the first response.
    from kctl.protocol.permissions import explain_refusals

    explain_refusals(request, response)


def _api_of(message: Message) -> Api:
    if message.api is None:
        raise UsageError(f"{type(message).__name__} is not a request")
    return message.api
