"""ZooKeeperStore: a session with a real ZooKeeper ensemble, as a MetadataStore, over kazoo.

kazoo talks on a thread of its own. All that it tells (answers, events, states) is posted to the
loop in the order in which it came over the connection, from that one thread: answers are linked
before their request goes out, and nothing passes through kazoo's worker queues, of which one is
for events and one for answers and neither waits for the other. So ZooKeeper's promise holds: a
watch fires before its owner sees the change.

kazoo forgets watches when a connection drops although the session lives on. We keep them, ask
anew about each one's znode before anything else is sent over the next connection, and fire those
that missed something.

This is the only module that imports kazoo, which takes 70 ms: import it only when it is needed.

Kafka 2.7: kafka.zookeeper.ZooKeeperClient.
"""

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any

from kazoo.client import KazooClient, KazooState  # type: ignore[import-untyped]
from kazoo.exceptions import ConfigurationError, KazooException  # type: ignore[import-untyped]
from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]

from kctl.errors import UnreachableError, UsageError
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.store import errors
from kctl.store.errors import ConnectionLossError, MultiError, SessionExpiredError, StoreError
from kctl.store.interface import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    EventType,
    Operation,
    SessionState,
    Set,
    Stat,
    Watch,
    WatchedEvent,
)
from kctl.store.watches import Armed, WatchTable

# Kafka's zookeeper.session.timeout.ms.
SESSION_TIMEOUT_MS = 18_000
# A loop with no timer, connection or job to wait for takes itself for stuck: it cannot see that
# kazoo's thread may post. So there is always a timer.
_AWAKE_MS = 60_000
# The longest wait between two attempts to connect, seconds.
_RETRY_MAX_DELAY_SECONDS = 1.0

_EVENT_TYPES = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.DATA_CHANGED,
    "CHILD": EventType.CHILDREN_CHANGED,
}

# Names of kazoo's exceptions.
_ERRORS: dict[str, type[StoreError]] = {
    "NoNodeError": errors.NoNodeError,
    "NodeExistsError": errors.NodeExistsError,
    "BadVersionError": errors.BadVersionError,
    "NotEmptyError": errors.NotEmptyError,
    "NoChildrenForEphemeralsError": errors.NoChildrenForEphemeralsError,
    "BadArgumentsError": errors.BadArgumentsError,
    "SessionExpiredError": errors.SessionExpiredError,
    "SessionMovedError": errors.ConnectionLossError,
    "ConnectionLoss": errors.ConnectionLossError,
    "ConnectionClosedError": errors.ConnectionLossError,
    "NoAuthError": errors.AuthFailedError,
    "AuthFailedError": errors.AuthFailedError,
    # kazoo itself, of a path like "/a/../b".
    "ValueError": errors.BadArgumentsError,
}
# What a multi says of the operations that did not fail themselves.
_BYSTANDERS = ("RolledBackError", "RuntimeInconsistency")

Link = Callable[[Any], None]


class _Session(Enum):
    """Where we are with the ensemble.

    CONNECTING -> CONNECTED <-> SUSPENDED -> EXPIRED -> CONNECTED; any -> CLOSED.
    """

    CONNECTING = auto()
    CONNECTED = auto()
    SUSPENDED = auto()
    EXPIRED = auto()
    CLOSED = auto()


class _InlineHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Runs kazoo's callbacks at once on its connection thread, in the order things arrived."""

    # What kazoo asks to decide whether a callback goes through a queue.
    running = False

    def __init__(self) -> None:
        super().__init__()
        self._next_link: Link | None = None

    def start(self) -> None:
        """No workers."""

    def stop(self) -> None:
        """No workers."""

    def dispatch_callback(self, callback: Any) -> None:
        """An event."""
        callback.func(*callback.args)

    def link_next(self, link: Link | None) -> None:
        """Link the next result that is made, before its request can be on its way."""
        self._next_link = link

    def async_result(self) -> Any:
        """A result, linked if so asked."""
        result = super().async_result()
        link, self._next_link = self._next_link, None
        if link is not None:
            result.rawlink(link)
        return result


