"""A real runtime for a test: its loop, what it logged, and sockets to talk to it from outside."""

import socket
import struct
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from kctl.runtime.future import Future, sleep
from kctl.runtime.real import RealRuntime, make_runtime
from kctl.runtime.real.poller import Poller

# No test waits longer than this for anything; it only ends tests that would hang.
PATIENCE_MS = 120_000


class RecordingTrace:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.infos: list[str] = []
        self.warnings: list[str] = []
        # What the watchdog logs depends on what else the machine does: kept apart.
        self.long_turns: list[str] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append((name, fields))

    def info(self, message: str) -> None:
        self._add(self.infos, message)

    def warning(self, message: str, detail: str = "") -> None:
        self._add(self.warnings, f"{message}\n{detail}" if detail else message)

    def _add(self, lines: list[str], message: str) -> None:
        is_long_turn = message.startswith("The event loop was busy")
        (self.long_turns if is_long_turn else lines).append(message)


class RealLoop:
    """A runtime and the means to drive it."""

    def __init__(self, poller: Poller | None = None) -> None:
        self.trace = RecordingTrace()
        self.runtime: RealRuntime = make_runtime(self.trace, poller)
        self.scheduler = self.runtime.scheduler
        self.peers: list[Peer] = []

    def close(self) -> None:
        """Close what the test left open, on both sides."""
        for peer in self.peers:
            peer.socket.close()
        for handler in list(self.scheduler._handlers.values()):
            owner = handler.__self__
            if owner is not self.scheduler:
                (getattr(owner, "abort", None) or owner.close)()
        self.scheduler.close()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The coroutine's result; TimeoutError if it hangs."""
        task = self.scheduler.spawn(coroutine)
        timer = self.scheduler.call_later(PATIENCE_MS, task.cancel)
        try:
            return self.scheduler.run_until(task)
        finally:
            timer.cancel()

    def wait(self, future: Future[Any]) -> Any:
        async def wait() -> Any:
            return await future

        return self.run(wait())

    def until(self, condition) -> None:
        """Run until `condition()` holds."""

        async def wait() -> None:
            while not condition():
                await sleep(self.scheduler, 1)

        self.run(wait())

    def turns(self, count: int = 20) -> None:
        """Let the loop look around `count` times."""

        async def wait() -> None:
            for _ in range(count):
                await sleep(self.scheduler, 0)

        self.run(wait())


class Peer:
    """A plain socket whose waiting keeps the loop going."""

    def __init__(self, loop: RealLoop, sock: socket.socket) -> None:
        self.loop = loop
        self.socket = sock
        self.received = b""
        self.is_closed = False
        self.error: OSError | None = None
        sock.settimeout(0)
        loop.peers.append(self)

    def send(self, data: bytes) -> None:
        """Send all of it, however slowly the other side reads."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                self.loop.turns(2)

    def send_until_blocked(self, data: bytes) -> None:
        """Send `data` repeatedly until the other side stops reading."""
        try:
            while True:
                self.socket.send(data)
                self.loop.turns(2)
        except OSError:
            self.loop.turns()

    def pull(self) -> bool:
        """Take what is there; whether the other side has closed."""
        try:
            while data := self.socket.recv(1 << 20):
                self.received += data
            self.is_closed = True
        except BlockingIOError:
            pass
        except OSError as error:
            self.error = error
            self.is_closed = True
        return self.is_closed

    def receive(self, count: int) -> bytes:
        """Exactly `count` bytes."""
        self.loop.until(lambda: self.pull() or len(self.received) >= count)
        assert len(self.received) >= count, f"closed after {len(self.received)} bytes"
        data, self.received = self.received[:count], self.received[count:]
        return data

    def receive_frame(self) -> bytes:
        """One size-prefixed frame, without the size."""
        return self.receive(struct.unpack(">i", self.receive(4))[0])

    def wait_for_close(self) -> None:
        self.loop.until(self.pull)

    def reset(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@contextmanager
def real_loop(poller: Poller | None = None) -> Iterator[RealLoop]:
    """A loop, closed afterwards."""
    loop = RealLoop(poller)
    try:
        yield loop
    finally:
        loop.close()


def connect(loop: RealLoop, port: int, **options: int) -> Peer:
    """A socket connected to `port`; `receive_buffer=N` makes a slow reader."""
    sock = socket.socket()
    if "receive_buffer" in options:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["receive_buffer"])
    peer = Peer(loop, sock)
    sock.settimeout(None)
    sock.connect(("127.0.0.1", port))
    sock.settimeout(0)
    return peer


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload
