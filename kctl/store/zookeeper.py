"""ZooKeeperStore: a session with a real ZooKeeper ensemble, as a MetadataStore, over kazoo.

kazoo has its own thread. Everything that it delivers (responses, events, states) is posted to the
loop in the order in which it arrived on the connection, from that one thread: responses are linked
before their request is sent, and nothing passes through kazoo's worker queues, of which one is for
events and one for responses and neither waits for the other. So ZooKeeper's guarantee holds: a
watch fires before its owner sees the change.

kazoo forgets watches when a connection drops although the session continues. This store keeps them,
reads each one's znode before any other request on the next connection, and fires those that missed
a change.

The session depends on the loop: see `zookeeper_thread`. If the loop was blocked for so long that
the session may have ended, the session counts as SUSPENDED until the server has responded.

kazoo takes 70 ms to import: import this module only when it is needed.

Kafka 2.7: kafka.zookeeper.ZooKeeperClient.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any

from kazoo.client import KazooClient, KazooState  # type: ignore[import-untyped]
from kazoo.exceptions import ConfigurationError  # type: ignore[import-untyped]

from kctl.errors import KctlError, UnreachableError, UsageError
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import next_turn
from kctl.store import errors
from kctl.store.errors import ConnectionLossError, MultiError, SessionExpiredError, StoreError
from kctl.store.interface import (
    ANY_VERSION,
    EventType,
    Operation,
    SessionState,
    Stat,
    Watch,
    WatchedEvent,
)
from kctl.store.watches import Armed, WatchTable
from kctl.store.zookeeper_answers import multi_results, store_error
from kctl.store.zookeeper_calls import commit, missed_data_event
from kctl.store.zookeeper_reports import SessionReports
from kctl.store.zookeeper_requests import ZooKeeperRequests
from kctl.store.zookeeper_thread import InlineHandler

# Kafka's zookeeper.session.timeout.ms.
SESSION_TIMEOUT_MS = 18_000
# How long a command waits for the first answer, whatever its own timeout: ZooKeeper answers within
# milliseconds, or is not there.
COMMAND_CONNECTION_MS_MAX = 5_000
# How often the server is pinged.
LOOK_MS = 1_000
# How long `close` waits for the server to end the session; otherwise it ends by its timeout.
CLOSE_MS_MAX = 2_000
# The longest wait between two attempts to connect, seconds.
_RETRY_MAX_DELAY_SECONDS = 1.0

_EVENT_TYPES = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.DATA_CHANGED,
    "CHILD": EventType.CHILDREN_CHANGED,
}


class _Session(Enum):
    """The state of the session.

    CONNECTING -> CONNECTED <-> SUSPENDED -> EXPIRED -> CONNECTED; any -> FAILED, CLOSED.
    """

    CONNECTING = auto()
    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()
    FAILED = auto()
    CLOSED = auto()


_OVER = (_Session.EXPIRED, _Session.FAILED, _Session.CLOSED)


class ZooKeeperStore:
    """Owns a kazoo client and its session."""

    def __init__(
        self,
        runtime: Runtime,
        connect_string: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        creates_chroot: bool = False,
    ) -> None:
        """Parse `connect_string`, `host:port,host:port/chroot`; raise UsageError. Nothing is sent
        before `connect`. Only brokers create a missing chroot: a client's is mistyped."""
        self._runtime = runtime
        self._scheduler = runtime.scheduler
        hosts, _, chroot = connect_string.partition("/")
        self._connect_string = connect_string
        self._chroot = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
        self._creates_chroot = creates_chroot
        self._session_timeout_ms = session_timeout_ms
        self._handler = InlineHandler(runtime, session_timeout_ms, self._thread_ended)
        self._reports = SessionReports(
            runtime.clock, runtime.trace, self._connect_string, session_timeout_ms
        )
        try:
            self._client = KazooClient(
                hosts,
                timeout=session_timeout_ms / 1000,
                handler=self._handler,
                connection_retry={
                    "max_tries": -1,
                    "delay": 0.05,
                    "max_delay": _RETRY_MAX_DELAY_SECONDS,
                },
                logger=_silent_logger(),
            )
        except (ConfigurationError, ValueError) as error:
            raise UsageError(f"no ZooKeeper connect string: {connect_string}: {error}") from None
        self._handler.note_granted_timeout(self._client)
        self._client.add_listener(self._kazoo_state_changed)
        self._session = _Session.CONNECTING
        self._session_id = 0
        # kazoo began a new session by itself; ours begins when `new_session` is called.
        self._has_new_session = False
        self._listeners: list[Callable[[SessionState], object]] = []
        self._watches = WatchTable()
        self._requests = ZooKeeperRequests(self._scheduler, self._handler)
        self._waiting_for_session: Future[None] | None = None
        self.failure: KctlError | None = None
        self._look_timer: Timer | None = None
        self._look_due_ms = 0
        # When the ping was sent that the server has not answered yet.
        self._asked_ms: int | None = None
        # The loop was blocked for so long that the server is asked whether the session is alive.
        self._is_suspect = False
        runtime.scheduler.watchdog.on_stall(self._loop_stalled)

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        connect_string: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = SESSION_TIMEOUT_MS,
        creates_chroot: bool = False,
    ) -> "ZooKeeperStore":
        """Return a connected store; raise UnreachableError, and UsageError for a chroot that does
        not exist."""
        store = cls(
            runtime,
            connect_string,
            session_timeout_ms=session_timeout_ms,
            creates_chroot=creates_chroot,
        )
        await store.connect(connection_timeout_ms)
        return store

    async def connect(self, timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        """Begin the session below the chroot; UnreachableError after `timeout_ms`, UsageError for
        a chroot that does not exist."""
        connected = self._wait_for_session()
        timer = self._scheduler.call_later(timeout_ms, self._give_up, connected)
        self._look_later()
        self._client.start_async()
        try:
            await connected
            timer.cancel()
            if self._chroot:
                await self._enter_chroot()
        except (UnreachableError, StoreError, UsageError):
            await self.close()
            raise

    def _give_up(self, connected: Future[None]) -> None:
        if not connected.done:
            connected.set_error(
                UnreachableError(
                    f"no answer from ZooKeeper at {self._connect_string}",
                    hint="is it running, and are host and port right?",
                )
            )

    async def _enter_chroot(self) -> None:
        if self._creates_chroot:
            await self._create_chroot()
        elif await self.exists(self._chroot) is None:
            raise UsageError(
                f"No {self._chroot} in ZooKeeper at {self._connect_string}",
                hint="check the chroot path: HOST:PORT/PATH; a broker creates it when it starts",
            )
        self._client.chroot = self._chroot

    async def _create_chroot(self) -> None:
        parts = self._chroot.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            try:
                await self.create("/" + "/".join(parts[:depth]), b"")
            except errors.NodeExistsError:
                continue

    @property
    def session_id(self) -> int:
        """Return the current session's id."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """Return the timeout that the server granted, at most what was asked for."""
        return self._handler.granted_timeout_ms or self._session_timeout_ms

    # --- calls

    def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False
    ) -> Future[tuple[str, Stat]]:
        """Create a znode; raise NodeExistsError, NoNodeError, NoChildrenForEphemeralsError."""
        return self._call(
            partial(
                self._client.create_async,
                path,
                data or None,
                ephemeral=ephemeral,
                sequence=sequence,
                include_data=True,
            ),
            path,
            lambda answer: (answer[0], Stat(*answer[1])),
        )

    def get(self, path: str, watch: Watch | None = None) -> Future[tuple[bytes, Stat]]:
        """Return data and Stat; raise NoNodeError."""

        def convert(answer: tuple[bytes | None, Any]) -> tuple[bytes, Stat]:
            stat = Stat(*answer[1])
            if watch is not None:
                self._watches.watch_data(path, 0, watch, stat.mzxid)
            return answer[0] or b"", stat

        return self._call(
            partial(self._client.get_async, path, self._event_if(watch)), path, convert
        )

    def exists(self, path: str, watch: Watch | None = None) -> Future[Stat | None]:
        """Return Stat, or None; the watch is set either way."""

        def convert(answer: Any) -> Stat | None:
            stat = None if answer is None else Stat(*answer)
            if watch is not None:
                self._watches.watch_data(path, 0, watch, stat.mzxid if stat else 0)
            return stat

        return self._call(
            partial(self._client.exists_async, path, self._event_if(watch)), path, convert
        )

    def children(self, path: str, watch: Watch | None = None) -> Future[list[str]]:
        """Return names of the children, sorted; raise NoNodeError."""

        def convert(answer: tuple[list[str], Any]) -> list[str]:
            if watch is not None:
                self._watches.watch_children(path, 0, watch, Stat(*answer[1]).pzxid)
            return sorted(answer[0])

        call = partial(
            self._client.get_children_async, path, self._event_if(watch), include_data=True
        )
        return self._call(call, path, convert)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Future[Stat]:
        """Replace the data; raise NoNodeError, BadVersionError."""
        return self._call(
            partial(self._client.set_async, path, data, version), path, lambda stat: Stat(*stat)
        )

    def delete(self, path: str, version: int = ANY_VERSION) -> Future[None]:
        """Delete a znode; raise NoNodeError, BadVersionError, NotEmptyError."""
        return self._call(
            partial(self._client.delete_async, path, version), path, lambda _answer: None
        )

    def multi(self, operations: Sequence[Operation]) -> Future[list[Stat | str | None]]:
        """Apply all operations or none; raise MultiError."""
        if not operations:
            done: Future[list[Stat | str | None]] = self._scheduler.future()
            done.set_result([])
            return done
        return self._call(
            partial(commit, self._client, operations),
            "",
            lambda answer: multi_results(answer, operations),
        )

    def sync(self, path: str) -> Future[None]:
        """Make later reads see what was written before."""
        return self._call(partial(self._client.sync_async, path), path, lambda _answer: None)

    def _call(
        self, call: Callable[[], Any], path: str, convert: Callable[[Any], Any]
    ) -> Future[Any]:
        future: Future[Any] = self._scheduler.future()
        if self._session in _OVER:
            future.set_error(SessionExpiredError())
        elif self._session is not _Session.CONNECTED:
            # kazoo must not queue it after the restored watches: the caller waits for CONNECTED.
            future.set_error(ConnectionLossError(path))
        else:
            self._requests.send(
                call,
                partial(self._answered, future, path, convert),
                lambda error: future.set_error(store_error(error, path)),
            )
        return future

    def _drop_unsent(self) -> None:
        """Fail the requests that were not sent before the connection or the session ended."""
        self._requests.drop(
            SessionExpiredError() if self._session in _OVER else ConnectionLossError()
        )

    def _answered(
        self, future: Future[Any], path: str, convert: Callable[[Any], Any], result: Any
    ) -> None:
        if future.done:
            # kazoo sets some errors twice.
            return
        if result.exception is not None:
            future.set_error(store_error(result.exception, path))
            return
        try:
            future.set_result(convert(result.value))
        except MultiError as error:
            future.set_error(error)

    # --- watches

    def _event_if(self, watch: Watch | None) -> Callable[[Any], None] | None:
        # The same callable each time, so that kazoo holds one watch per znode and kind.
        return None if watch is None else self._kazoo_event

    def _kazoo_event(self, event: Any) -> None:
        """Pass an event to the loop; called on kazoo's thread."""
        event_type = _EVENT_TYPES.get(event.type)
        if event_type is not None:
            self._scheduler.call_soon_threadsafe(self._fire, event_type, event.path)

    def _fire(self, event_type: EventType, path: str) -> None:
        for firing in self._watches.fire(event_type, path):
            firing.watch(firing.event)

    def _restore_watches(self) -> None:
        armed = list(self._watches.armed())
        self._watches.clear()
        for watch in armed:
            if watch.is_child_watch:
                call = partial(
                    self._client.get_children_async,
                    watch.path,
                    self._kazoo_event,
                    include_data=True,
                )
            else:
                call = partial(self._client.exists_async, watch.path, self._kazoo_event)
            self._requests.send(
                call,
                partial(self._watch_restored, watch),
                lambda _error, armed=watch: self._arm(armed),  # type: ignore[misc]
            )

    def _watch_restored(self, armed: Armed, result: Any) -> None:
        error = None if result.exception is None else store_error(result.exception, armed.path)
        missed = None
        if isinstance(error, errors.NoNodeError):
            missed = EventType.DELETED
        elif error is None and armed.is_child_watch:
            if Stat(*result.value[1]).pzxid > armed.zxid:
                missed = EventType.CHILDREN_CHANGED
        elif error is None:
            missed = missed_data_event(result.value, armed.zxid)
        if missed is not None:
            armed.watch(WatchedEvent(missed, armed.path))
        else:
            self._arm(armed)

    def _arm(self, armed: Armed) -> None:
        if armed.is_child_watch:
            self._watches.watch_children(armed.path, 0, armed.watch, armed.zxid)
        else:
            self._watches.watch_data(armed.path, 0, armed.watch, armed.zxid)

    # --- the session

    def turn(self) -> Future[None]:
        """Return a future that is done in the loop's next turn."""
        return next_turn(self._scheduler)

    def on_session_state(self, listener: Callable[[SessionState], object]) -> None:
        """Call `listener` on the loop whenever the session's state changes."""
        self._listeners.append(listener)

    def _kazoo_state_changed(self, state: str) -> None:
        """Pass a change of state to the loop; called on kazoo's thread."""
        client_id = self._client.client_id
        session_id = client_id[0] if client_id else 0
        if state == KazooState.CONNECTED:
            self._handler.session_confirmed()
        self._scheduler.call_soon_threadsafe(self._state_changed, state, session_id)

    def _state_changed(self, state: str, session_id: int) -> None:
        if self._session in (_Session.CLOSED, _Session.FAILED):
            return
        if state == KazooState.CONNECTED:
            self._session_id = session_id
            self._connected()
        elif state == KazooState.SUSPENDED:
            # Requests queued on this connection get no response; a ping on the next connection
            # does.
            self._is_suspect = False
            if self._session is _Session.CONNECTED:
                self._suspend()
        elif state == KazooState.LOST:
            self._has_new_session = False
            if self._session is not _Session.EXPIRED:
                self._session = _Session.EXPIRED
                self._drop_unsent()
                self._watches.clear()
                self._reports.expired(self._session_id)
                self._tell(SessionState.EXPIRED)

    def _suspend(self) -> None:
        self._session = _Session.SUSPENDED
        self._reports.suspended(
            "the event loop was blocked" if self._is_suspect else "connection lost"
        )
        self._drop_unsent()
        self._tell(SessionState.SUSPENDED)

    def _connected(self) -> None:
        if self._session is _Session.SUSPENDED:
            self._session = _Session.CONNECTED
            self._restore_watches()
            self._reports.resumed(self._session_id)
            self._tell(SessionState.CONNECTED)
        elif self._session is _Session.CONNECTING or self._waiting_for_session is not None:
            self._begin_session()
        else:
            self._has_new_session = True

    def _begin_session(self) -> None:
        self._has_new_session = False
        self._session = _Session.CONNECTED
        self._reports.began(self._session_id)
        self._tell(SessionState.CONNECTED)
        waiting, self._waiting_for_session = self._waiting_for_session, None
        if waiting is not None and not waiting.done:
            waiting.set_result(None)

    def _wait_for_session(self) -> Future[None]:
        if self._waiting_for_session is None:
            self._waiting_for_session = self._scheduler.future()
        return self._waiting_for_session

    def new_session(self) -> Future[None]:
        """Start a new session after EXPIRED, once there is a connection."""
        waiting = self._wait_for_session()
        if self._session is not _Session.EXPIRED:
            self._waiting_for_session = None
            waiting.set_result(None)
        elif self._has_new_session:
            self._begin_session()
        return waiting

    def _tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)

    # --- signs of life

    def _look_later(self) -> None:
        self._look_due_ms = self._runtime.clock.monotonic_ms() + LOOK_MS
        self._look_timer = self._scheduler.call_at(self._look_due_ms, self._look)

    def _look(self) -> None:
        """Ping the server every LOOK_MS, and report missing responses."""
        now_ms = self._runtime.clock.monotonic_ms()
        late_ms = now_ms - self._look_due_ms
        self._look_later()
        self._loop_stalled(late_ms / 1000)
        if self._session is _Session.CONNECTED:
            if self._asked_ms is None:
                self._ask()
            else:
                self._reports.unanswered(now_ms - self._asked_ms)
        elif self._session not in _OVER:
            self._reports.still_missing(self._handler.last_failure)

    def _ask(self) -> None:
        self._asked_ms = self._runtime.clock.monotonic_ms()
        self._requests.send(
            partial(self._client.exists_async, "/"), self._answered_sign, self._not_asked
        )

    def _not_asked(self, _error: Exception) -> None:
        self._asked_ms = None

    def _answered_sign(self, result: Any) -> None:
        self._asked_ms = None
        if result.exception is None:
            self._reports.answered()
            if self._is_suspect and self._session is _Session.SUSPENDED:
                self._connected()
            self._is_suspect = False

    def _loop_stalled(self, seconds: float) -> None:
        """Suspend the session after a stall of the loop in which the server may have ended it."""
        if self._session is _Session.CONNECTED and seconds * 1500 > self._session_timeout_ms:
            self._is_suspect = True
            self._suspend()
            self._ask()

    # --- the end

    def _thread_ended(self, error: BaseException | None) -> None:
        """Pass the end of kazoo's thread to the loop; called on that thread."""
        self._scheduler.call_soon_threadsafe(self._client_ended, error)

    def _client_ended(self, error: BaseException | None) -> None:
        if self._session in (_Session.CLOSED, _Session.FAILED):
            return
        why = "it gave up" if error is None else f"{type(error).__name__}: {error}"
        self.failure = UnreachableError(
            f"the client of ZooKeeper at {self._connect_string} has ended: {why}",
            hint="without a session this broker is unknown to the cluster: restart it",
        )
        self._session = _Session.FAILED
        self._drop_unsent()
        self._watches.clear()
        waiting, self._waiting_for_session = self._waiting_for_session, None
        if waiting is not None and not waiting.done:
            waiting.set_error(self.failure)
        self._tell(SessionState.FAILED)

    def close(self) -> Future[None]:
        """End the session, which deletes its ephemerals.

        Waits CLOSE_MS_MAX for a connected server, and not at all for an unreachable one: the
        session then ends by its timeout.
        """
        is_reached = self._session is _Session.CONNECTED
        self._session = _Session.CLOSED
        self._drop_unsent()
        if self._look_timer is not None:
            self._look_timer.cancel()
        self._handler.gate.open_permanently()
        closed: Future[None] = self._scheduler.future()
        timer = self._scheduler.call_later(CLOSE_MS_MAX if is_reached else 0, _settle, closed)
        closed.add_done_callback(lambda _: timer.cancel())
        post = self._scheduler.call_soon_threadsafe

        def stop() -> None:
            self._client.stop()
            # kazoo raises a plain Exception if its thread is still trying to connect.
            with suppress(Exception):
                self._client.close()
            post(_settle, closed)

        self._handler.run_aside(stop)
        return closed


def _settle(closed: Future[None]) -> None:
    if not closed.done:
        closed.set_result(None)


def _silent_logger() -> logging.Logger:
    # What kazoo would log about lost connections is reported as session states.
    logger = logging.getLogger("kctl.store.zookeeper")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
