"""AclCache: keeps an authorizer's entries equal to those in the store, and changes the store.

Announcements are watched before the first read, so that no change is missed; an announced pattern
is read again. Watches end with their session, and announcements expire: after each reconnection to
the store everything is read again. A change by this broker is in force here before it is
acknowledged.

A pattern whose entries cannot be read denies everything to everyone but super users, since one of
them may deny something.

Kafka 2.7: kafka.security.authorizer.AclAuthorizer, kafka.common.ZkNodeChangeNotificationListener.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Self

from kctl.broker.security.authorizer import AclAuthorizer
from kctl.configs.authorizer_settings import AuthorizerSettings
from kctl.errors import CorruptDataError
from kctl.protocol.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPattern,
    PermissionType,
)
from kctl.protocol.acl_decisions import Entries
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import next_turn
from kctl.store.acl_registry import ACL_CHANGE_PATHS
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import StoreError
from kctl.store.interface import SessionState, WatchedEvent

# A broker that reads an announcement removes those older than this.
CHANGE_EXPIRATION_MS = 15 * 60 * 1000
# Patterns read between two turns for others.
PATTERNS_PER_READ = 500
_DENY_ALL = AclEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, PermissionType.DENY)


class AclCache:
    """Follows the store for one authorizer."""

    def __init__(
        self, runtime: Runtime, cluster_store: ClusterStore, authorizer: AclAuthorizer
    ) -> None:
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._store = cluster_store
        self.authorizer = authorizer
        # The entries in force.
        self.index = authorizer.index
        # Directory of announcements -> the last one read.
        self._seen = dict.fromkeys(ACL_CHANGE_PATHS, "")
        # Reads may overlap. They are numbered in the order of their begin, and none replaces the
        # result of a later one: while reads run, this holds the number of the read that set each
        # pattern.
        self._begun = 0
        self._under_way = 0
        self._read_by: dict[AclPattern, int] = {}
        self._is_reading = False
        self._must_read = False
        self._must_reload = False

    @classmethod
    async def open(
        cls, runtime: Runtime, cluster_store: ClusterStore, settings: AuthorizerSettings | None
    ) -> Self | None:
        """Return the started cache of an authorizer, or None without settings for one."""
        if settings is None:
            return None
        authorizer = AclAuthorizer(settings, runtime.trace, runtime.clock.monotonic_ms)
        cache = cls(runtime, cluster_store, authorizer)
        await cache.start()
        return cache

    async def start(self) -> None:
        """Read everything and watch for changes; StoreError."""
        await self._store.create_acl_paths()
        for directory in ACL_CHANGE_PATHS:
            names = await self._store.get_acl_change_names(directory, self._announced)
            self._seen[directory] = max(names, default="")
        await self._reload()
        self._store.store.on_session_state(self._session_changed)

    async def change(
        self, pattern: AclPattern, change: Callable[[Entries], Sequence[AclEntry]]
    ) -> None:
        """Replace the entries of a pattern in the store by `change` of them, and put them in force.

        `change` may be called several times. Raise StoreError or CorruptDataError.
        """
        await self._store.update_acls(pattern, change)
        await self._load([pattern])

    async def add(self, bindings: Iterable[AclBinding]) -> None:
        """Store more entries and put them in force; StoreError, CorruptDataError."""
        by_pattern: dict[AclPattern, list[AclEntry]] = {}
        for pattern, entry in bindings:
            by_pattern.setdefault(pattern, []).append(entry)
        for pattern, added in by_pattern.items():
            await self.change(pattern, partial(_extended, added))

    async def _reload(self) -> None:
        stored = await self._store.get_acl_patterns()
        known = self.authorizer.index.patterns()
        await self._load(list(dict.fromkeys([*stored, *known])))

    async def _load(self, patterns: Sequence[AclPattern]) -> None:
        self._begun += 1
        self._under_way += 1
        number = self._begun
        try:
            for start in range(0, len(patterns), PATTERNS_PER_READ):
                if start:
                    await next_turn(self._scheduler)
                part = patterns[start : start + PATTERNS_PER_READ]
                for pattern, found in (await self._store.get_acls(part)).items():
                    if self._read_by.get(pattern, 0) <= number:
                        self._read_by[pattern] = number
                        self.authorizer.replace(pattern, self._readable(pattern, found))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._read_by.clear()

    def _readable(self, pattern: AclPattern, found: Entries | CorruptDataError) -> Entries:
        if not isinstance(found, CorruptDataError):
            return found
        self._trace.warning(f"all access to {pattern} is denied, as its ACLs are invalid: {found}")
        return (_DENY_ALL,)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._must_reload = True
            self._schedule_read()

    def _announced(self, _event: WatchedEvent) -> None:
        self._schedule_read()

    def _schedule_read(self) -> None:
        self._must_read = True
        if not self._is_reading:
            self._scheduler.spawn(self._read_changes(), "acl-changes")

    async def _read_changes(self) -> None:
        self._is_reading = True
        try:
            while self._must_read:
                self._must_read = False
                try:
                    await self._read_once()
                except StoreError as error:
                    # Everything is read when the store is connected again.
                    self._trace.warning(f"cannot read changes of ACLs: {error}")
        finally:
            self._is_reading = False

    async def _read_once(self) -> None:
        must_reload, self._must_reload = self._must_reload, False
        for directory in ACL_CHANGE_PATHS:
            names = await self._store.get_acl_change_names(directory, self._announced)
            new = [name for name in names if name > self._seen[directory]]
            try:
                await self._load(await self._store.get_acl_changes(directory, new))
            except CorruptDataError as error:
                self._trace.warning(str(error))
                must_reload = True
            self._seen[directory] = max([self._seen[directory], *names])
            if new:
                expired_ms = self._clock.wall_ms() - CHANGE_EXPIRATION_MS
                await self._store.purge_acl_changes(directory, names, expired_ms)
        if must_reload:
            await self._reload()


def _extended(added: Sequence[AclEntry], before: Entries) -> Entries:
    return (*before, *added)
