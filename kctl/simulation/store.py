"""SimStore: a broker's session with a remote metadata store, as with ZooKeeper.

The tree is the real one. Each session has two pipes between the tree and its client: calls go up;
responses and watch events come down, each in order and after a delay. A cut link holds them back. A
session expires if nothing arrives from it for its timeout, whether its owner is dead or only
unreachable; the owner learns of it once it is reconnected.

Like ZooKeeper's client, a SimStore that receives nothing for two thirds of the timeout is
SUSPENDED: pending calls end with ConnectionLossError, whether or not they were, or will be, carried
out.

ZooKeeper: org.apache.zookeeper.ClientCnxn, org.apache.zookeeper.server.SessionTrackerImpl.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kctl.errors import KctlError
from kctl.runtime.entropy import Entropy
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import next_turn
from kctl.simulation.network import SimNetwork
from kctl.simulation.scheduler import NodeScheduler, SimTimer
from kctl.store import znodes
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import ConnectionLossError, SessionExpiredError
from kctl.store.interface import ANY_VERSION, Operation, SessionState, Stat, Watch, WatchedEvent

STORE_HOST = "store"
# How often a pipe checks whether its link is still cut.
CUT_POLL_MS = 20
DELAY_US_MAX = 2_000


class _Session(EmbeddedStore):
    """The store's end of a session: it passes events into the pipe at once."""

    def _send(self, receiver: Callable[..., object], *args: object) -> None:
        receiver(*args)


class _Pipe:
    """Calls from one host to another: in order, delayed, and not while the link is cut."""

    def __init__(
        self, network: SimNetwork, target: NodeScheduler, ends: tuple[str, str], entropy: Entropy
    ) -> None:
        self._network = network
        self._target = target
        self._ends = ends
        self._entropy = entropy
        self._queue: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._last_us = 0

    def send(self, receiver: Callable[..., object], *args: object) -> None:
        """Call `receiver(*args)` at the other end."""
        now_us = self._target.world.now_us
        delay_us = 50 + self._entropy.random_below(DELAY_US_MAX) + self._network.lag_us(*self._ends)
        self._last_us = max(self._last_us, now_us + delay_us)
        self._queue.append((receiver, args))
        self._target.call_later_us(self._last_us - now_us, self._arrive)

    def _arrive(self) -> None:
        if self._network.is_cut(*self._ends):
            self._target.call_later(CUT_POLL_MS, self._arrive)
            return
        receiver, args = self._queue.popleft()
        receiver(*args)


class SimStoreServer:
    """The machine that has the tree. It never fails; it may be unreachable, or lose its data until
    they are restored.
    """

    def __init__(self, runtime: Runtime, scheduler: NodeScheduler, entropy: Entropy) -> None:
        self.runtime = runtime
        self.scheduler = scheduler
        self.entropy = entropy
        self.database = ZnodeDatabase.in_memory(runtime)
        # Sessions that expired.
        self.expired = 0
        self._timers: dict[_Session, SimTimer] = {}
        # The tree that was lost; None while the tree is intact.
        self._lost: ZnodeDatabase | None = None

    def lose_data(self) -> None:
        """Expire all sessions and replace the tree by an empty one."""
        if self._lost is None:
            self._expire_all()
            self._lost, self.database = self.database, ZnodeDatabase.in_memory(self.runtime)

    def restore_data(self) -> None:
        """Expire all sessions and restore the tree that was lost."""
        if self._lost is not None:
            self._expire_all()
            self.database, self._lost = self._lost, None

    def _expire_all(self) -> None:
        for session in list(self._timers):
            self.expire(session)

    def open_session(self) -> _Session:
        """Return a new session with the tree; call `touch` to keep it alive."""
        return _Session(self.runtime, self.database)

    def touch(self, session: _Session, timeout_ms: int) -> None:
        """Restart the session's timeout after a sign of life."""
        timer = self._timers.pop(session, None)
        if timer is not None:
            timer.cancel()
        self._timers[session] = self.scheduler.call_later(timeout_ms, self.expire, session)

    def controller_id(self) -> int:
        """Return the controller's broker id according to the tree; -1 if there is none."""
        node = self.database.tree.nodes.get(znodes.CONTROLLER)
        return -1 if node is None else znodes.decode_controller(node.data)

    def forget(self, session: _Session) -> None:
        """Stop the timeout of a session that was closed."""
        timer = self._timers.pop(session, None)
        if timer is not None:
            timer.cancel()

    def expire(self, session: _Session) -> None:
        """Expire the session."""
        self.forget(session)
        self.expired += 1
        # The session may have expired before.
        with suppress(SessionExpiredError):
            self.database.expire_session(session.session_id)


