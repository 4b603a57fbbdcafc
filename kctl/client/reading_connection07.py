"""ReadingConnection07: one connection for the requests of Kafka 0.7 that have answers.

0.7 has no correlation ids: a connection serves one request at a time, in order. A request whose
answer does not come in time therefore closes the connection, as its answer would be taken for that
of the next one.

Kafka 0.7: kafka.consumer.SimpleConsumer (`getOrMakeConnection`, `sendRequest`)
"""

from kctl.errors import CorruptDataError, KctlError, TimedOutError, UnreachableError
from kctl.protocol.error_codes import ApiError
from kctl.protocol.framing import FrameBuffer
from kctl.protocol.kafka07 import (
    OffsetsRequest,
    Request07,
    decode_offsets_answer,
    encode_request,
)
from kctl.runtime.future import Future, wait_at_most
from kctl.runtime.network import Transport
from kctl.runtime.runtime import Runtime

# The largest answer that is read. A fetch asks for less.
RESPONSE_BYTES_MAX = 1 << 30


class ReadingConnection07:
    """A connection to the broker at `host:port`; `ask` connects where it is necessary."""

    def __init__(self, runtime: Runtime, host: str, port: int, timeout_ms: int) -> None:
        self._runtime = runtime
        self._host, self._port = host, port
        self._timeout_ms = timeout_ms
        self._link: _Link | None = None

    async def open(self) -> "_Link":
        """Connect, unless there is a connection; UnreachableError."""
        link = self._link
        if link is None or link.is_lost:
            link = self._link = _Link(self._runtime, f"{self._host}:{self._port}")
            await self._runtime.network.connect(
                self._host, self._port, link.attach, self._timeout_ms
            )
        return link

    async def ask(self, request: Request07) -> memoryview:
        """Send `request` and return the answer, without its size.

        Raise UnreachableError if the connection is lost, TimedOutError if there is no answer.
        """
        link = await self.open()
        answer = link.send(encode_request(request))
        late = TimedOutError(f"{link.name} did not answer in time")
        try:
            return await wait_at_most(self._runtime.scheduler, answer, self._timeout_ms, late)
        except BaseException:
            # Also when it is cancelled: the answer would be taken for that of the next request.
            self.close()
            raise

    async def offsets_before(
        self, topic: str, partition: int, time_ms: int, max_offsets: int
    ) -> list[int]:
        """Return offsets of segments before a time (or LATEST_TIME, EARLIEST_TIME), descending.

        Raise ApiError for the broker's error, CorruptDataError, and otherwise as `ask` does; a
        partition that the broker cannot have closes the connection.
        """
        request = OffsetsRequest(topic, partition, time_ms, max_offsets)
        answer = decode_offsets_answer(await self.ask(request))
        if answer.error:
            # 0.7's codes are the first of those of later releases.
            raise ApiError(answer.error)
        return list(answer.offsets)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        link, self._link = self._link, None
        if link is not None:
            link.close()


class _Link:
    """One connection and the request that waits for its answer (Receiver)."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self.name = name
        self.is_lost = False
        self._runtime = runtime
        self._frames = FrameBuffer(frame_bytes_max=RESPONSE_BYTES_MAX)
        self.get_buffer = self._frames.get_buffer
        self._transport: Transport | None = None
        self._answer: Future[memoryview] | None = None

    def attach(self, transport: Transport) -> "_Link":
        self._transport = transport
        return self

    def send(self, frame: bytes) -> Future[memoryview]:
        self._answer = self._runtime.scheduler.future()
        if self._transport is None or self.is_lost:
            self._answer.set_error(UnreachableError(f"{self.name} is not connected"))
        else:
            self._transport.send([frame])
        return self._answer

    def close(self) -> None:
        self.is_lost = True
        if self._transport is not None:
            self._transport.abort()

    def buffer_updated(self, count: int) -> None:
        self._frames.buffer_updated(count)
        try:
            frame = self._frames.next_frame()
        except CorruptDataError as error:
            self._fail(
                UnreachableError(f"{self.name} does not speak Kafka 0.7's protocol: {error}")
            )
            self.close()
            return
        answer = self._answer
        if frame is not None and answer is not None and not answer.done:
            answer.set_result(memoryview(bytes(frame)))
        self._frames.release()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        reason = getattr(error, "strerror", None) or "closed by the peer"
        self._fail(UnreachableError(f"lost the connection to {self.name}: {reason}"))

    def _fail(self, error: KctlError) -> None:
        if self._answer is not None and not self._answer.done:
            self._answer.set_error(error)
