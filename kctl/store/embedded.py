"""EmbeddedStore: a session with a ZnodeDatabase in the same process, as a MetadataStore.

Results are ready at once, unless events of this session or earlier results are still in flight
(or, with fsync, not durable yet): then they arrive after those, so that a watch always
fires before its owner can see the change. Everything runs on the loop's thread.

>>> from kctl.runtime.real import make_runtime
>>> from kctl.store.interface import Check, Set
>>> runtime = make_runtime()
>>> store = EmbeddedStore.in_memory(runtime)
>>> path, stat = store.create("/controller_epoch", b"0").result()
>>> stat.version
0
>>> seen = []
>>> store.get("/controller_epoch", watch=seen.append).result()[0]
b'0'
>>> fenced = store.multi([Check("/controller_epoch", 0), Set("/controller_epoch", b"1", 0)])
>>> [_, stat] = runtime.scheduler.run_until(fenced)
>>> stat.version, [event.type.name for event in seen]
(1, ['DATA_CHANGED'])
>>> store.set("/controller_epoch", b"2", version=0).error()
BadVersionError('/controller_epoch: the znode has another version')
>>> runtime.scheduler.close()

ZooKeeper: org.apache.zookeeper.ZooKeeper; Kafka 2.7: kafka.zookeeper.ZooKeeperClient.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kctl.errors import KctlError, StorageError
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import next_turn
from kctl.store.database import ZnodeDatabase
from kctl.store.errors import NotWrittenError, SessionExpiredError, StoreError
from kctl.store.interface import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    SessionState,
    Set,
    Stat,
    Watch,
)
from kctl.store.watches import Firing

_NO_TIMEOUT_MS = 1 << 40


class EmbeddedStore:
    """Owns one session; several may share a database."""

    def __init__(
        self, runtime: Runtime, database: ZnodeDatabase, *, owns_database: bool = False
    ) -> None:
        """Begin a session with `database`, which `close` closes too if this session owns it."""
        self.database = database
        self._tree = database.tree
        self._scheduler = runtime.scheduler
        self._call_soon = runtime.scheduler.call_soon
        self._owns_database = owns_database
        self._listeners: list[Callable[[SessionState], object]] = []
        self._is_open = True
        # Results and events that were passed to the loop and have not arrived.
        self._in_flight = 0
        self._session_id = database.open_session(self)

    @classmethod
    def open(cls, runtime: Runtime, directory: str, *, fsync: bool = False) -> "EmbeddedStore":
        """Return a session with the durable tree in `directory`; StorageError, CorruptDataError."""
        database = ZnodeDatabase.open(runtime, directory, fsync=fsync)
        return cls(runtime, database, owns_database=True)

    @classmethod
    def in_memory(cls, runtime: Runtime) -> "EmbeddedStore":
        """Return a session with an empty tree without files."""
        return cls(runtime, ZnodeDatabase.in_memory(runtime), owns_database=True)

    @property
    def session_id(self) -> int:
        """Return the current session's id."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """Return a time that never passes: the session lives as long as this process."""
        return _NO_TIMEOUT_MS

    @property
    def failure(self) -> KctlError | None:
        """Return why nothing can be written, or None."""
        return self.database.failure

    # --- reads

    def get(self, path: str, watch: Watch | None = None) -> Future[tuple[bytes, Stat]]:
        """Return data and Stat; raise NoNodeError."""
        try:
            self._check_open()
            node = self._tree.get(path)
        except KctlError as error:
            return self._failed(error)
        if watch is not None:
            self._tree.watches.watch_data(path, self._session_id, watch)
        return self._answer((node.data, node.stat()))

    def exists(self, path: str, watch: Watch | None = None) -> Future[Stat | None]:
        """Return Stat, or None; the watch is set either way."""
        if not self._is_open:
            return self._failed(SessionExpiredError())
        if watch is not None:
            self._tree.watches.watch_data(path, self._session_id, watch)
        node = self._tree.nodes.get(path)
        return self._answer(None if node is None else node.stat())

    def children(self, path: str, watch: Watch | None = None) -> Future[list[str]]:
        """Return names of the children, sorted; raise NoNodeError."""
        try:
            self._check_open()
            names = self._tree.children(path)
        except KctlError as error:
            return self._failed(error)
        if watch is not None:
            self._tree.watches.watch_children(path, self._session_id, watch)
        return self._answer(names)

    def sync(self, path: str) -> Future[None]:  # noqa: ARG002 - there is one tree
        """Return at once: reads are never behind."""
        if not self._is_open:
            return self._failed(SessionExpiredError())
        return self._answer(None)

    # --- writes

    def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False
    ) -> Future[tuple[str, Stat]]:
        """Create a znode; raise NodeExistsError, NoNodeError, NoChildrenForEphemeralsError."""
        try:
            operation = Create(path, data, ephemeral, sequence)
            made = self.database.commit(self._session_id, operation)
        except KctlError as error:
            return self._failed(error)
        assert isinstance(made, str)
        return self._answer((made, self._tree.nodes[made].stat()))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Future[Stat]:
        """Replace the data; raise NoNodeError, BadVersionError."""
        return self._write(Set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Future[None]:
        """Delete a znode; raise NoNodeError, BadVersionError, NotEmptyError."""
        return self._write(Delete(path, version))

    def _write(self, operation: Operation) -> Future[Any]:
        try:
            result = self.database.commit(self._session_id, operation)
        except KctlError as error:
            return self._failed(error)
        return self._answer(result)

    def multi(self, operations: Sequence[Operation]) -> Future[list[Stat | str | None]]:
        """Apply all operations or none; raise MultiError."""
        try:
            results = self.database.commit_multi(self._session_id, operations)
        except KctlError as error:
            return self._failed(error)
        return self._answer(results)

    # --- many at once

    def get_each(
        self, paths: Iterable[str], watch: Watch | None = None
    ) -> Future[list[tuple[bytes, Stat] | None]]:
        """Return data and Stat of each znode, None for a missing one."""
        if not self._is_open:
            return self._failed(SessionExpiredError())
        found: list[tuple[bytes, Stat] | None] = []
        for path in paths:
            node = self._tree.nodes.get(path)
            if node is None:
                found.append(None)
                continue
            found.append((node.data, node.stat()))
            if watch is not None:
                self._tree.watches.watch_data(path, self._session_id, watch)
        return self._answer(found)

    def write_each(
        self, operations: Iterable[Operation], fence: Check | None = None
    ) -> Future[list[Stat | str | StoreError | None]]:
        """Apply operations one by one; return for each its result or its error."""
        try:
            results = self.database.commit_each(self._session_id, operations, fence)
        except KctlError as error:
            return self._failed(error)
        return self._answer(results)

    # --- answers and events, in order

    def _answer(self, value: Any) -> Future[Any]:
        future: Future[Any] = Future(self._call_soon)
        if self._in_flight == 0 and self.database.is_all_durable:
            future.set_result(value)
        else:
            self._send(self._finish, future, value, None)
        return future

    def _failed(self, error: BaseException) -> Future[Any]:
        future: Future[Any] = Future(self._call_soon)
        error = _as_store_error(error)
        if self._in_flight == 0 and self.database.is_all_durable:
            future.set_error(error)
        else:
            self._send(self._finish, future, None, error)
        return future

    def _finish(self, future: Future[Any], value: Any, error: BaseException | None) -> None:
        error = self.database.failure or error
        if error is None:
            future.set_result(value)
        else:
            future.set_error(_as_store_error(error))

    def _send(self, receiver: Callable[..., object], *args: object) -> None:
        self._in_flight += 1
        self.database.when_durable(self._arrive, receiver, args)

    def _arrive(self, receiver: Callable[..., object], args: tuple[object, ...]) -> None:
        self._in_flight -= 1
        receiver(*args)

    def watch_fired(self, firing: Firing) -> None:
        """Pass on an event of a watch that fired."""
        self._send(firing.watch, firing.event)

    # --- the session

    def on_session_state(self, listener: Callable[[SessionState], object]) -> None:
        """Call `listener` on the loop whenever the session's state changes."""
        self._listeners.append(listener)

    def turn(self) -> Future[None]:
        """Return a future that is done in the loop's next turn."""
        return next_turn(self._scheduler)

    def session_expired(self) -> None:
        """Handle the end of a session that was not closed here."""
        self._is_open = False
        self._report_state(SessionState.EXPIRED)

    def session_taken(self) -> None:
        """Raise: only sessions with a timeout can be taken over."""
        raise RuntimeError(f"session {self._session_id:#x} lives with this process")

    def new_session(self) -> Future[None]:
        """Start a new session after EXPIRED."""
        try:
            self._session_id = self.database.open_session(self)
        except KctlError as error:
            return self._failed(error)
        self._is_open = True
        self._report_state(SessionState.CONNECTED)
        return self._answer(None)

    def close(self) -> Future[None]:
        """End the session, which deletes its ephemerals."""
        if self._is_open:
            self._is_open = False
            try:
                self.database.close_session(self._session_id)
            except KctlError as error:
                return self._failed(error)
        return self.database.close() if self._owns_database else self._answer(None)

    def _report_state(self, state: SessionState) -> None:
        for listener in self._listeners:
            self._send(listener, state)

    def _check_open(self) -> None:
        if not self._is_open:
            raise SessionExpiredError


def _as_store_error(error: BaseException) -> BaseException:
    """Return an error that callers of a store expect, which does not depend on where it keeps
    znodes."""
    if isinstance(error, StorageError) and not isinstance(error, NotWrittenError):
        return NotWrittenError("", str(error))
    return error
