"""AclCache: keeps an authorizer's entries equal to those in the store, and changes the store.

An announced pattern is read again; after each reconnection to the store everything is. A change by
this broker is in force here before it is acknowledged.

A pattern whose entries cannot be read denies everything to everyone but super users, since one of
them may deny something.

Kafka 2.7: kafka.security.authorizer.AclAuthorizer, kafka.common.ZkNodeChangeNotificationListener.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Self

from kctl.broker.announced_changes import AnnouncedChanges, OverlappingReads
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
    by_pattern,
)
from kctl.protocol.acl_decisions import Entries
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import next_turn
from kctl.store.acl_registry import ACL_CHANGE_PATHS
from kctl.store.cluster_store import ClusterStore

# Patterns read between two turns for others.
PATTERNS_PER_READ = 500
# Entries that one pattern may have: they are one znode, which every change writes as a whole.
# (Apache Kafka is limited by the size of ZooKeeper's frames, to about as many.)
ENTRIES_PER_PATTERN_MAX = 10_000
_DENY_ALL = AclEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, PermissionType.DENY)


class AclCache:
    """Follows the store for one authorizer."""

    def __init__(
        self, runtime: Runtime, cluster_store: ClusterStore, authorizer: AclAuthorizer
    ) -> None:
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._store = cluster_store
        self.authorizer = authorizer
        # The entries in force.
        self.index = authorizer.index
        self._reads = OverlappingReads[AclPattern]()
        self._changes = AnnouncedChanges(
            runtime, cluster_store, "ACLs", ACL_CHANGE_PATHS, self._read_changes, self._reload
        )

    @classmethod
    async def open(
        cls, runtime: Runtime, cluster_store: ClusterStore, settings: AuthorizerSettings
    ) -> Self:
        """Return the started cache of an authorizer; StoreError."""
        authorizer = AclAuthorizer(settings, runtime.trace, runtime.clock.monotonic_ms)
        cache = cls(runtime, cluster_store, authorizer)
        await cache.start()
        return cache

    async def start(self) -> None:
        """Read everything and watch for changes; StoreError."""
        await self._store.create_acl_paths()
        await self._changes.start(self._reload)

    async def change(
        self, pattern: AclPattern, change: Callable[[Entries], Awaitable[Sequence[AclEntry]]]
    ) -> None:
        """Replace the entries of a pattern in the store by `change` of them, and put them in force.

        `change` may be called several times. Raise StoreError or CorruptDataError.
        """
        await self._store.update_acls(pattern, change)
        await self._load([pattern])

    async def extend(self, pattern: AclPattern, added: Sequence[AclEntry]) -> None:
        """Store more entries of a pattern and put them in force; StoreError, CorruptDataError,
        and ApiError if the pattern would have more than ENTRIES_PER_PATTERN_MAX."""

        async def extended(before: Entries) -> Sequence[AclEntry]:
            after = tuple(dict.fromkeys((*before, *added)))
            if len(after) > ENTRIES_PER_PATTERN_MAX:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"{pattern} would have more than {ENTRIES_PER_PATTERN_MAX} ACLs",
                )
            return after

        await self.change(pattern, extended)

    async def add(self, bindings: Iterable[AclBinding]) -> None:
        """Store more entries and put them in force; StoreError, CorruptDataError."""
        for pattern, added in by_pattern(bindings).items():
            await self.extend(pattern, added)

    async def _reload(self) -> None:
        stored = await self._store.get_acl_patterns()
        known = self.authorizer.index.patterns()
        await self._load(list(dict.fromkeys([*stored, *known])))

    async def _load(self, patterns: Sequence[AclPattern]) -> None:
        with self._reads.read() as is_latest:
            for start in range(0, len(patterns), PATTERNS_PER_READ):
                if start:
                    await next_turn(self._scheduler)
                part = patterns[start : start + PATTERNS_PER_READ]
                for pattern, found in (await self._store.get_acls(part)).items():
                    if is_latest(pattern):
                        self.authorizer.replace(pattern, self._readable(pattern, found))

    def _readable(self, pattern: AclPattern, found: Entries | CorruptDataError) -> Entries:
        if not isinstance(found, CorruptDataError):
            return found
        self._trace.warning(f"all access to {pattern} is denied, as its ACLs are invalid: {found}")
        return (_DENY_ALL,)

    async def _read_changes(self, directory: str, names: Sequence[str]) -> None:
        try:
            await self._load(await self._store.get_acl_changes(directory, names))
        except CorruptDataError as error:
            self._trace.warning(str(error))
            await self._reload()
