"""AclIndex: decides whether a principal may do an operation on a resource. Pure.

The entries of a resource are those of every prefixed pattern that its name begins with, of the
wildcard pattern `*`, and of its own name. The first rule that applies decides:

1. A super user may do everything.
2. Without any entry, `allow.everyone.if.no.acl.found` decides.
3. An entry that denies the operation, or ALL, to the principal and its host.
4. An entry that allows it: for the operation itself, for ALL, or for one that implies it.
5. No.

Principals and hosts are compared as text, where `User:*` and `*` stand for any; a host is written
as Java writes addresses, so IPv6 without `::`.

Kafka 2.7: kafka.security.authorizer.AclAuthorizer; KIP-11, KIP-290.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NamedTuple

from kctl.protocol.acl import (
    IMPLIED,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
)

Entries = tuple[AclEntry, ...]

# Operation -> the operations whose entries allow it.
_ALLOWING = {
    operation: frozenset(
        {operation, AclOperation.ALL, *(it for it, also in IMPLIED.items() if operation in also)}
    )
    for operation in AclOperation
}


class Reason(Enum):
    """The rule that decided."""

    SUPER_USER = "the principal is a super user"
    NO_ACLS = "no entry applies to the resource"
    DENIED = "an entry denies it"
    ALLOWED = "an entry allows it"
    NOT_ALLOWED = "no entry allows it"


class Verdict(NamedTuple):
    """A decision, and the binding that made it, if one did."""

    is_allowed: bool
    reason: Reason
    binding: AclBinding | None = None


class AclIndex:
    """The entries of all patterns of a cluster."""

    def __init__(self) -> None:
        self._entries: dict[AclPattern, Entries] = {}
        # Per type: the number of prefixed patterns with a name of each length.
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {it: {} for it in ResourceType}

    def __len__(self) -> int:
        return len(self._entries)

    def replace(self, pattern: AclPattern, entries: Iterable[AclEntry]) -> bool:
        """Set the entries of a pattern; return whether they are different ones."""
        now = tuple(entries)
        before = self._entries.get(pattern, ())
        if pattern.pattern_type is PatternType.PREFIXED and bool(now) != bool(before):
            self._count_prefix(pattern, 1 if now else -1)
        if now:
            self._entries[pattern] = now
        else:
            self._entries.pop(pattern, None)
        return now != before

    def _count_prefix(self, pattern: AclPattern, change: int) -> None:
        lengths = self._prefix_lengths[pattern.resource_type]
        size = len(pattern.name)
        count = lengths.get(size, 0) + change
        if count:
            lengths[size] = count
        else:
            del lengths[size]

    def patterns(self) -> list[AclPattern]:
        """Return all patterns that have entries."""
        return list(self._entries)

    def entries(self, pattern: AclPattern) -> Entries:
        """Return the entries of one pattern."""
        return self._entries.get(pattern, ())

    def matching(self, resource_type: ResourceType, name: str) -> Iterator[AclPattern]:
        """Yield the patterns with entries that apply to a resource."""
        for size in self._prefix_lengths[resource_type]:
            if size <= len(name):
                pattern = AclPattern(resource_type, name[:size], PatternType.PREFIXED)
                if pattern in self._entries:
                    yield pattern
        for text in dict.fromkeys((WILDCARD, name)):
            pattern = AclPattern(resource_type, text)
            if pattern in self._entries:
                yield pattern

    def decide(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        allow_if_no_acl: bool,
    ) -> Verdict:
        """Apply rules 2 to 5."""
        has_entries = False
        allowing = _ALLOWING[operation]
        allowed: AclBinding | None = None
        for pattern in self.matching(resource_type, name):
            has_entries = True
            for entry in self._entries[pattern]:
                if entry.principal not in (principal, WILDCARD_PRINCIPAL):
                    continue
                if entry.host not in (host, WILDCARD):
                    continue
                if entry.permission is PermissionType.ALLOW:
                    if allowed is None and entry.operation in allowing:
                        allowed = AclBinding(pattern, entry)
                elif entry.operation in (operation, AclOperation.ALL):
                    return Verdict(
                        is_allowed=False, reason=Reason.DENIED, binding=AclBinding(pattern, entry)
                    )
        if allowed is not None:
            return Verdict(is_allowed=True, reason=Reason.ALLOWED, binding=allowed)
        if not has_entries:
            return Verdict(allow_if_no_acl, Reason.NO_ACLS)
        return Verdict(is_allowed=False, reason=Reason.NOT_ALLOWED)


def java_host_address(host: str) -> str:
    """Return an address as Java's `InetAddress.getHostAddress` writes it.

    IPv6 has eight groups, `0:0:0:0:0:0:0:1`, and keeps its scope; IPv4 mapped into IPv6 is IPv4.
    Any other text is returned as it is.
    """
    address, percent, scope = host.partition("%")
    try:
        found = IPv6Address(address)
    except AddressValueError:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    groups = ":".join(f"{int(group, 16):x}" for group in found.exploded.split(":"))
    return groups + percent + scope


def canonical_host(text: str) -> str | None:
    """Return the host of a new entry in the spelling that decisions compare, `*` included; None if
    `text` is no address: an entry with it never applies."""
    if text == WILDCARD:
        return text
    address = text.partition("%")[0]
    for kind in (IPv4Address, IPv6Address):
        try:
            kind(address)
        except AddressValueError:
            continue
        return java_host_address(text)
    return None
