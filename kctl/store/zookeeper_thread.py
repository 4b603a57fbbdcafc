"""kazoo's thread: its callbacks, its writes, and the gate that ties both to the loop.

kazoo sends heartbeats on its own thread. Without the gate it would keep the session of a broker
whose event loop is blocked: the broker serves nothing, and no other broker takes over. So nothing
is written to ZooKeeper, heartbeats and reconnections included, unless the loop has run within
FRESH_MS. If it has not, the thread posts a pulse to the loop and waits for it. A session therefore
ends one session timeout after its loop stopped, give or take FRESH_MS.

A server that accepts connections and closes them before the session is confirmed rejects this
session: it has lost its data, and with them the transaction that this client saw last. kazoo would
retry indefinitely. After a session timeout of that the session is given up, and a new one begins.

ZooKeeper: org.apache.zookeeper.ClientCnxn.
"""

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import SessionExpiredError  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]

from kctl.runtime.runtime import Runtime
from kctl.store.zookeeper_sockets import BufferedConnection, Wakeups

# The loop counts as running for so long after its last sign of life.
FRESH_MS = 100
# How often a thread that waits for the loop checks whether the store is being closed.
_GATE_POLL_SECONDS = 0.05
# Of so many waits that could be left out, one asks the system: neither the requests of the loop nor
# the answers of the server wait longer for each other.
_LEFT_OUT_MAX = 16

Link = Callable[[Any], None]


class LoopGate:
    """Lets kazoo's thread write only while the loop runs."""

    def __init__(self, runtime: Runtime, make_event: Callable[[], Any]) -> None:
        self._clock = runtime.clock
        self._post = runtime.scheduler.call_soon_threadsafe
        self._make_event = make_event
        self._heard_ms = self._clock.monotonic_ms()
        # Set when the session is being closed.
        self._open = make_event()

    def note_turn(self) -> None:
        """Note that the loop runs; called on the loop."""
        self._heard_ms = self._clock.monotonic_ms()

    def open_permanently(self) -> None:
        """Stop waiting for the loop: the session is being closed."""
        self._open.set()

    def wait(self) -> None:
        """Return once the loop is known to run; called on kazoo's thread."""
        if self._clock.monotonic_ms() - self._heard_ms <= FRESH_MS:
            return
        pulse = self._make_event()
        self._post(self._pulse, pulse)
        while not (self._open.is_set() or pulse.wait(_GATE_POLL_SECONDS)):
            pass

    def _pulse(self, pulse: Any) -> None:
        self.note_turn()
        pulse.set()


class InlineHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs kazoo's callbacks immediately on its connection thread, in order of arrival.

    `ended` is called on that thread when it ends, with the error that ended it, or None.
    """

    # kazoo reads this to decide whether a callback goes through a queue.
    running = False

    def __init__(
        self,
        runtime: Runtime,
        session_timeout_ms: int,
        ended: Callable[[BaseException | None], object],
    ) -> None:
        super().__init__()
        self.gate = LoopGate(runtime, self.event_object)
        # Why the last attempt to connect failed.
        self.last_failure = ""
        # The session timeout that the server granted; 0 before the first session.
        self.granted_timeout_ms = 0
        self._clock = runtime.clock
        self._session_timeout_ms = session_timeout_ms
        self._ended = ended
        self._next_link: Link | None = None
        # Waits for sockets that have been left out since the last one.
        self._left_out = 0
        # When a server first accepted the connection that is not confirmed yet; None: no server.
        self._unconfirmed_since_ms: int | None = None

    def start(self) -> None:
        """Start nothing: there are no workers."""

    def stop(self) -> None:
        """Stop nothing: there are no workers."""

    def dispatch_callback(self, callback: Any) -> None:
        """Run an event's callback."""
        callback.func(*callback.args)

    def link_next(self, link: Link | None) -> None:
        """Link the next result that is created, before its request can be sent."""
        self._next_link = link

    def async_result(self) -> Any:
        """Return a result, linked if `link_next` requested it."""
        result = super().async_result()
        link, self._next_link = self._next_link, None
        if link is not None:
            result.rawlink(link)
        return result

    def select(self, reading: Any, writing: Any, *others: Any) -> Any:
        """Wait for sockets; before a write, for the loop too.

        Nothing is asked of the system where something is known to be readable.
        """
        if writing:
            self.gate.wait()
        known = [it for it in reading if it.is_ready]
        if known and self._left_out < _LEFT_OUT_MAX:
            self._left_out += 1
            return known, [], []
        self._left_out = 0
        if known:
            ready = super().select(reading, writing, [], 0)
            return [it for it in reading if it in known or it in ready[0]], *ready[1:]
        ready = super().select(reading, writing, *others)
        if not any(ready):
            # The server is silent, which is not a rejection.
            self._unconfirmed_since_ms = None
        return ready

    def create_socket_pair(self) -> Any:
        """Return both ends of what wakes kazoo's thread, which are one object."""
        reader, writer = super().create_socket_pair()
        wakeups = Wakeups(reader, writer, self.lock_object())
        return wakeups, wakeups

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connect to a server; kazoo's SessionExpiredError if servers reject the session."""
        self.gate.wait()
        now_ms, since_ms = self._clock.monotonic_ms(), self._unconfirmed_since_ms
        if since_ms is not None and now_ms - since_ms > self._session_timeout_ms:
            self._unconfirmed_since_ms = None
            raise SessionExpiredError("servers close the connection before the session is resumed")
        try:
            made = super().create_connection(*args, **options)
        except OSError as error:
            self._unconfirmed_since_ms = None
            self.last_failure = error.strerror or str(error)
            raise
        except Exception as error:
            self.last_failure = str(error)
            raise
        self.last_failure = "it closes the connection without an answer"
        if since_ms is None:
            self._unconfirmed_since_ms = now_ms
        return BufferedConnection(made)

    def note_granted_timeout(self, client: Any) -> None:
        """Keep the session timeout that the server grants, which kazoo only waits by."""
        connection = client._connection  # noqa: SLF001 - kazoo has no other place for it
        connect = connection._connect  # noqa: SLF001

        def note(*args: Any) -> Any:
            read_timeout_ms, connect_timeout_ms = connect(*args)
            # kazoo reads for two thirds of the session timeout.
            self.granted_timeout_ms = round(read_timeout_ms * 3 / 2)
            return read_timeout_ms, connect_timeout_ms

        connection._connect = note  # noqa: SLF001

    def session_confirmed(self) -> None:
        """Note that a server has confirmed the session; called on kazoo's thread."""
        self._unconfirmed_since_ms = None

    def spawn(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run kazoo's thread, and report its end."""

        def run() -> None:
            failure: BaseException | None = None
            try:
                function(*args, **options)
            except BaseException as error:  # noqa: BLE001 - any error ends the session
                failure = error
            self._ended(failure)

        return super().spawn(run)

    def run_aside(self, job: Callable[[], object]) -> None:
        """Run `job`, which may wait for kazoo's thread, on a separate thread."""
        super().spawn(job)
