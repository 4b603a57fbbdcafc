"""SimNetwork: byte streams between hosts, with everything that a network does to them.

A connection is two pipes. Bytes arrive in order, after a delay, in pieces of any size. Links
between two hosts can be cut, one way or both: bytes are held back, as TCP would retransmit them,
and arrive after the cut. Any connection can be reset: bytes in flight are lost, and each end learns
of it at its own time. A process that is killed resets its connections. A machine that loses power
is silent; its peers learn of it only when it is up again, or by a timeout.

Invariants: bytes of one direction never overtake each other; a Receiver is never called inside
`send` or another Receiver's call; `connection_lost` comes once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from kctl.errors import KctlError, TimedOutError, UnreachableError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.entropy import Entropy
from kctl.runtime.future import Future
from kctl.runtime.network import Part, Receiver, TlsSession, Transport, part_bytes
from kctl.simulation.scheduler import NodeScheduler
from kctl.tls.settings import TlsSettings

FIRST_CLIENT_PORT = 40_000
FIRST_CERTIFICATE = "certificate 0"
# Version and cipher that every simulated handshake agrees on.
SESSION = ("TLSv1.3", "TLS_AES_256_GCM_SHA384")


@dataclass(slots=True)
class Weather:
    """How bad the network is; delays in microseconds, chances in thousandths."""

    delay_us_min: int = 50
    delay_us_max: int = 1_000
    # Chance of a delivery that takes up to `slow_us_max` instead.
    slow_us_max: int = 50_000
    slow_chance: int = 10
    # Chance of a delivery in two pieces.
    split_chance: int = 50
    # Chance that the connection is reset at a delivery.
    reset_chance: int = 0


@dataclass(slots=True)
class NetworkCounters:
    """Counts of network events."""

    connections: int = 0
    deliveries: int = 0
    splits: int = 0
    resets: int = 0
    held: int = 0
    tls_handshakes: int = 0


Accept = Callable[[Transport], Receiver | None]


@dataclass(slots=True)
class SimListener:
    """A listening socket."""

    host: str
    port: int
    scheduler: NodeScheduler
    accept: Accept
    # The certificate that new connections get; None without TLS.
    certificate: str | None = None
    # Reads the file of the certificate, with TLS.
    read_certificate: Callable[[], str] | None = None
    is_open: bool = True
    is_accepting: bool = True
    _waiting: "deque[Callable[[], object]]" = field(default_factory=deque)

    def arrive(self, connect: Callable[[], object]) -> None:
        """Accept a connection, now or when accepting resumes."""
        if self.is_accepting:
            connect()
        else:
            self._waiting.append(connect)

    def pause_accepting(self) -> None:
        """Leave new connections waiting."""
        self.is_accepting = False

    def resume_accepting(self) -> None:
        """Accept connections again."""
        self.is_accepting = True
        while self._waiting and self.is_accepting:
            self._waiting.popleft()()

    def change_tls(self, tls: TlsSettings) -> None:
        """Read the certificate again; raise UsageError, without a change, if it is unusable."""
        del tls
        assert self.read_certificate is not None
        self.certificate = self.read_certificate()

    def replace_tls(self, tls: TlsSettings, *, validate_only: bool = False) -> Future[bool]:
        """Do nothing: there are no files."""
        del tls, validate_only
        done: Future[bool] = self.scheduler.future()
        done.set_result(False)
        return done

    def close(self) -> None:
        """Refuse connections from now on."""
        self.is_open = False


class SimTransport:
    """One end of a connection."""

    def __init__(
        self, network: "SimNetwork", scheduler: NodeScheduler, host: str, peer: tuple[str, int]
    ) -> None:
        self.peer = peer
        self.host = host
        self.scheduler = scheduler
        self.other: SimTransport | None = None
        self.is_lost = False
        self._network = network
        self._receiver: Any = None
        # Chunks that arrived while reading is paused; None: the peer's end.
        self._unread: deque[bytes | None] = deque()
        self._is_reading = True
        # The connection breaks after this turn; nothing that is sent from now on arrives.
        self.is_broken = False
        # No chunk arrives before the one sent before it.
        self._last_arrival_us = 0
        # Chunks held back until a cut ends.
        self.held: deque[bytes | None] = deque()

    def attach(self, receiver: Receiver) -> None:
        """Set the receiver of incoming bytes."""
        self._receiver = receiver
        if self.is_lost:
            self.scheduler.call_soon(receiver.connection_lost, None)

    # The sending side

    def send(self, parts: Sequence[Part]) -> None:
        """Send `parts`: they are copied at once, as by a kernel that has room."""
        if self.is_lost or self.is_broken:
            return
        try:
            data = b"".join(map(part_bytes, parts))
        except (KctlError, OSError) as error:
            self.lose(error)
            return
        if len(data) != sum(map(len, parts)):
            self.lose(OSError("a file ends before what was promised"))
            return
        self._network.transmit(self, data)

    def unsent_bytes(self) -> int:
        """Return 0: the kernel always has room."""
        return 0

    def when_sent(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the next turn: nothing waits to be sent."""
        if not self.is_lost:
            self.scheduler.call_soon(callback)

    def close(self) -> None:
        """Send the end of the stream after what was sent."""
        if self.is_lost:
            return
        if not self.is_broken:
            self._network.transmit(self, None)
        self._end(None)

    def abort(self) -> None:
        """Reset the connection at once."""
        if not self.is_lost:
            self._network.send_reset(self)
            self._end(None)

    def lose(self, error: Exception) -> None:
        """Break the connection with `error`."""
        if not self.is_lost:
            self._network.send_reset(self)
            self._end(error)

    def reset_arrived(self) -> None:
        """Handle a reset from the other end."""
        self._end(ConnectionResetError("Connection reset by peer"))

    def _end(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._unread.clear()
        self._network.forget(self)
        if self._receiver is not None:
            self.scheduler.call_soon(self._receiver.connection_lost, error)

    # The receiving side

    def pause_reading(self) -> None:
        """Stop delivering bytes."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Deliver bytes again."""
        if not self._is_reading:
            self._is_reading = True
            if self._unread:
                self.scheduler.call_soon(self._read)

    def arrived(self, chunk: bytes | None) -> None:
        """Handle bytes from the peer; None is the end of its stream."""
        if self.is_lost:
            return
        self._unread.append(chunk)
        if len(self._unread) == 1 or self._is_reading:
            self._read()

    def _read(self) -> None:
        while self._unread and self._is_reading and not self.is_lost:
            chunk = self._unread.popleft()
            if chunk is None:
                if not (hasattr(self._receiver, "eof_received") and self._receiver.eof_received()):
                    self._end(None)
                return
            self._hand_over(chunk)

    def _hand_over(self, chunk: bytes) -> None:
        buffer = self._receiver.get_buffer()
        count = min(len(buffer), len(chunk))
        buffer[:count] = chunk[:count]
        if count < len(chunk):
            self._unread.appendleft(chunk[count:])
        self._receiver.buffer_updated(count)

    def next_arrival_us(self, wanted_us: int) -> int:
        """Return when a chunk due at `wanted_us` may arrive, not before the chunk
        sent before it.
        """
        self._last_arrival_us = max(wanted_us, self._last_arrival_us)
        return self._last_arrival_us


class SimNetwork:
    """The network between all hosts; each process has its own `HostNetwork`."""

    def __init__(self, entropy: Entropy, weather: Weather) -> None:
        self.weather = weather
        self.counters = NetworkCounters()
        self._entropy = entropy
        self._listeners: dict[tuple[str, int], SimListener] = {}
        # Host -> the contents of its certificate's file, None if it cannot be read.
        self.certificates: dict[str, str | None] = {}
        # (source, target) links that are cut.
        self._cuts: dict[tuple[str, str], None] = {}
        # (source, target) -> the largest extra delay, in microseconds.
        self._lags: dict[tuple[str, str], int] = {}
        # Open ends, in the order they were made; by identity, as an end has no other name.
        self._ends: dict[SimTransport, None] = {}
        self._next_port = FIRST_CLIENT_PORT

    # --- faults ------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Cut the link from one host to the other."""
        self._cuts[source, target] = None

    def heal(self, source: str, target: str) -> None:
        """Restore the link; what was held back arrives."""
        if self._cuts.pop((source, target), 0) is None:
            for end in list(self._ends):
                if end.host == source and end.peer[0] == target:
                    self._release(end)

    def slow(self, source: str, target: str, lag_us_max: int) -> None:
        """Delay traffic from one host to the other by up to `lag_us_max` microseconds more."""
        self._lags[source, target] = lag_us_max

    def lag_us(self, source: str, target: str) -> int:
        """Return the extra delay of the next message."""
        lag_us_max = self._lags.get((source, target), 0)
        return self._entropy.random_below(lag_us_max) if lag_us_max else 0

    def heal_all(self) -> None:
        """Restore all links, cut or slow."""
        self._lags.clear()
        for source, target in list(self._cuts):
            self.heal(source, target)

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether the link from one host to the other is cut."""
        return (source, target) in self._cuts

    def reset_some(self, index: int) -> None:
        """Break one connection."""
        ends = list(self._ends)
        if ends:
            self.counters.resets += 1
            ends[index % len(ends)].lose(ConnectionResetError("Connection reset by peer"))

    def process_ended(self, scheduler: NodeScheduler, *, silently: bool) -> None:
        """Close a dead process's listeners and, unless `silently`, reset its connections."""
        for key, listener in list(self._listeners.items()):
            if listener.scheduler is scheduler:
                del self._listeners[key]
        for end in [end for end in self._ends if end.scheduler is scheduler]:
            end.is_lost = True
            if not silently:
                self.send_reset(end)
                del self._ends[end]

    def machine_is_up(self, host: str) -> None:
        """Bring a machine up again: it resets the connections of processes that died."""
        for end in [end for end in self._ends if end.host == host and end.scheduler.is_dead]:
            self.send_reset(end)
            del self._ends[end]

    # --- connections -------------------------------------------------------------------------

    def listen(self, listener: SimListener) -> None:
        """Accept connections to the listener's address."""
        self._listeners[listener.host, listener.port] = listener

    def listener(self, host: str, port: int) -> SimListener | None:
        """Return the listener at an address."""
        return self._listeners.get((host, port))

    def connect(
        self, node: NodeScheduler, host: str, address: tuple[str, int],
        on_connection: Callable[[Transport], Receiver], timeout_ms: int, *, has_tls: bool = False,
    ) -> Future[Transport]:  # fmt: skip
        """Connect from `host` to `address`; a handshake takes another round trip."""
        future: Future[Transport] = node.future()
        name = f"{address[0]}:{address[1]}"

        def give_up() -> None:
            if not future.done:
                future.set_error(TimedOutError(f"no connection to {name} in {timeout_ms} ms"))

        node.call_later(timeout_ms, give_up)

        def knock() -> None:
            if future.done:
                return
            if self.is_cut(host, address[0]) or self.is_cut(address[0], host):
                node.call_later(200, knock)
                return
            listener = self._listeners.get(address)
            if listener is None or not listener.is_open or listener.scheduler.is_dead:
                future.set_error(UnreachableError(f"{name}: Connection refused"))
                return
            if has_tls != (listener.certificate is not None):
                future.set_error(UnreachableError(f"{name}: only one side speaks TLS"))
                return
            if has_tls:
                self.counters.tls_handshakes += 1
                node.call_later_us(2 * self._delay_us(), arrive, listener)
            else:
                arrive(listener)

        def arrive(listener: SimListener) -> None:
            listener.arrive(lambda: self._establish(node, host, listener, on_connection, future))

        node.call_later_us(self._delay_us(), knock)
        return future

    def _establish(
        self, node: NodeScheduler, host: str, listener: SimListener,
        on_connection: Callable[[Transport], Receiver], future: Future[Transport],
    ) -> None:  # fmt: skip
        if future.done or node.is_dead:
            return
        self._next_port += 1
        self.counters.connections += 1
        ours = SimTransport(self, node, host, (listener.host, listener.port))
        theirs = SimTransport(self, listener.scheduler, listener.host, (host, self._next_port))
        session = None if listener.certificate is None else TlsSession(*SESSION, None)
        ours.other, theirs.other = theirs, ours
        self._ends[ours] = None
        self._ends[theirs] = None

        def accept() -> None:
            receiver = listener.accept(theirs)
            if receiver is None:
                theirs.abort()
            else:
                theirs.attach(receiver)
                _secure(receiver, session)

        listener.scheduler.call_soon(accept)
        receiver = on_connection(ours)
        ours.attach(receiver)
        _secure(receiver, session)
        future.set_result(ours)

    def forget(self, end: SimTransport) -> None:
        """Remove a closed end, unless bytes that it sent are still held back."""
        if not end.held:
            self._ends.pop(end, None)

    # --- bytes -------------------------------------------------------------------------------

    def transmit(self, end: SimTransport, chunk: bytes | None) -> None:
        """Deliver a chunk (None: the end) to the other side."""
        other, weather, entropy = end.other, self.weather, self._entropy
        assert other is not None
        if chunk is not None and entropy.random_below(1000) < weather.reset_chance:
            self.counters.resets += 1
            end.is_broken = True
            end.scheduler.call_soon(end.lose, ConnectionResetError("Connection reset by peer"))
            return
        pieces = [chunk]
        if chunk and len(chunk) > 1 and entropy.random_below(1000) < weather.split_chance:
            at = 1 + entropy.random_below(len(chunk) - 1)
            pieces = [chunk[:at], chunk[at:]]
            self.counters.splits += 1
        for piece in pieces:
            if end.held:
                end.held.append(piece)
            else:
                self._send_piece(end, piece)

    def _send_piece(self, end: SimTransport, piece: bytes | None) -> None:
        other = end.other
        assert other is not None
        now_us = other.scheduler.world.now_us
        lag_us = self.lag_us(end.host, other.host) if self._lags else 0
        arrival_us = end.next_arrival_us(now_us + self._delay_us() + lag_us)
        other.scheduler.call_later_us(arrival_us - now_us, self._arrive, end, piece)

    def _arrive(self, end: SimTransport, piece: bytes | None) -> None:
        other = end.other
        assert other is not None
        if end.held or self.is_cut(end.host, other.host):
            self.counters.held += 1
            end.held.append(piece)
            return
        self.counters.deliveries += 1
        if other.is_lost:
            self.send_reset(other)
        else:
            other.arrived(piece)

    def _release(self, end: SimTransport) -> None:
        held, end.held = list(end.held), deque()
        for piece in held:
            self._send_piece(end, piece)

    def send_reset(self, end: SimTransport) -> None:
        """Reset the other side's end."""
        other = end.other
        if other is not None and not other.is_lost and not other.scheduler.is_dead:
            other.scheduler.call_later_us(self._delay_us(), self._arrive_reset, end)

    def _arrive_reset(self, end: SimTransport) -> None:
        other = end.other
        assert other is not None
        if self.is_cut(end.host, other.host):
            other.scheduler.call_later(100, self._arrive_reset, end)
        else:
            other.reset_arrived()

    def _delay_us(self) -> int:
        weather, entropy = self.weather, self._entropy
        if entropy.random_below(1000) < weather.slow_chance:
            return entropy.random_below(weather.slow_us_max) + weather.delay_us_min
        spread = weather.delay_us_max - weather.delay_us_min + 1
        return weather.delay_us_min + entropy.random_below(spread)


def _secure(receiver: Receiver, session: TlsSession | None) -> None:
    if session is not None and hasattr(receiver, "when_secured"):
        receiver.when_secured(session)


class HostNetwork:
    """The Network of one process on a host; see `kctl.runtime.network`."""

    def __init__(self, network: SimNetwork, scheduler: NodeScheduler, host: str) -> None:
        self._network = network
        self._scheduler = scheduler
        self.host = host

    def listen(
        self,
        host: str,
        port: int,
        on_connection: Accept,
        *,
        send_buffer_bytes: int = -1,
        tls: TlsSettings | None = None,
        is_urgent: bool = False,
    ) -> SimListener:
        """Accept connections to this host, whatever address is given; nothing is encrypted."""
        del host, send_buffer_bytes, is_urgent
        listener = SimListener(self.host, port, self._scheduler, on_connection)
        if tls is not None:
            listener.read_certificate = self._read_certificate
            listener.certificate = self._read_certificate()
        self._network.listen(listener)
        return listener

    def _read_certificate(self) -> str:
        found = self._network.certificates.get(self.host, FIRST_CERTIFICATE)
        if found is None:
            raise UsageError("the certificate cannot be read")
        return found

    def load_tls(self, tls: TlsSettings) -> Future[None]:
        """Read the certificate; the Future fails with UsageError if it is unusable."""
        del tls
        done: Future[None] = self._scheduler.future()
        try:
            self._read_certificate()
        except UsageError as error:
            done.set_error(error)
        else:
            done.set_result(None)
        return done

    def local_host_name(self) -> str:
        """Return the host's name."""
        return self.host

    def connect(
        self,
        host: str,
        port: int,
        on_connection: Callable[[Transport], Receiver],
        timeout_ms: int,
        *,
        tls: TlsSettings | None = None,
    ) -> Future[Transport]:
        """Connect; the Future fails with UnreachableError or TimedOutError."""
        return self._network.connect(
            self._scheduler, self.host, (host, port), on_connection, timeout_ms,
            has_tls=tls is not None,
        )  # fmt: skip

    def substitute_tls(self, given: TlsSettings, used: TlsSettings) -> Future[None]:
        """Do nothing: there are no files."""
        del given, used
        done: Future[None] = self._scheduler.future()
        done.set_result(None)
        return done

    def reload_tls(self) -> None:
        """Do nothing: there are no files."""
