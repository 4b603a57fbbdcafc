"""BrokerChannel: one connection to one broker; handshake, pipelining, time limits.

States: CONNECTING (the socket, then ApiVersions) -> READY -> CLOSED, or CONNECTING -> CLOSED.
Requests are sent in the order of `send` and answered in that order (`protocol.connection` sees
to it). An answer that is late closes the channel, as nothing behind it could be read: what was
under way fails with UnreachableError, and whether the broker did it is not known.

Versions are negotiated with the broker's ApiVersions (KIP-35): v3 first, and where the broker is
too old for that (it says UNSUPPORTED_VERSION in v0's form) again with a version it has.

Kafka 2.7: org.apache.kafka.clients.NetworkClient, ApiVersions; KIP-35, KIP-511
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kctl import __version__
from kctl.errors import CorruptDataError, KctlError, TimedOutError, UnreachableError, UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.connection import ClientConnection
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kctl.protocol.negotiation import NegotiatedVersions
from kctl.protocol.schema import Message
from kctl.runtime.future import Future
from kctl.runtime.network import Transport
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

DEFAULT_TIMEOUT_MS = 30_000
# Answers may be as big as a fetch asks for, and then some.
RESPONSE_BYTES_MAX = 1 << 30
IN_FLIGHT_MAX = 1_000
SOFTWARE_NAME = "kctl"


class ChannelState(Enum):
    """How far a channel is in its life."""

    CONNECTING = "connecting"
    READY = "ready"
    CLOSED = "closed"


NEXT_STATES = {
    ChannelState.CONNECTING: {ChannelState.READY, ChannelState.CLOSED},
    ChannelState.READY: {ChannelState.CLOSED},
    ChannelState.CLOSED: set[ChannelState](),
}


@dataclass(slots=True)
class _Pending:
    """A request that waits for its answer."""

    api: ApiKey
    future: Future[Any]
    # Monotonic milliseconds.
    deadline_ms: int


class BrokerChannel:
    """A connection to the broker at `host:port`; `connect` first."""

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        port: int,
        *,
        client_id: str = "kctl",
        request_timeout_ms: int = DEFAULT_TIMEOUT_MS,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self.host = host
        self.port = port
        self.state = ChannelState.CONNECTING
        self._runtime = runtime
        self._connection = ClientConnection(client_id, frame_bytes_max=RESPONSE_BYTES_MAX)
        # Where the next bytes of answers go (Receiver).
        self.get_buffer = self._connection.get_buffer
        self._request_timeout_ms = request_timeout_ms
        self._in_flight_max = in_flight_max
        self._transport: Transport | None = None
        self._versions = NegotiatedVersions([], self.name)
        # In the order sent.
        self._pending: deque[_Pending] = deque()
        self._timer: Timer | None = None
        # When it rings, in monotonic milliseconds.
        self._timer_ms = 0
        self._closing_error: KctlError | None = None
        self._on_closed: Callable[[BrokerChannel], object] | None = None

    @property
    def name(self) -> str:
        """`host:port`, for messages."""
        return f"{self.host}:{self.port}"

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._pending)

    async def connect(self, timeout_ms: int | None = None) -> None:
        """Open the connection and learn the broker's versions; UnreachableError."""
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._runtime.clock.monotonic_ms() + limit_ms
        try:
            await self._runtime.network.connect(self.host, self.port, self._attach, limit_ms)
            await self._negotiate(deadline_ms)
            if self._closing_error is not None:
                # Lost right behind the last answer, before it was this coroutine's turn.
                raise self._closing_error
        except KctlError as error:
            self._close(error)
            raise
        self._move_to(ChannelState.READY)

    async def send(
        self, message: Message, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """The answer to `message`; UnreachableError or TimedOutError if none comes."""
        return await self.request(message, version, timeout_ms)

    def request(
        self, message: Message, version: int | None = None, timeout_ms: int | None = None
    ) -> Future[Any]:
        """Send `message` now; its answer through the Future. A Produce with acks 0 has none:
        its Future is done at once, with None."""
        api = _api_of(message)
        if self.state is not ChannelState.READY:
            return self._failed()
        if version is None:
            version = self.version_of(api)
        if len(self._pending) >= self._in_flight_max:
            raise UsageError(f"{self._in_flight_max} requests to {self.name} are under way")
        deadline_ms = self._runtime.clock.monotonic_ms() + (
            self._request_timeout_ms if timeout_ms is None else timeout_ms
        )
        return self._post(message, api, version, deadline_ms)

    def version_of(self, api: ApiKey) -> int:
        """The newest version of `api` that both sides speak; ApiError if there is none."""
        return self._versions.pick(api)

    def has_api(self, api: ApiKey, version: int = 0) -> bool:
        """Whether broker and we share `version` of `api` or a later one."""
        return self._versions.has(api, version)

    def when_closed(self, callback: "Callable[[BrokerChannel], object]") -> None:
        """Call `callback(self)` when the channel closes, for whatever reason."""
        self._on_closed = callback

    def close(self) -> None:
        """Close in good order; requests under way fail."""
        self._close(UnreachableError(f"the connection to {self.name} was closed"))

    # Receiver

    def buffer_updated(self, count: int) -> None:
        """Take in answers."""
        connection = self._connection
        connection.buffer_updated(count)
        try:
            while (event := connection.next_event()) is not None:
                self._pending.popleft().future.set_result(event.body)
        except CorruptDataError as error:
            self._close(UnreachableError(f"{self.name} does not speak Kafka's protocol: {error}"))
        connection.release()

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what is under way."""
        reason = getattr(error, "strerror", None) or (str(error) if error else "closed by the peer")
        self._close(UnreachableError(f"lost the connection to {self.name}: {reason}"))

    # Inside

    def _attach(self, transport: Transport) -> "BrokerChannel":
        self._transport = transport
        if self.state is ChannelState.CLOSED:
            transport.abort()
        return self

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

    def _post(self, message: Message, api: ApiKey, version: int, deadline_ms: int) -> Future[Any]:
        if self._transport is None or self.state is ChannelState.CLOSED:
            return self._failed()
        is_answered = api is not ApiKey.PRODUCE or getattr(message, "acks", 1) != 0
        _, parts = self._connection.send_request(message, version, is_answered=is_answered)
        future: Future[Any] = self._runtime.scheduler.future()
        if is_answered:
            self._pending.append(_Pending(api, future, deadline_ms))
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
        pending, self._pending = self._pending, deque()
        for waiting in pending:
            waiting.future.set_error(error)
        if self._transport is not None:
            self._transport.close()
        if self._on_closed is not None:
            self._on_closed(self)


def _fallback_version(response: ApiVersionsResponse) -> int:
    for told in response.api_keys:
        if told.api_key == ApiKey.API_VERSIONS:
            return min(told.max_version, ApiKey.API_VERSIONS.max_version)
    return 0


def _api_of(message: Message) -> ApiKey:
    if message.api is None:
        raise UsageError(f"{type(message).__name__} is no request")
    return message.api
