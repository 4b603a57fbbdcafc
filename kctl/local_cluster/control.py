"""How commands reach the supervisor of a local cluster: one JSON line there, one back.

The supervisor listens on a port of 127.0.0.1 and leaves its address, with a token that only the
owner of the data directory can read, in DIR/cluster.json. A line without the token is refused.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kctl.errors import KctlError, TimedOutError, UnreachableError, UsageError
from kctl.runtime.future import Future
from kctl.runtime.network import Listener, Transport
from kctl.runtime.runtime import Runtime

STATE_FILE = "cluster.json"
HOST = "127.0.0.1"
LINE_BYTES_MAX = 64 * 1024
CONNECTIONS_MAX = 100
TOKEN_BYTES = 16
CONNECT_TIMEOUT_MS = 2_000

Answer = dict[str, Any]
Handler = Callable[[Answer], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """What is in the state file."""

    pid: int
    port: int
    token: str

    def encode(self) -> str:
        """The file's text."""
        return json.dumps({"pid": self.pid, "port": self.port, "token": self.token}) + "\n"

    @classmethod
    def decode(cls, text: str, path: str) -> "ControlAddress":
        """KctlError if that is not what `path` should hold."""
        try:
            fields = json.loads(text)
            return cls(int(fields["pid"]), int(fields["port"]), str(fields["token"]))
        except (ValueError, KeyError, TypeError):
            raise KctlError(
                f"{path} does not say where the supervisor is", hint="start the cluster again"
            ) from None


class ControlServer:
    """The supervisor's side."""

    def __init__(self, runtime: Runtime, handler: Handler) -> None:
        self._runtime = runtime
        self._handler = handler
        self.token = runtime.entropy.random_bytes(TOKEN_BYTES).hex()
        self.connection_count = 0
        self._listener: Listener = runtime.network.listen(HOST, 0, self._accept)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._listener.port

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def _accept(self, transport: Transport) -> "_LineReceiver | None":
        if self.connection_count >= CONNECTIONS_MAX:
            return None
        self.connection_count += 1
        return _LineReceiver(lambda line: self._serve(transport, line), lambda _error: self._lost())

    def _lost(self) -> None:
        self.connection_count -= 1

    def _serve(self, transport: Transport, line: bytes) -> None:
        self._runtime.scheduler.spawn(self._answer(transport, line), "control")

    async def _answer(self, transport: Transport, line: bytes) -> None:
        answer: Answer
        try:
            request = json.loads(line)
            if not isinstance(request, dict) or request.get("token") != self.token:
                raise KctlError("not the token of this cluster")
            answer = await self._handler(request)
        except ValueError:
            answer = {"error": "not a line of JSON"}
        except KctlError as error:
            answer = {"error": str(error), "is_misuse": isinstance(error, UsageError)}
        transport.send([json.dumps(answer).encode() + b"\n"])
        transport.close()


async def ask(
    runtime: Runtime, address: ControlAddress, request: Answer, timeout_ms: int
) -> Answer:
    """What the supervisor answers. UnreachableError, TimedOutError; UsageError, KctlError: it
    says no."""
    answered: Future[bytes] = runtime.scheduler.future()

    def lost(error: Exception | None) -> None:
        if not answered.done:
            answered.set_error(UnreachableError(f"the supervisor hung up: {error or 'it stops'}"))

    def give_up() -> None:
        if not answered.done:
            answered.set_error(TimedOutError(f"no answer in {timeout_ms / 1000:g} s"))

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
    """The Receiver of a connection that brings one line."""

    def __init__(
        self, on_line: Callable[[bytes], object], on_lost: Callable[[Exception | None], object]
    ) -> None:
        self._on_line = on_line
        self._on_lost = on_lost
        self._buffer = bytearray(LINE_BYTES_MAX)
        self._filled = 0
        self._is_done = False

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; what comes behind the line is dropped."""
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
        """The other side is gone."""
        self._on_lost(error)
