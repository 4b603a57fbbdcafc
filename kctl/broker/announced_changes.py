"""AnnouncedChanges: follows what other brokers change in the store.

Announcements are watched before the first read, so that no change is missed. A watch fires once and
ends with its session: the announcements are listed again each time, and after each reconnection to
the store. One read runs at a time; what is announced meanwhile is read after it.

Announcements expire: after a reconnection some may be gone that this broker has not seen. An owner
that must not miss a change therefore passes `reload`, which reads everything.

Kafka 2.7: kafka.common.ZkNodeChangeNotificationListener.
"""

from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import StoreError
from kctl.store.interface import SessionState, WatchedEvent

# A broker that reads an announcement removes those older than this.
CHANGE_EXPIRATION_MS = 15 * 60 * 1000

K = TypeVar("K", bound=Hashable)
# Reads what announcements name: (their directory, their names).
Read = Callable[[str, Sequence[str]], Coroutine[Any, Any, None]]
ReadAll = Callable[[], Coroutine[Any, Any, None]]


class AnnouncedChanges:
    """Calls `read` with new announcements, and `reload` after each reconnection to the store."""

    def __init__(
        self,
        runtime: Runtime,
        cluster_store: ClusterStore,
        what: str,
        directories: Sequence[str],
        read: Read,
        reload: ReadAll | None = None,
    ) -> None:
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._store = cluster_store
        self._what = what
        # Directory of announcements -> the last one read.
        self._seen = dict.fromkeys(directories, "")
        self._read = read
        self._reload = reload
        self._is_reading = False
        self._must_read = False
        self._must_reload = False

    async def start(self, load: ReadAll) -> None:
        """Watch for announcements, then await `load()`, which reads everything; StoreError."""
        self._store.store.on_session_state(self._session_changed)
        self._is_reading = True
        try:
            for directory in self._seen:
                names = await self._store.get_announcement_names(directory, self._announced)
                self._seen[directory] = max(names, default="")
            await load()
        finally:
            self._is_reading = False
        if self._must_read:
            self._schedule_read()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._must_reload = self._reload is not None
            self._schedule_read()

    def _announced(self, _event: WatchedEvent) -> None:
        self._schedule_read()

    def _schedule_read(self) -> None:
        self._must_read = True
        if not self._is_reading:
            self._scheduler.spawn(self._read_all(), f"changes of {self._what}")

    async def _read_all(self) -> None:
        self._is_reading = True
        try:
            while self._must_read:
                self._must_read = False
                try:
                    await self._read_once()
                except StoreError as error:
                    # Missed announcements are read when the store is connected again.
                    self._trace.warning(f"cannot read changes of {self._what}: {error}")
        finally:
            self._is_reading = False

    async def _read_once(self) -> None:
        must_reload, self._must_reload = self._must_reload, False
        for directory, seen in self._seen.items():
            names = await self._store.get_announcement_names(directory, self._announced)
            if not must_reload:
                await self._read(directory, [name for name in names if name > seen])
            self._seen[directory] = max([seen, *names])
            expired_ms = self._clock.wall_ms() - CHANGE_EXPIRATION_MS
            await self._store.purge_announcements(directory, names, expired_ms)
        if must_reload and self._reload is not None:
            await self._reload()


class OverlappingReads(Generic[K]):
    """Keeps the results of reads that overlap in order, per key.

    Reads are numbered in the order of their begin, and none replaces the result of a later one.
    """

    def __init__(self) -> None:
        self._begun = 0
        self._under_way = 0
        # While reads run: key -> the number of the read that set it.
        self._read_by: dict[K, int] = {}

    @contextmanager
    def read(self) -> Iterator[Callable[[K], bool]]:
        """Begin a read; yield a function that returns whether its result for a key counts, which
        the caller must then apply."""
        self._begun += 1
        self._under_way += 1
        number = self._begun

        def is_latest(key: K) -> bool:
            if self._read_by.get(key, 0) > number:
                return False
            self._read_by[key] = number
            return True

        try:
            yield is_latest
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._read_by.clear()
