"""ZnodeClient: pipelined, retried and fenced calls on a MetadataStore; ClusterStore's base.

Many calls go out before the first answer is awaited. A call whose answer was lost with the
connection is made again once we are connected; expiry of the session goes to the caller.
A write of the controller is a multi that checks `/controller_epoch` first: a controller that was
replaced while it slept can change nothing, and learns it by ControllerMovedError.

Kafka 2.7: kafka.zk.KafkaZkClient.retryRequestsUntilConnected.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

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
)

T = TypeVar("T")
Call = Callable[[], Future[T]]

# As many calls wait for answers at once; more are sent when these are through.
MAX_IN_FLIGHT_CALLS = 1000


class ZnodeClient:
    """Owns a MetadataStore's retries and fencing; knows no Kafka but `/controller_epoch`."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self._connected = True
        self._waiting_for_connection: list[Future[None]] = []
        store.on_session_state(self._session_state_changed)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """Data and Stat, or None if there is no such znode (then no watch either)."""
        try:
            return await self.call(lambda: self.store.get(path, watch))
        except NoNodeError:
            return None

    async def get_all(
        self, paths: Sequence[str], watch: Watch | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Data and Stat of many znodes at once, None for those that are not there."""
        answers = await self.call_all([partial(self.store.get, path, watch) for path in paths])
        found: list[tuple[bytes, Stat] | None] = []
        for answer in answers:
            if isinstance(answer, NoNodeError):
                found.append(None)
            elif isinstance(answer, StoreError):
                raise answer
            else:
                found.append(answer)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        """Whether the znode is there; the watch is set in any case."""
        return await self.call(lambda: self.store.exists(path, watch)) is not None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted; none if there is no such znode."""
        try:
            return await self.call(lambda: self.store.children(path, watch))
        except NoNodeError:
            return []

    async def create_recursive(self, path: str, data: bytes = znodes.NO_DATA) -> None:
        """Create a persistent znode and the parents it lacks; NodeExistsError."""
        try:
            await self.call(lambda: self.store.create(path, data))
        except NoNodeError:
            await self.make_path(path.rpartition("/")[0])
            await self.call(lambda: self.store.create(path, data))

    async def make_path(self, path: str) -> None:
        """Make sure that a persistent znode is there, parents included."""
        try:
            await self.create_recursive(path)
        except NodeExistsError:
            return

    async def create_sequential(self, path_prefix: str, data: bytes) -> str:
        """Create `path_prefix` plus a counter, persistent; the path made."""
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
        """Set the data if the znode's version is `version`: the new version, or None if the
        znode has another version or is gone."""
        try:
            return (await self.call(lambda: self.store.set(path, data, version))).version
        except (BadVersionError, NoNodeError):
            return None

    async def delete_if_exists(
        self, path: str, controller_epoch_zk_version: int = ANY_VERSION
    ) -> bool:
        """Delete a znode without children; whether it was there."""
        try:
            await self.write(Delete(path), controller_epoch_zk_version)
        except NoNodeError:
            return False
        return True

    async def delete_all(
        self, paths: Iterable[str], controller_epoch_zk_version: int = ANY_VERSION
    ) -> None:
        """Delete many znodes at once; those already gone do not matter."""
        operations = [Delete(path) for path in paths]
        for outcome in await self.write_all(operations, controller_epoch_zk_version):
            if isinstance(outcome, StoreError) and not isinstance(outcome, NoNodeError):
                raise outcome

    async def delete_recursive(
        self, path: str, controller_epoch_zk_version: int = ANY_VERSION
    ) -> bool:
        """Delete a znode and all below it, children first; whether it was there."""
        for child in await self.children(path):
            await self.delete_recursive(f"{path}/{child}", controller_epoch_zk_version)
        return await self.delete_if_exists(path, controller_epoch_zk_version)

    async def write(
        self, operation: Operation, controller_epoch_zk_version: int = ANY_VERSION
    ) -> object:
        """One write, fenced unless the version is ANY_VERSION; raises the operation's error."""
        (result,) = await self.write_all([operation], controller_epoch_zk_version)
        if isinstance(result, StoreError):
            raise result
        return result

    async def write_all(
        self, operations: Sequence[Operation], controller_epoch_zk_version: int = ANY_VERSION
    ) -> list[object]:
        """Many writes, each on its own and each fenced: for each the Stat or path, or the error.

        ControllerMovedError is raised for the whole, though some may have happened.
        """
        if controller_epoch_zk_version == ANY_VERSION:
            return await self.call_all([self._plain_call(o) for o in operations])
        fence = Check(znodes.CONTROLLER_EPOCH, controller_epoch_zk_version)
        outcomes = await self.call_all([self._multi_call([fence, o]) for o in operations])
        return [_unfenced(outcome) for outcome in outcomes]

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
        """One call; made again after a lost connection."""
        while True:
            try:
                return await call()
            except ConnectionLossError:
                await self.connected()

    async def call_all(self, calls: Sequence[Call[T]]) -> list[T | StoreError]:
        """Many calls at once: results or errors in the order of the calls.

        SessionExpiredError is raised for the whole.
        """
        results: list[T | StoreError] = []
        for start in range(0, len(calls), MAX_IN_FLIGHT_CALLS):
            futures = [call() for call in calls[start : start + MAX_IN_FLIGHT_CALLS]]
            for call, future in zip(calls[start:], futures, strict=False):
                try:
                    results.append(await future)
                except ConnectionLossError:
                    await self.connected()
                    again: T | StoreError = await self._result_of(call)
                    results.append(again)
                except SessionExpiredError:
                    raise
                except StoreError as error:
                    results.append(error)
        return results

    async def _result_of(self, call: Call[T]) -> T | StoreError:
        try:
            return await self.call(call)
        except SessionExpiredError:
            raise
        except StoreError as error:
            return error

    async def connected(self) -> None:
        """Wait until the store is in touch (or the session is known to be over)."""
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
    """What became of the operation behind the fence; ControllerMovedError if the fence held."""
    if not isinstance(outcome, MultiError):
        return outcome if isinstance(outcome, StoreError) else outcome[1]
    if outcome.index == 0:
        raise ControllerMovedError(znodes.CONTROLLER_EPOCH)
    return outcome.error


def _call_now(callback: Callable[..., object], *args: object) -> None:
    # Whoever waits for the connection goes on inside the listener's turn of the loop.
    callback(*args)