class ZooKeeperStore:
    """Owns a kazoo client and the session it holds."""

    def __init__(
        self, runtime: Runtime, connect_string: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        """`connect_string` is `host:port,host:port/chroot`; UsageError. Nothing is sent before
        `connect`."""
        self._runtime = runtime
        self._scheduler = runtime.scheduler
        hosts, _, chroot = connect_string.partition("/")
        self._connect_string = connect_string
        self._chroot = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
        self._handler = _InlineHandler()
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
        self._client.add_listener(self._kazoo_state_changed)
        self._session = _Session.CONNECTING
        self._session_id = 0
        # kazoo began a new session of its own accord; ours begins when `new_session` is called.
        self._has_new_session = False
        self._listeners: list[Callable[[SessionState], object]] = []
        self._watches = WatchTable()
        self._waiting_for_session: Future[None] | None = None
        self._awake: Timer | None = None

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        connect_string: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> "ZooKeeperStore":
        """A connected store, its chroot made; UnreachableError."""
        store = cls(runtime, connect_string, session_timeout_ms=session_timeout_ms)
        await store.connect(connection_timeout_ms)
        return store

    async def connect(self, timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        """Begin the session and make the chroot; UnreachableError after `timeout_ms`."""
        connected = self._wait_for_session()
        timer = self._scheduler.call_later(timeout_ms, self._give_up, connected)
        self._stay_awake()
        self._client.start_async()
        try:
            await connected
            timer.cancel()
            if self._chroot:
                await self._make_chroot()
        except (UnreachableError, StoreError):
            await self.close()
            raise

    def _stay_awake(self) -> None:
        self._awake = self._scheduler.call_later(_AWAKE_MS, self._stay_awake)

    def _give_up(self, connected: Future[None]) -> None:
        if not connected.done:
            connected.set_error(
                UnreachableError(
                    f"no answer from ZooKeeper at {self._connect_string}",
                    hint="is it running, and are host and port right?",
                )
            )

    async def _make_chroot(self) -> None:
        parts = self._chroot.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            try:
                await self.create("/" + "/".join(parts[:depth]), b"")
            except errors.NodeExistsError:
                continue
        self._client.chroot = self._chroot

    @property
    def session_id(self) -> int:
        """The current session's id."""
        return self._session_id

    # --- calls

    def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False
    ) -> Future[tuple[str, Stat]]:
        """Create a znode; NodeExistsError, NoNodeError, NoChildrenForEphemeralsError."""
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
        """Data and Stat; NoNodeError."""

        def convert(answer: tuple[bytes | None, Any]) -> tuple[bytes, Stat]:
            stat = Stat(*answer[1])
            if watch is not None:
                self._watches.watch_data(path, 0, watch, stat.mzxid)
            return answer[0] or b"", stat

        return self._call(
            partial(self._client.get_async, path, self._event_if(watch)), path, convert
        )

    def exists(self, path: str, watch: Watch | None = None) -> Future[Stat | None]:
        """Stat, or None; the watch is set either way."""

        def convert(answer: Any) -> Stat | None:
            stat = None if answer is None else Stat(*answer)
            if watch is not None:
                self._watches.watch_data(path, 0, watch, stat.mzxid if stat else 0)
            return stat

        return self._call(
            partial(self._client.exists_async, path, self._event_if(watch)), path, convert
        )

    def children(self, path: str, watch: Watch | None = None) -> Future[list[str]]:
        """Names of the children, sorted; NoNodeError."""

        def convert(answer: tuple[list[str], Any]) -> list[str]:
            if watch is not None:
                self._watches.watch_children(path, 0, watch, Stat(*answer[1]).pzxid)
            return sorted(answer[0])

        call = partial(
            self._client.get_children_async, path, self._event_if(watch), include_data=True
        )
        return self._call(call, path, convert)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Future[Stat]:
        """Replace the data; NoNodeError, BadVersionError."""
        return self._call(
            partial(self._client.set_async, path, data, version), path, lambda stat: Stat(*stat)
        )

    def delete(self, path: str, version: int = ANY_VERSION) -> Future[None]:
        """Delete; NoNodeError, BadVersionError, NotEmptyError."""
        return self._call(
            partial(self._client.delete_async, path, version), path, lambda _answer: None
        )

    def multi(self, operations: Sequence[Operation]) -> Future[list[Stat | str | None]]:
        """All or nothing; MultiError."""
        if not operations:
            done: Future[list[Stat | str | None]] = self._scheduler.future()
            done.set_result([])
            return done
        return self._call(
            partial(_commit, self._client, operations),
            "",
            lambda answer: _multi_results(answer, operations),
        )

    def _call(
        self, call: Callable[[], Any], path: str, convert: Callable[[Any], Any]
    ) -> Future[Any]:
        future: Future[Any] = self._scheduler.future()
        if self._session in (_Session.EXPIRED, _Session.CLOSED):
            future.set_error(SessionExpiredError())
        elif self._session is not _Session.CONNECTED:
            # Not queued behind the restored watches by kazoo: the caller waits for CONNECTED.
            future.set_error(ConnectionLossError(path))
        else:
            try:
                self._post(call, partial(self._answered, future, path, convert))
            except ValueError as error:
                self._handler.link_next(None)
                future.set_error(_store_error(error, path))
        return future

    def _post(self, call: Callable[[], Any], receiver: Callable[[Any], None]) -> None:
        """Send a request; its result goes to `receiver`, on the loop."""
        post = self._scheduler.call_soon_threadsafe
        self._handler.link_next(lambda result: post(receiver, result))
        call()

    def _answered(
        self, future: Future[Any], path: str, convert: Callable[[Any], Any], result: Any
    ) -> None:
        if future.done:
            # kazoo sets some errors twice.
            return
        if result.exception is not None:
            future.set_error(_store_error(result.exception, path))
            return
        try:
            future.set_result(convert(result.value))
        except MultiError as error:
            future.set_error(error)

    # --- watches

    def _event_if(self, watch: Watch | None) -> Callable[[Any], None] | None:
        # One and the same callable, so that kazoo holds one watch per znode and kind.
        return None if watch is None else self._kazoo_event

    def _kazoo_event(self, event: Any) -> None:
        """On kazoo's thread."""
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
            self._post(call, partial(self._watch_restored, watch))

    def _watch_restored(self, armed: Armed, result: Any) -> None:
        error = None if result.exception is None else _store_error(result.exception, armed.path)
        missed = None
        if isinstance(error, errors.NoNodeError):
            missed = EventType.DELETED
        elif error is None and armed.is_child_watch:
            if Stat(*result.value[1]).pzxid > armed.zxid:
                missed = EventType.CHILDREN_CHANGED
        elif error is None:
            missed = _missed_data_event(result.value, armed.zxid)
        if missed is not None:
            armed.watch(WatchedEvent(missed, armed.path))
        elif armed.is_child_watch:
            self._watches.watch_children(armed.path, 0, armed.watch, armed.zxid)
        else:
            self._watches.watch_data(armed.path, 0, armed.watch, armed.zxid)

    # --- the session

    def on_session_state(self, listener: Callable[[SessionState], object]) -> None:
        """Call `listener` on the loop whenever the session's state changes."""
        self._listeners.append(listener)

    def _kazoo_state_changed(self, state: str) -> None:
        """On kazoo's thread."""
        client_id = self._client.client_id
        session_id = client_id[0] if client_id else 0
        self._scheduler.call_soon_threadsafe(self._state_changed, state, session_id)

    def _state_changed(self, state: str, session_id: int) -> None:
        if self._session is _Session.CLOSED:
            return
        if state == KazooState.CONNECTED:
            self._session_id = session_id
            self._connected()
        elif state == KazooState.SUSPENDED and self._session is _Session.CONNECTED:
            self._session = _Session.SUSPENDED
            self._tell(SessionState.SUSPENDED)
        elif state == KazooState.LOST:
            self._has_new_session = False
            if self._session is not _Session.EXPIRED:
                self._session = _Session.EXPIRED
                self._watches.clear()
                self._tell(SessionState.EXPIRED)

    def _connected(self) -> None:
        if self._session is _Session.SUSPENDED:
            self._session = _Session.CONNECTED
            self._restore_watches()
            self._tell(SessionState.CONNECTED)
        elif self._session is _Session.CONNECTING or self._waiting_for_session is not None:
            self._begin_session()
        else:
            self._has_new_session = True

    def _begin_session(self) -> None:
        self._has_new_session = False
        self._session = _Session.CONNECTED
        self._tell(SessionState.CONNECTED)
        waiting, self._waiting_for_session = self._waiting_for_session, None
        if waiting is not None and not waiting.done:
            waiting.set_result(None)

    def _wait_for_session(self) -> Future[None]:
        if self._waiting_for_session is None:
            self._waiting_for_session = self._scheduler.future()
        return self._waiting_for_session

    def new_session(self) -> Future[None]:
        """After EXPIRED: start over with a new session, once there is a connection."""
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

    def close(self) -> Future[None]:
        """End the session; its ephemerals go."""
        self._session = _Session.CLOSED
        if self._awake is not None:
            self._awake.cancel()
        return self._scheduler.background(self._stop_client)

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()


def _commit(client: Any, operations: Sequence[Operation]) -> None:
    transaction = client.transaction()
    for operation in operations:
        _add(transaction, operation)
    transaction.commit_async()


def _add(transaction: Any, operation: Operation) -> None:
    match operation:
        case Create(path, data, ephemeral, sequence):
            transaction.create(path, data, ephemeral=ephemeral, sequence=sequence)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def _multi_results(
    answer: Sequence[Any], operations: Sequence[Operation]
) -> list[Stat | str | None]:
    for index, outcome in enumerate(answer):
        if isinstance(outcome, Exception) and type(outcome).__name__ not in _BYSTANDERS:
            raise MultiError(index, _store_error(outcome, operations[index].path))
    return [
        outcome
        if isinstance(operation, Create)
        else Stat(*outcome)
        if isinstance(operation, Set)
        else None
        for outcome, operation in zip(answer, operations, strict=True)
    ]


def _missed_data_event(stat: Any, known_zxid: int) -> EventType | None:
    """What a data watch missed, of a znode last changed at `known_zxid` (0: not there)."""
    if stat is None:
        return EventType.DELETED if known_zxid else None
    if not known_zxid:
        return EventType.CREATED
    return EventType.DATA_CHANGED if Stat(*stat).mzxid > known_zxid else None


def _store_error(error: BaseException, path: str) -> StoreError:
    name = type(error).__name__
    known = _ERRORS.get(name)
    if known is not None:
        return known(path)
    kind = "ZooKeeper" if isinstance(error, KazooException) else "kazoo"
    return StoreError(path, f"{path}: {kind} said {name}: {error}")


def _silent_logger() -> logging.Logger:
    # What kazoo would say of lost connections we tell as session states.
    logger = logging.getLogger("kctl.store.zookeeper")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return logger
