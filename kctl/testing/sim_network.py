"""SimNetwork: byte streams between hosts, with everything that a network does to them.

A connection is two pipes. What is sent arrives in order, after a delay, in pieces of any size.
Links between two hosts can be cut, one way or both: what was sent is held back, as TCP would send
it again, and arrives after the cut. Any connection can be reset: what is on its way is lost, and
either end hears of it in its own time. A process that is killed resets its connections; a machine
that loses power says nothing, and its peers learn of it only when it is up again, or by waiting.

Invariants: bytes of one direction never overtake each other; a Receiver is never called inside
`send` or another Receiver's call; `connection_lost` comes once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kctl.errors import KctlError, TimedOutError, UnreachableError
from kctl.runtime.disk import FileSlice
from kctl.runtime.entropy import Entropy
from kctl.runtime.future import Future
from kctl.runtime.network import Part, Receiver, Transport
from kctl.testing.sim_scheduler import NodeScheduler

FIRST_CLIENT_PORT = 40_000


@dataclass(slots=True)
class Weather:
    """How bad the network is; delays in microseconds, chances in thousandths."""

    delay_us_min: int = 50
    delay_us_max: int = 1_000
    # A delivery that takes up to this long instead.
    slow_us_max: int = 50_000
    slow_chance: int = 10
    # A delivery that comes in two pieces.
    split_chance: int = 50
    # A delivery at which the connection is reset instead.
    reset_chance: int = 0


@dataclass(slots=True)
class NetworkCounters:
    """What happened."""

    connections: int = 0
    deliveries: int = 0
    splits: int = 0
    resets: int = 0
    held: int = 0


Accept = Callable[[Transport], Receiver | None]


@dataclass(slots=True)
class SimListener:
    """A listening socket."""

    host: str
    port: int
    scheduler: NodeScheduler
    accept: Accept
    is_open: bool = True
    is_accepting: bool = True
    _waiting: "deque[Callable[[], object]]" = field(default_factory=deque)

    def arrive(self, connect: Callable[[], object]) -> None:
        """A connection comes: now, or when there is room."""
        if self.is_accepting:
            connect()
        else:
            self._waiting.append(connect)

    def pause_accepting(self) -> None:
        """Leave new connections waiting."""
        self.is_accepting = False

    def resume_accepting(self) -> None:
        """Take them again."""
        self.is_accepting = True
        while self._waiting and self.is_accepting:
            self._waiting.popleft()()

    def close(self) -> None:
        """Refuse from now on."""
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
        # Chunks that arrived and were not read, as reading is paused; None: the peer's end.
        self._unread: deque[bytes | None] = deque()
        self._is_reading = True
        self._is_closing = False
        # No chunk arrives before the one sent before it.
        self._last_arrival_us = 0
        # Chunks that wait for the end of a cut.
        self.held: deque[bytes | None] = deque()

    def attach(self, receiver: Receiver) -> None:
        """Whom to tell."""
        self._receiver = receiver
        if self.is_lost:
            self.scheduler.call_soon(receiver.connection_lost, None)

    # The sending side

    def send(self, parts: Sequence[Part]) -> None:
        """Send `parts`: they are read here and now, as a kernel with room would."""
        if self.is_lost or self._is_closing:
            return
        try:
            data = b"".join(
                part.file.pread(part.length, part.position) if isinstance(part, FileSlice) else part
                for part in parts
            )
        except KctlError as error:
            self.lose(error)
            return
        if len(data) != sum(map(len, parts)):
            self.lose(OSError("a file ends before what was promised"))
            return
        self._network.transmit(self, data)

    def unsent_bytes(self) -> int:
        """The kernel has room."""
        return 0

    def when_sent(self, callback: Callable[[], object]) -> None:
        """At once."""
        if not self.is_lost:
            self.scheduler.call_soon(callback)

    def close(self) -> None:
        """Send the end after what was sent."""
        if self.is_lost:
            return
        self._network.transmit(self, None)
        self._end(None)

    def abort(self) -> None:
        """Close at once."""
        if not self.is_lost:
            self._network.send_reset(self)
            self._end(None)

    def lose(self, error: Exception) -> None:
        """The connection broke."""
        if not self.is_lost:
            self._network.send_reset(self)
            self._end(error)

    def reset_arrived(self) -> None:
        """The other end is gone."""
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
        """Hand over no more bytes."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Hand over bytes again."""
        if not self._is_reading:
            self._is_reading = True
            if self._unread:
                self.scheduler.call_soon(self._read)

    def arrived(self, chunk: bytes | None) -> None:
        """Bytes, or the peer's end, came in."""
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
        """When a chunk may arrive that would like to at `wanted_us`."""
        self._last_arrival_us = max(wanted_us, self._last_arrival_us)
        return self._last_arrival_us


