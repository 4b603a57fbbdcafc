"""AclRegistry: access control entries as znodes.

The entries of one pattern are one znode, written under its version and removed with its last entry.
With it a change is announced by a sequential znode, which every broker watches: below
`/kafka-acl-changes` for literal patterns, below `/kafka-acl-extended-changes` for prefixed ones.

Kafka 2.7: kafka.zk.KafkaZkClient (createAclPaths, getVersionedAclsForResource, ...),
kafka.security.authorizer.AclAuthorizer.updateResourceAcls.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from kctl.errors import CorruptDataError
from kctl.protocol.acl import RESOURCE_TYPES_BY_TEXT, AclEntry, AclPattern, PatternType
from kctl.store import security_znodes as znodes
from kctl.store.errors import BadVersionError, MultiError, NodeExistsError, NoNodeError
from kctl.store.interface import Create, Delete, Operation, Set
from kctl.store.znode_client import UPDATE_ATTEMPTS_MAX, ZnodeClient

Entries = tuple[AclEntry, ...]
# Entries that are decoded, compared or encoded between two turns for others, about 5 ms.
ENTRIES_PER_TURN = 2_000
# The directories of announcements.
ACL_CHANGE_PATHS = (znodes.ACL_CHANGES, znodes.EXTENDED_ACL_CHANGES)


class AclRegistry(ZnodeClient):
    """Entries per pattern, and the announcements of their changes."""

    async def create_acl_paths(self) -> None:
        """Create the directories unless they exist."""
        for path in znodes.ACL_PATHS:
            await self.make_path(path)

    async def get_acl_patterns(self) -> list[AclPattern]:
        """Return all patterns that have a znode, sorted; resource types that this version does not
        know are left out."""
        patterns: list[AclPattern] = []
        for kind in (PatternType.LITERAL, PatternType.PREFIXED):
            root = znodes.acl_root(kind)
            for text in await self.children(root):
                resource_type = RESOURCE_TYPES_BY_TEXT.get(text)
                if resource_type is not None:
                    names = await self.children(f"{root}/{text}")
                    patterns += [AclPattern(resource_type, name, kind) for name in names]
        return patterns

    async def get_acls(
        self, patterns: Sequence[AclPattern]
    ) -> dict[AclPattern, Entries | CorruptDataError]:
        """Return the entries of each pattern, none if it has no znode; or why they cannot be
        read."""
        found = await self.get_all(map(znodes.acl_path, patterns))
        entries: dict[AclPattern, Entries | CorruptDataError] = {}
        count = 0
        for pattern, answer in zip(patterns, found, strict=True):
            decoded = entries[pattern] = _decoded(pattern, answer[0]) if answer else ()
            count += 0 if isinstance(decoded, CorruptDataError) else len(decoded)
            if count >= ENTRIES_PER_TURN:
                count = 0
                await self.store.turn()
        return entries

    async def update_acls(
        self, pattern: AclPattern, change: Callable[[Entries], Awaitable[Sequence[AclEntry]]]
    ) -> Entries:
        """Replace the entries of a pattern by `change` of them, and announce it; return the new
        ones.

        Change and announcement are one transaction: no writer that dies in between leaves brokers
        with entries that nothing makes them read again. Concurrent changes are not lost; `change`
        may be called several times. Without an effect nothing is written. Raise CorruptDataError if
        the present entries cannot be read, and BadVersionError if each of UPDATE_ATTEMPTS_MAX
        attempts met a concurrent write.
        """
        path = znodes.acl_path(pattern)
        for _ in range(UPDATE_ATTEMPTS_MAX):
            found = await self.get(path)
            before = tuple(znodes.decode_acls(path, found[0])) if found else ()
            await self._turn_after(before)
            after = tuple(dict.fromkeys(await change(before)))
            if set(after) == set(before):
                return before
            write = _replacement(path, after, found[1].version if found else None)
            await self._turn_after(after)
            announcement = Create(
                znodes.acl_change_prefix(pattern), znodes.encode_acl_change(pattern), sequence=True
            )
            try:
                await self.call(partial(self.store.multi, [write, announcement]))
                return after
            except MultiError as error:
                if not isinstance(error.error, BadVersionError | NodeExistsError | NoNodeError):
                    raise
        raise BadVersionError(path)

    async def _turn_after(self, entries: Entries) -> None:
        """Give others a turn after work on many entries."""
        if len(entries) >= ENTRIES_PER_TURN:
            await self.store.turn()

    async def get_acl_changes(self, directory: str, names: Iterable[str]) -> list[AclPattern]:
        """Return the patterns, each once, that these announcements name; raise CorruptDataError if
        one of them cannot be read."""
        found = await self.get_all([f"{directory}/{name}" for name in names])
        return list(dict.fromkeys(znodes.decode_acl_change(it[0]) for it in found if it))


def _replacement(path: str, entries: Entries, version: int | None) -> Operation:
    """Return the operation that makes `entries` the data of a znode that has `version`."""
    if version is None:
        return Create(path, znodes.encode_acls(entries))
    if entries:
        return Set(path, znodes.encode_acls(entries), version)
    return Delete(path, version)


def _decoded(pattern: AclPattern, data: bytes) -> Entries | CorruptDataError:
    try:
        return tuple(znodes.decode_acls(znodes.acl_path(pattern), data))
    except CorruptDataError as error:
        return error
