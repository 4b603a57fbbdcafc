"""Network: an interface of connections; TLS, epoll and sendfile are hidden by it.

Bytes arrive through `Receiver.get_buffer`/`buffer_updated`, so that a large frame is received
directly into the buffer it will be appended from. Bytes are sent as parts, each a buffer, a
`FileSlice` or a `StreamedPart`; parts are sent in order and never copied together.

A Receiver that implements `EofReceiver` decides what a peer's half-close means; without it, the end
of the peer's bytes closes the connection.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer
from kctl.runtime.disk import FileSlice
from kctl.runtime.future import Future

if TYPE_CHECKING:
    from kctl.tls.settings import TlsSettings


class StreamedPart(Protocol):
    """A part that is produced piece by piece while it is sent."""

    def __len__(self) -> int:
        """Return the total number of bytes."""
        ...

    def step(self) -> bytes:
        """Do one bounded piece of work and return the next bytes, perhaps none yet.

        `len` bytes come in all. Raise OSError or KctlError if they cannot be produced.
        """
        ...


Part = Buffer | FileSlice | StreamedPart


def part_bytes(part: Part) -> Buffer:
    """Return the whole of `part`, produced or read at once; less if its file ends early."""
    if isinstance(part, FileSlice):
        return part.file.pread(part.length, part.position)
    if isinstance(part, bytes | bytearray | memoryview):
        return part
    pieces: list[bytes] = []
    left = len(part)
    while left:
        pieces.append(part.step())
        left -= len(pieces[-1])
    return b"".join(pieces)


# The operating system's default.
SYSTEM_SEND_BUFFER = -1


class Receiver(Protocol):
    """The owner of one connection; called on the loop, never re-entered."""

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes; not empty. It may be a scratch buffer shared by
        connections: its owner must be done with its bytes before `buffer_updated` returns."""
        ...

    def buffer_updated(self, count: int) -> None:
        """Handle the first `count` bytes of the last `get_buffer()`."""
        ...

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the end of the connection in both directions; called exactly once. None: closed
        cleanly."""
        ...


class EofReceiver(Receiver, Protocol):
    """A Receiver that may respond to a peer that has shut down its sending side."""

    def eof_received(self) -> bool:
        """Return True to stay open for responses (the owner closes), False to close now."""
        ...


@dataclass(frozen=True, slots=True)
class TlsSession:
    """What a handshake agreed on."""

    # "TLSv1.2" or "TLSv1.3".
    version: str
    # OpenSSL's name of the cipher suite.
    cipher: str
    # The peer's certificate in DER; None: it sent none.
    certificate: bytes | None


class TlsError(KctlError):
    """A connection ends because of TLS: a handshake that fails, a peer that speaks something else.
    The message is the reason."""


class SecuredReceiver(Receiver, Protocol):
    """A Receiver that learns who its peer is."""

    def when_secured(self, session: TlsSession) -> None:
        """Handle the end of the TLS handshake, before the first byte. Never called without TLS."""
        ...


class Transport(Protocol):
    """The sending side of a connection."""

    # (host, port) of the other side, for logs and limits per IP.
    peer: tuple[str, int]

    def send(self, parts: Sequence[Part]) -> None:
        """Queue `parts` and send what the socket accepts now. Buffers belong to the transport until
        they are sent: the caller must not change them. Dropped silently once closed."""
        ...

    def unsent_bytes(self) -> int:
        """Return the bytes queued here because the peer is slow to read; usually 0."""
        ...

    def when_sent(self, callback: Callable[[], object]) -> None:
        """Call `callback()` soon once nothing is unsent; it replaces an earlier one and is called
        once. Never called on a connection that is lost first."""
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
    # The port in use, also when 0 was requested.
    port: int

    def pause_accepting(self) -> None:
        """Leave new connections in the backlog (a limit is reached)."""
        ...

    def resume_accepting(self) -> None: ...

    def change_tls(self, tls: "TlsSettings") -> None:
        """Use `tls` for new connections, and read its files again. Raise UsageError, without a
        change, if they cannot be used."""
        ...

    def replace_tls(self, tls: "TlsSettings", *, validate_only: bool = False) -> Future[bool]:
        """Do the same off the loop, if the settings or their files have changed; the result is
        whether they have.

        The Future fails with UsageError, without a change, if the files cannot be used, or if the
        listener would lose its identity (`kctl.tls.store_changes`). With `validate_only` nothing
        changes in any case.
        """
        ...

    def close(self) -> None: ...


class Network(Protocol):
    """The source of connections."""

    def listen(
        self,
        host: str,
        port: int,
        on_connection: Callable[[Transport], Receiver | None],
        *,
        send_buffer_bytes: int = SYSTEM_SEND_BUFFER,
        tls: "TlsSettings | None" = None,
        is_urgent: bool = False,
    ) -> Listener:
        """Accept connections; `on_connection` returns their Receiver, or None to reject them.

        The system buffers about `send_buffer_bytes` of unread data per connection. With `tls` the
        peers must speak TLS. Connections that are urgent are served first in a turn. Raises
        KctlError naming host and port if they cannot be bound, and
        UsageError if the files of `tls` cannot be used.
        """
        ...

    def load_tls(self, tls: "TlsSettings") -> Future[None]:
        """Read the files of `tls` off the loop, for the next `listen`. The Future fails with
        UsageError if they cannot be used."""
        ...

    def local_host_name(self) -> str:
        """Return this machine's name, which is advertised when a listener names no host."""
        ...

    def connect(
        self,
        host: str,
        port: int,
        on_connection: Callable[[Transport], Receiver],
        timeout_ms: int,
        *,
        tls: "TlsSettings | None" = None,
    ) -> Future[Transport]:
        """Connect, and with `tls` complete the handshake.

        The Future fails with UnreachableError or TimedOutError, with AuthenticationError if one
        side rejects the other's certificate, and with UsageError if the files of `tls` cannot be
        used.
        """
        ...

    def substitute_tls(self, given: "TlsSettings", used: "TlsSettings") -> Future[None]:
        """Connect with `used` wherever `connect` is given `given`. The Future fails with
        UsageError, without a change, if the files of `used` cannot be used."""
        ...

    def reload_tls(self) -> None:
        """Read again the files of all settings that `connect` was given. Raise UsageError, without
        a change, if one of them cannot be used."""
        ...
