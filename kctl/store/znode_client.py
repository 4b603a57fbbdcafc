"""ZnodeClient: pipelined, retried and fenced calls on a MetadataStore; ClusterStore's base.

Many calls are sent before the first response is awaited. A call whose response was lost with the
connection is repeated after the reconnection; expiry of the session is raised to the caller. A
write of the controller is a multi that checks `/controller_epoch` first: a controller that was
replaced while it was paused cannot change anything, and gets ControllerMovedError.

Kafka 2.7: kafka.zk.KafkaZkClient.retryRequestsUntilConnected.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from kctl.errors import CorruptDataError
from kctl.runtime.future import Future
from kctl.store import znodes
from kctl.store.errors import (
    BadVersionError,
    ConnectionLossError,
    ControllerMovedError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    StoppingError,
    StoreError,
)
from kctl.store.interface import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    MetadataStore,
    Operation,
    SessionState,
    Set,
    Stat,
    Watch,
    WritesEach,
)
from kctl.work import Work, finished, parts

T = TypeVar("T")
# Takes the error of a znode that cannot be read and is passed over.
OnCorrupt = Callable[[CorruptDataError], object]
# Makes a call; one that returns a Future is in flight from then on. It is made again after a lost
# connection.
Call = Callable[[], Awaitable[T]]

# Calls of one caller in flight at once; more are sent when these have finished.
MAX_IN_FLIGHT_CALLS = 128
# How often an update is tried while others write the same znode. Each attempt takes one round trip,
# so many concurrent writers succeed.
UPDATE_ATTEMPTS_MAX = 100
# Calls made in one turn of the loop: the embedded store carries each out at once, in about 0.1 ms.
CALLS_PER_TURN = 64
# Reads and writes of the embedded store that are made by one call, each in about 4 and 15 µs.
READS_PER_TURN = 500
WRITES_PER_TURN = 256
# Outcomes of calls examined in one turn; each takes some microseconds.
OUTCOMES_PER_TURN = 1_000


class ZnodeClient:
    """Owns a MetadataStore's retries and fencing; of Kafka it knows only `/controller_epoch`."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self._bulk = store if isinstance(store, WritesEach) else None
        self._connected = True
        self._is_patient = True
        self._waiting_for_connection: list[Future[None]] = []
        store.on_session_state(self._session_state_changed)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """Return data and Stat, or None if there is no such znode (then no watch is set)."""
        try:
            return await self.call(lambda: self.store.get(path, watch))
        except NoNodeError:
            return None

    async def get_all(
        self, paths: Iterable[str], watch: Watch | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Return data and Stat of many znodes at once, None for missing znodes."""
        if self._bulk is not None:
            return await self._get_each(self._bulk, paths, watch)
        answers = await self.call_all(partial(self.store.get, path, watch) for path in paths)
        found: list[tuple[bytes, Stat] | None] = []
        async for answer in self.over_turns(answers):
            if isinstance(answer, NoNodeError):
                found.append(None)
            elif isinstance(answer, StoreError):
                raise answer
            else:
                found.append(answer)
        return found

    async def _get_each(
        self, store: WritesEach, paths: Iterable[str], watch: Watch | None
    ) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        wanted = list(paths)
        for part in parts(wanted, READS_PER_TURN):
            if found:
                await self.store.turn()
            found += await self.call(partial(store.get_each, part, watch))
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        """Return whether the znode exists; the watch is set in any case."""
        return await self.call(lambda: self.store.exists(path, watch)) is not None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return names of the children, sorted; none if there is no such znode."""
        try:
            return await self.call(lambda: self.store.children(path, watch))
        except NoNodeError:
            return []

    async def awaited_children(self, path: str, watch: Watch) -> list[str]:
        """Return the children, sorted; `watch` fires when one comes or goes, or when `path` is
        created."""
        names = await self.children(path, watch)
        if not names and await self.exists(path, watch):
            # It may have been created in between, without a watch on its children.
            names = await self.children(path, watch)
        return names

    async def create_recursive(self, path: str, data: bytes = znodes.NO_DATA) -> None:
        """Create a persistent znode and its missing parents; raise NodeExistsError."""
        try:
            await self.call(lambda: self.store.create(path, data))
        except NoNodeError:
            await self.make_path(path.rpartition("/")[0])
            await self.call(lambda: self.store.create(path, data))

    async def make_path(self, path: str) -> None:
        """Create a persistent znode and its parents unless they exist."""
        try:
            await self.create_recursive(path)
        except NodeExistsError:
            return

    async def create_sequential(self, path_prefix: str, data: bytes) -> str:
        """Create a persistent znode `path_prefix` plus a counter; return its path."""
        path, _ = await self.call(lambda: self.store.create(path_prefix, data, sequence=True))
        return path

    async def set_or_create(
        self, path: str, data: bytes, controller_epoch_zk_version: int = ANY_VERSION
    ) -> None:
        """Set the data of a persistent znode, or create it with its parents."""
        try:
            await self.write(Set(path, data), controller_epoch_zk_version)
        except NoNodeError:
            try:
                await self.make_path(path.rpartition("/")[0])
                await self.write(Create(path, data), controller_epoch_zk_version)
            except NodeExistsError:
                await self.write(Set(path, data), controller_epoch_zk_version)

    async def conditional_set(self, path: str, data: bytes, version: int) -> int | None:
        """Set the data if the znode's version is `version`; return the new version.

        Returns None if the znode has another version or is gone.
        """
        try:
            return (await self.call(lambda: self.store.set(path, data, version))).version
        except (BadVersionError, NoNodeError):
            return None

    async def update(
        self,
        path: str,
        change: Callable[[bytes | None], Work[bytes]],
        controller_epoch_zk_version: int = ANY_VERSION,
    ) -> None:
        """Replace the data of a persistent znode by `change` of the current data.

        `change` gets None if there is no znode, which is then created. Concurrent writes are not
        lost: `change` is called again with the newer data, so it must have no side effects. An
        exception that it raises ends the call, with nothing written. BadVersionError if each of
        UPDATE_ATTEMPTS_MAX attempts met a concurrent write.
        """

        async def write(operation: Create | Set) -> bool:
            try:
                if isinstance(operation, Create):
                    await self.create_recursive(path, operation.data)
                else:
                    await self.write(operation, controller_epoch_zk_version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                return False
            return True

        await self._replace(path, change, write)

    async def update_and_announce(
        self, path: str, change: Callable[[bytes | None], Work[bytes]], announcement: Create
    ) -> None:
        """Replace data as `update` does and create `announcement`, in one transaction: no writer
        that dies in between leaves others with the old data and nothing to make them read it."""

        async def write(operation: Create | Set) -> bool:
            operations = [operation, announcement]
            try:
                await self.call(partial(self.store.multi, operations))
            except MultiError as error:
                if isinstance(error.error, NoNodeError):
                    for it in operations:
                        await self.make_path(it.path.rpartition("/")[0])
                elif not isinstance(error.error, BadVersionError | NodeExistsError):
                    raise
                return False
            return True

        await self._replace(path, change, write)

    async def _replace(
        self,
        path: str,
        change: Callable[[bytes | None], Work[bytes]],
        write: Callable[[Create | Set], Awaitable[bool]],
    ) -> None:
        """Pass `write` the operation that makes the data `change` of the current ones, until it
        returns True; BadVersionError after UPDATE_ATTEMPTS_MAX attempts."""
        written: tuple[bytes, int] | None = None
        for _ in range(UPDATE_ATTEMPTS_MAX):
            found = await self.get(path)
            data, version = (found[0], found[1].version) if found else (None, -1)
            # An attempt whose response was lost with the connection may have been carried out.
            if (data, version) == written:
                return
            changed = await finished(change(data), self.store.turn)
            written = changed, version + 1
            if await write(Create(path, changed) if found is None else Set(path, changed, version)):
                return
        raise BadVersionError(path)

    async def delete_if_exists(
        self, path: str, controller_epoch_zk_version: int = ANY_VERSION
    ) -> bool:
        """Delete a znode without children; return whether it existed."""
        try:
            await self.write(Delete(path), controller_epoch_zk_version)
        except NoNodeError:
            return False
        return True

    async def delete_all(
        self, paths: Iterable[str], controller_epoch_zk_version: int = ANY_VERSION
    ) -> None:
        """Delete many znodes at once, ignoring those already gone."""
        operations = map(Delete, paths)
        outcomes = await self.write_all(operations, controller_epoch_zk_version)
        async for outcome in self.over_turns(outcomes):
            if isinstance(outcome, StoreError) and not isinstance(outcome, NoNodeError):
                raise outcome

    async def delete_recursive(
        self, path: str, controller_epoch_zk_version: int = ANY_VERSION
    ) -> bool:
        """Delete a znode and everything below it, children first; return whether it existed."""
        for child in await self.children(path):
            await self.delete_recursive(f"{path}/{child}", controller_epoch_zk_version)
        return await self.delete_if_exists(path, controller_epoch_zk_version)

    async def write(
        self, operation: Operation, controller_epoch_zk_version: int = ANY_VERSION
    ) -> object:
        """Make one write, fenced unless the version is ANY_VERSION; raise the operation's error."""
        (result,) = await self.write_all([operation], controller_epoch_zk_version)
        if isinstance(result, StoreError):
            raise result
        return result

    async def write_all(
        self, operations: Iterable[Operation], controller_epoch_zk_version: int = ANY_VERSION
    ) -> list[object]:
        """Make many independent writes, each fenced; return for each the Stat or path, or the
        error.

        ControllerMovedError is raised for the whole, though some may have happened.
        """
        fence = None
        if controller_epoch_zk_version != ANY_VERSION:
            fence = Check(znodes.CONTROLLER_EPOCH, controller_epoch_zk_version)
        if self._bulk is not None:
            return await self._write_each(self._bulk, operations, fence)
        if fence is None:
            return await self.call_all(map(self._plain_call, operations))
        outcomes = await self.call_all(self._multi_call([fence, o]) for o in operations)
        return [_unfenced(outcome) async for outcome in self.over_turns(outcomes)]

    async def _write_each(
        self, store: WritesEach, operations: Iterable[Operation], fence: Check | None
    ) -> list[object]:
        """Make the writes, WRITES_PER_TURN of them at once and in a turn of the loop."""
        in_flight: list[tuple[Sequence[Operation], Future[list[Any]]]] = []
        remaining = iter(operations)
        while part := list(islice(remaining, WRITES_PER_TURN)):
            if in_flight:
                await self.store.turn()
            in_flight.append((part, store.write_each(part, fence)))
        results: list[object] = []
        for made, future in in_flight:
            outcome = await self._outcome(partial(store.write_each, made, fence), future)
            if isinstance(outcome, MultiError):
                raise ControllerMovedError(znodes.CONTROLLER_EPOCH)
            results += [outcome] * len(made) if isinstance(outcome, StoreError) else outcome
        return results

    def _multi_call(self, operations: Sequence[Operation]) -> Call[list[Stat | str | None]]:
        return lambda: self.store.multi(operations)

    def _plain_call(self, operation: Operation) -> Call[Any]:
        store = self.store
        match operation:
            case Create(path, data, ephemeral):
                return lambda: store.create(path, data, ephemeral=ephemeral)
            case Set(path, data, version):
                return lambda: store.set(path, data, version)
            case Delete(path, version):
                return lambda: store.delete(path, version)
            case Check():
                return lambda: store.multi([operation])

    async def call(self, call: Call[T]) -> T:
        """Make one call, and repeat it after a lost connection."""
        while True:
            try:
                return await call()
            except ConnectionLossError:
                await self.connected()

    async def call_all(self, calls: Iterable[Call[T]]) -> list[T | StoreError]:
        """Make many calls at once, CALLS_PER_TURN of them in a turn of the loop.

        Returns results or errors in the order of the calls. `calls` may be an iterator, whose work
        then counts as theirs. SessionExpiredError and StoppingError are raised for the whole.
        """
        results: list[T | StoreError] = []
        in_flight: deque[tuple[Call[T], Awaitable[T]]] = deque()
        for number, call in enumerate(calls):
            if number and number % CALLS_PER_TURN == 0:
                await self.store.turn()
            if len(in_flight) == MAX_IN_FLIGHT_CALLS:
                first: T | StoreError = await self._outcome(*in_flight.popleft())
                results.append(first)
            in_flight.append((call, call()))
        async for waiting in self.over_turns(in_flight):
            next_: T | StoreError = await self._outcome(*waiting)
            results.append(next_)
        return results

    async def over_turns(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield `items`, OUTCOMES_PER_TURN of them in a turn of the loop."""
        for number, item in enumerate(items):
            if number and number % OUTCOMES_PER_TURN == 0:
                await self.store.turn()
            yield item

    async def _outcome(self, call: Call[T], future: Awaitable[T]) -> T | StoreError:
        """Return the result of a call in flight, which is repeated after a lost connection."""
        try:
            return await future
        except ConnectionLossError:
            await self.connected()
            return await self._result_of(call)
        except (SessionExpiredError, StoppingError):
            raise
        except StoreError as error:
            return error

    async def _result_of(self, call: Call[T]) -> T | StoreError:
        try:
            return await self.call(call)
        except (SessionExpiredError, StoppingError):
            raise
        except StoreError as error:
            return error

    @property
    def is_connected(self) -> bool:
        """Return whether the store is connected, or the session is known to have ended."""
        return self._connected

    def stop_waiting(self) -> None:
        """Fail calls that wait, or would wait, for the connection with StoppingError.

        For a broker that stops: it must not wait for a store that may never come back.
        """
        self._is_patient = False
        waiting, self._waiting_for_connection = self._waiting_for_connection, []
        for future in waiting:
            future.set_error(StoppingError())

    async def connected(self) -> None:
        """Wait until the store is connected, or the session is known to have ended.

        Raise StoppingError after `stop_waiting`.
        """
        if not self._is_patient:
            raise StoppingError
        if not self._connected:
            future: Future[None] = Future(_call_now)
            self._waiting_for_connection.append(future)
            await future

    def _session_state_changed(self, state: SessionState) -> None:
        self._connected = state is not SessionState.SUSPENDED
        if self._connected:
            waiting, self._waiting_for_connection = self._waiting_for_connection, []
            for future in waiting:
                future.set_result(None)


def _unfenced(outcome: list[Stat | str | None] | StoreError) -> object:
    """Return the outcome of the fenced operation; ControllerMovedError if the fence rejected it."""
    if not isinstance(outcome, MultiError):
        return outcome if isinstance(outcome, StoreError) else outcome[1]
    if outcome.index == 0:
        raise ControllerMovedError(znodes.CONTROLLER_EPOCH)
    return outcome.error


def _call_now(callback: Callable[..., object], *args: object) -> None:
    # Callers that wait for the connection continue inside the listener's turn of the loop.
    callback(*args)