class SimNetwork:
    """All hosts; a process gets its own `HostNetwork`."""

    def __init__(self, entropy: Entropy, weather: Weather) -> None:
        self.weather = weather
        self.counters = NetworkCounters()
        self._entropy = entropy
        self._listeners: dict[tuple[str, int], SimListener] = {}
        # (from, to) that nothing passes.
        self._cuts: dict[tuple[str, str], None] = {}
        # (from, to) -> microseconds that everything takes longer, at most.
        self._lags: dict[tuple[str, str], int] = {}
        # Open ends, in the order made; by identity, as an end has no other name.
        self._ends: dict[SimTransport, None] = {}
        self._next_port = FIRST_CLIENT_PORT

    # --- faults ------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one host to the other."""
        self._cuts[source, target] = None

    def heal(self, source: str, target: str) -> None:
        """Let all pass again; what was held back arrives."""
        if self._cuts.pop((source, target), 0) is None:
            for end in list(self._ends):
                if end.host == source and end.peer[0] == target:
                    self._release(end)

    def slow(self, source: str, target: str, lag_us_max: int) -> None:
        """Let what passes from one host to the other take up to so much longer."""
        self._lags[source, target] = lag_us_max

    def lag_us(self, source: str, target: str) -> int:
        """How much longer the next message takes."""
        lag_us_max = self._lags.get((source, target), 0)
        return self._entropy.random_below(lag_us_max) if lag_us_max else 0

    def heal_all(self) -> None:
        """No link is cut, none is slow."""
        self._lags.clear()
        for source, target in list(self._cuts):
            self.heal(source, target)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing passes from one host to the other."""
        return (source, target) in self._cuts

    def reset_some(self, index: int) -> None:
        """Break one connection."""
        ends = list(self._ends)
        if ends:
            self.counters.resets += 1
            ends[index % len(ends)].lose(ConnectionResetError("Connection reset by peer"))

    def process_ended(self, scheduler: NodeScheduler, *, silently: bool) -> None:
        """A process is gone: its listeners close, and its peers are told (or not)."""
        for key, listener in list(self._listeners.items()):
            if listener.scheduler is scheduler:
                del self._listeners[key]
        for end in [end for end in self._ends if end.scheduler is scheduler]:
            end.is_lost = True
            if not silently:
                self.send_reset(end)
                del self._ends[end]

    def machine_is_up(self, host: str) -> None:
        """A machine that was down answers again: what it knows nothing of, it resets."""
        for end in [end for end in self._ends if end.host == host and end.scheduler.is_dead]:
            self.send_reset(end)
            del self._ends[end]

    # --- connections -------------------------------------------------------------------------

    def listen(self, listener: SimListener) -> None:
        """Take connections to the listener's address."""
        self._listeners[listener.host, listener.port] = listener

    def connect(
        self, node: NodeScheduler, host: str, address: tuple[str, int],
        on_connection: Callable[[Transport], Receiver], timeout_ms: int,
    ) -> Future[Transport]:  # fmt: skip
        """Connect from `host` to `address`."""
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
        ours.other, theirs.other = theirs, ours
        self._ends[ours] = None
        self._ends[theirs] = None

        def accept() -> None:
            receiver = listener.accept(theirs)
            if receiver is None:
                theirs.abort()
            else:
                theirs.attach(receiver)

        listener.scheduler.call_soon(accept)
        ours.attach(on_connection(ours))
        future.set_result(ours)

    def forget(self, end: SimTransport) -> None:
        """An end is closed; what it sent before may still be held back."""
        if not end.held:
            self._ends.pop(end, None)

    # --- bytes -------------------------------------------------------------------------------

    def transmit(self, end: SimTransport, chunk: bytes | None) -> None:
        """Have a chunk (None: the end) arrive at the other side."""
        other, weather, entropy = end.other, self.weather, self._entropy
        assert other is not None
        if chunk is not None and entropy.random_below(1000) < weather.reset_chance:
            self.counters.resets += 1
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
        """Tell the other side that this one is gone."""
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


class HostNetwork:
    """The Network of one process on a host; see `kctl.runtime.network`."""

    def __init__(self, network: SimNetwork, scheduler: NodeScheduler, host: str) -> None:
        self._network = network
        self._scheduler = scheduler
        self.host = host

    def listen(
        self, host: str, port: int, on_connection: Accept, *, send_buffer_bytes: int = -1
    ) -> SimListener:
        """Accept connections to this host, whatever name it is given."""
        del host, send_buffer_bytes
        listener = SimListener(self.host, port, self._scheduler, on_connection)
        self._network.listen(listener)
        return listener

    def local_host_name(self) -> str:
        """The host's name."""
        return self.host

    def connect(
        self,
        host: str,
        port: int,
        on_connection: Callable[[Transport], Receiver],
        timeout_ms: int,
    ) -> Future[Transport]:
        """Connect; UnreachableError or TimedOutError through the Future."""
        return self._network.connect(
            self._scheduler, self.host, (host, port), on_connection, timeout_ms
        )
