"""The control connection to the supervisor of a local cluster: one JSON line there, one back.

The supervisor listens on a port of 127.0.0.1 and stores its address, with a token that only the
owner of the data directory can read, in DIR/cluster.json. A line without the token is rejected.
"""

import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from kctl.errors import KctlError, TimedOutError, UnreachableError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.future import Future
from kctl.runtime.network import Listener, Transport
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

STATE_FILE = "cluster.json"
HOST = "127.0.0.1"
LINE_BYTES_MAX = 64 * 1024
# Connections that have not yet sent their line: above this limit the oldest is closed, and each of
# them is closed after the time below.
SILENT_CONNECTIONS_MAX = 100
SILENCE_MS_MAX = 10_000
TOKEN_BYTES = 16
CONNECT_TIMEOUT_MS = 2_000

Answer = dict[str, Any]
Handler = Callable[[Answer], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """The contents of the state file."""

    pid: int
    port: int
    token: str

    def encode(self) -> str:
        """Return the file's text."""
        return json.dumps({"pid": self.pid, "port": self.port, "token": self.token}) + "\n"

    @classmethod
    def decode(cls, text: str, path: str) -> "ControlAddress":
        """Parse the text of `path`; raise KctlError if it is invalid."""
        try:
            fields = json.loads(text)
            return cls(int(fields["pid"]), int(fields["port"]), str(fields["token"]))
        except (ValueError, KeyError, TypeError):
            raise KctlError(
                f"{path} does not contain the supervisor's address", hint="start the cluster again"
            ) from None


class _Silent(NamedTuple):
    """A connection that has not yet sent its line, and its deadline."""

    transport: Transport
    timer: Timer


class ControlServer:
    """The supervisor's side."""

    def __init__(self, runtime: Runtime, handler: Handler) -> None:
        self._runtime = runtime
        self._handler = handler
        self.token = runtime.entropy.random_bytes(TOKEN_BYTES).hex()
        # Connections that have not yet sent their line, the oldest first.
        self._silent: dict[_LineReceiver, _Silent] = {}
        self._listener: Listener = runtime.network.listen(HOST, 0, self._accept)

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self._listener.port

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _accept(self, transport: Transport) -> "_LineReceiver":
        if len(self._silent) >= SILENT_CONNECTIONS_MAX:
            # Connections that send nothing must not keep the owner out.
            self._end_silence(next(iter(self._silent)), is_abandoned=True)

        def serve(line: bytes) -> None:
            self._end_silence(receiver)
            self._runtime.scheduler.spawn(self._answer(transport, line), "control")

        receiver = _LineReceiver(serve, lambda _error: self._end_silence(receiver))
        timer = self._runtime.scheduler.call_later(
            SILENCE_MS_MAX, lambda: self._end_silence(receiver, is_abandoned=True)
        )
        self._silent[receiver] = _Silent(transport, timer)
        return receiver

    def _end_silence(self, receiver: "_LineReceiver", *, is_abandoned: bool = False) -> None:
        """Forget a connection that has sent its line, is gone, or is abandoned."""
        silent = self._silent.pop(receiver, None)
        if silent is not None:
            silent.timer.cancel()
            if is_abandoned:
                silent.transport.abort()

    def _is_authorized(self, request: object) -> bool:
        token = request.get("token") if isinstance(request, dict) else None
        # In the same time for any token, so that timing does not reveal it.
        return isinstance(token, str) and hmac.compare_digest(
            token.encode(errors="replace"), self.token.encode()
        )

    async def _answer(self, transport: Transport, line: bytes) -> None:
        answer: Answer
        try:
            request = json.loads(line)
            if not self._is_authorized(request):
                raise KctlError("not the token of this cluster")
            answer = await self._handler(request)
        except (ValueError, RecursionError):
            # RecursionError: arrays in arrays, thousands deep.
            answer = {"error": "not a line of JSON"}
        except KctlError as error:
            answer = {"error": str(error), "is_misuse": isinstance(error, UsageError)}
        transport.send([json.dumps(answer).encode() + b"\n"])
        transport.close()


async def ask(
    runtime: Runtime, address: ControlAddress, request: Answer, timeout_ms: int
) -> Answer:
    """Send a request to the supervisor and return its response.

    UnreachableError, TimedOutError; UsageError or KctlError if the supervisor rejects the request.
    """
    answered: Future[bytes] = runtime.scheduler.future()

    def lost(error: Exception | None) -> None:
        if not answered.done:
            answered.set_error(
                UnreachableError(f"the supervisor closed the connection: {error or 'it stops'}")
            )

    def give_up() -> None:
        if not answered.done:
            answered.set_error(TimedOutError(f"no response in {timeout_ms / 1000:g} s"))

    transport = await runtime.network.connect(
        HOST, address.port, lambda _: _LineReceiver(answered.set_result, lost), CONNECT_TIMEOUT_MS
    )
    timer = runtime.scheduler.call_later(timeout_ms, give_up)
    try:
        transport.send([json.dumps({**request, "token": address.token}).encode() + b"\n"])
        answer: Answer = json.loads(await answered)
    finally:
        timer.cancel()
        transport.abort()
    if "error" in answer:
        raise (UsageError if answer.get("is_misuse") else KctlError)(str(answer["error"]))
    return answer


class _LineReceiver:
    """The Receiver of a connection that sends one line."""

    def __init__(
        self, on_line: Callable[[bytes], object], on_lost: Callable[[Exception | None], object]
    ) -> None:
        self._on_line = on_line
        self._on_lost = on_lost
        self._buffer = bytearray(LINE_BYTES_MAX)
        self._filled = 0
        self._is_done = False

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes; bytes after the line are dropped."""
        if self._is_done or self._filled == len(self._buffer):
            self._filled = 0
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """Look for the line's end."""
        self._filled += count
        end = self._buffer.find(b"\n", 0, self._filled)
        if end >= 0 and not self._is_done:
            self._is_done = True
            self._on_line(bytes(self._buffer[:end]))

    def connection_lost(self, error: Exception | None) -> None:
        """Report that the other side is gone."""
        self._on_lost(error)