class SimStore:
    """A MetadataStore; see the module and `kctl.store.interface`."""

    def __init__(
        self, server: SimStoreServer, network: SimNetwork, node: NodeScheduler, host: str,
        timeout_ms: int,
    ) -> None:  # fmt: skip
        """Begin a session at once; it expires `timeout_ms` after the last sign of life."""
        self._server = server
        self._node = node
        self._timeout_ms = timeout_ms
        self._up = _Pipe(network, server.scheduler, (host, STORE_HOST), server.entropy)
        self._down = _Pipe(network, node, (STORE_HOST, host), server.entropy)
        self._listeners: list[Callable[[SessionState], object]] = []
        self._pending: dict[int, tuple[Future[Any], str]] = {}
        self._last_call = 0
        self._state = SessionState.CONNECTED
        self._is_closed = False
        self._heard_ms = node.world.now_ms
        # The same watch must be the same for the tree when it is set again.
        self._wrapped: dict[Watch, Watch] = {}
        self.session = self._begin()
        self._session_id = self.session.session_id
        self._ping()

    @property
    def session_id(self) -> int:
        """Return the current session's id."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """Return the session's timeout."""
        return self._timeout_ms

    # Its client never ends on its own.
    failure: KctlError | None = None

    # --- the session

    def _begin(self) -> _Session:
        session = self._server.open_session()
        session.on_session_state(lambda state: self._down.send(self._session_changed, state))
        self._server.touch(session, self._timeout_ms)
        return session

    def _ping(self) -> None:
        if self._is_closed:
            return
        self._node.call_later(self._timeout_ms // 3, self._ping)
        silent_ms = self._node.world.now_ms - self._heard_ms
        if silent_ms > self._timeout_ms * 2 // 3 and self._state is SessionState.CONNECTED:
            self._suspend()
        self._up.send(self._pinged, self.session)

    def _pinged(self, session: _Session) -> None:
        # At the store.
        try:
            session.exists("/").result()
        except SessionExpiredError:
            return  # The owner has been notified.
        self._server.touch(session, self._timeout_ms)
        self._down.send(self._heard, session)

    def _heard(self, session: _Session) -> None:
        if session is not self.session or self._is_closed:
            return
        self._heard_ms = self._node.world.now_ms
        if self._state is SessionState.SUSPENDED:
            self._move_to(SessionState.CONNECTED)

    def _suspend(self) -> None:
        self._move_to(SessionState.SUSPENDED)
        self._fail_pending(ConnectionLossError)

    def _fail_pending(self, error: type[ConnectionLossError] | type[SessionExpiredError]) -> None:
        pending, self._pending = self._pending, {}
        for future, path in pending.values():
            future.set_error(error(path))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and not self._is_closed:
            self._fail_pending(SessionExpiredError)
            self._move_to(state)

    def _move_to(self, state: SessionState) -> None:
        self._state = state
        for listener in self._listeners:
            listener(state)

    def turn(self) -> Future[None]:
        """Return a future that is done in the loop's next turn."""
        return next_turn(self._node)

    def on_session_state(self, listener: Callable[[SessionState], object]) -> None:
        """Call `listener` on the loop whenever the session's state changes."""
        self._listeners.append(listener)

    def new_session(self) -> Future[None]:
        """Start a new session after EXPIRED."""
        future: Future[None] = self._node.future()

        def begin() -> None:
            session = self._begin()
            self._down.send(begun, session)

        def begun(session: _Session) -> None:
            self.session, self._session_id = session, session.session_id
            self._heard_ms = self._node.world.now_ms
            self._move_to(SessionState.CONNECTED)
            future.set_result(None)

        self._up.send(begin)
        return future

    def close(self) -> Future[None]:
        """End the session, which deletes its ephemeral znodes."""
        self._is_closed = True
        session = self.session

        def end() -> None:
            self._server.forget(session)
            session.close()

        self._up.send(end)
        future: Future[None] = self._node.future()
        self._node.call_later(CUT_POLL_MS, future.set_result, None)
        return future

    # --- calls

    def _call(self, path: str, call: Callable[[_Session], Future[Any]]) -> Future[Any]:
        future: Future[Any] = self._node.future()
        if self._node.is_dead:
            return future
        if self._state is not SessionState.CONNECTED or self._is_closed:
            is_over = self._state is SessionState.EXPIRED or self._is_closed
            future.set_error((SessionExpiredError if is_over else ConnectionLossError)(path))
            return future
        self._last_call += 1
        self._pending[self._last_call] = (future, path)
        self._up.send(self._serve, self.session, self._last_call, call)
        return future

    def _serve(
        self, session: _Session, number: int, call: Callable[[_Session], Future[Any]]
    ) -> None:
        # At the store: results are ready at once.
        try:
            answered: tuple[Any, BaseException | None] = (call(session).result(), None)
        except KctlError as error:
            answered = (None, error)
        self._down.send(self._answered, session, number, *answered)

    def _answered(
        self, session: _Session, number: int, value: Any, error: BaseException | None
    ) -> None:
        self._heard(session)
        future, _ = self._pending.pop(number, (None, ""))
        if future is None:
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_error(error)

    def _watch(self, watch: Watch | None) -> Watch | None:
        if watch is None:
            return None
        wrapped = self._wrapped.get(watch)
        if wrapped is None:
            wrapped = self._wrapped[watch] = partial(self._fired, watch)
        return wrapped

    def _fired(self, watch: Watch, event: WatchedEvent) -> None:
        # At the store.
        self._down.send(watch, event)

    # --- MetadataStore

    def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False
    ) -> Future[tuple[str, Stat]]:
        """Create a znode."""
        return self._call(
            path, lambda it: it.create(path, data, ephemeral=ephemeral, sequence=sequence)
        )

    def get(self, path: str, watch: Watch | None = None) -> Future[tuple[bytes, Stat]]:
        """Return data and Stat; raise NoNodeError."""
        wrapped = self._watch(watch)
        return self._call(path, lambda it: it.get(path, wrapped))

    def exists(self, path: str, watch: Watch | None = None) -> Future[Stat | None]:
        """Return Stat, or None; the watch is set either way."""
        wrapped = self._watch(watch)
        return self._call(path, lambda it: it.exists(path, wrapped))

    def children(self, path: str, watch: Watch | None = None) -> Future[list[str]]:
        """Return names of the children, sorted; raise NoNodeError."""
        wrapped = self._watch(watch)
        return self._call(path, lambda it: it.children(path, wrapped))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Future[Stat]:
        """Replace the data."""
        return self._call(path, lambda it: it.set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Future[None]:
        """Delete a znode."""
        return self._call(path, lambda it: it.delete(path, version))

    def sync(self, path: str) -> Future[None]:
        """Return once the store has answered: it has one tree."""
        return self._call(path, lambda it: it.sync(path))

    def multi(self, operations: Sequence[Operation]) -> Future[list[Stat | str | None]]:
        """Apply all operations or none."""
        return self._call("", lambda it: it.multi(operations))
