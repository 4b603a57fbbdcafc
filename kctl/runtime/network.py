"""Network: a connection seam, not fd-readiness; TLS, epoll and sendfile stay behind it.

Bytes come in through `Receiver.get_buffer`/`buffer_updated`, so that a big frame is received
straight into the buffer it will be appended from. Bytes go out as parts, each a buffer or a
`FileSlice`; parts are sent in order and never copied together.

A Receiver that also has the method of `EofReceiver` decides what a peer's half-close means;
without it, the end of the peer's bytes closes the connection.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from kctl.runtime.disk import Buffer, FileSlice
from kctl.runtime.future import Future

Part = Buffer | FileSlice

# As many bytes as the system likes.
SYSTEM_SEND_BUFFER = -1


class Receiver(Protocol):
    """What owns one connection; called on the loop, never re-entered."""

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; not empty. May be a scratch buffer shared by connections:
        whoever returns it must be done with its bytes before `buffer_updated` returns."""
        ...

    def buffer_updated(self, count: int) -> None:
        """The first `count` bytes of the last `get_buffer()` are there."""
        ...

    def connection_lost(self, error: Exception | None) -> None:
        """No more bytes either way; called exactly once. None: closed in good order."""
        ...


class EofReceiver(Receiver, Protocol):
    """A Receiver that wants to answer a peer which has only finished speaking."""

    def eof_received(self) -> bool:
        """The peer sends no more. True: stay open for answers, the owner closes; False: close
        now."""
        ...


class Transport(Protocol):
    """The sending side of a connection."""

    # (host, port) of the other side, for logs and limits per IP.
    peer: tuple[str, int]

    def send(self, parts: Sequence[Part]) -> None:
        """Queue `parts` and send what the socket takes now. Buffers belong to the transport
        until sent: the caller must not change them. Dropped silently once closed."""
        ...

    def unsent_bytes(self) -> int:
        """Bytes queued here that the other side's slowness keeps waiting; usually 0."""
        ...

    def when_sent(self, callback: Callable[[], object]) -> None:
        """Call `callback()` soon after nothing is unsent any more; it replaces an earlier one
        and is called once. Never called on a connection that is lost first."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...

    def abort(self) -> None:
        """Close at once, dropping what is queued."""
        ...


class Listener(Protocol):
    """A listening socket."""

    host: str
    # The port in fact bound, also when 0 was asked for.
    port: int

    def pause_accepting(self) -> None:
        """Leave new connections in the backlog (a limit is reached)."""
        ...

    def resume_accepting(self) -> None: ...

    def close(self) -> None: ...


class Network(Protocol):
    """Where connections come from."""

    def listen(
        self,
        host: str,
        port: int,
        on_connection: Callable[[Transport], Receiver | None],
        *,
        send_buffer_bytes: int = SYSTEM_SEND_BUFFER,
    ) -> Listener:
        """Accept connections; `on_connection` returns their Receiver, or None to refuse. The
        system keeps about `send_buffer_bytes` for a connection that its peer has yet to take.
        KctlError naming host and port if they cannot be bound."""
        ...

    def local_host_name(self) -> str:
        """What this machine calls itself: advertised when a listener names no host."""
        ...

    def connect(
        self,
        host: str,
        port: int,
        on_connection: Callable[[Transport], Receiver],
        timeout_ms: int,
    ) -> Future[Transport]:
        """Connect; UnreachableError or TimedOutError through the Future."""
        ...
