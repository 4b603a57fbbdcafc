"""AclIndex: decides whether a principal may do an operation on a resource. Pure.

The entries of a resource are those of every prefixed pattern that its name begins with, of the
wildcard pattern `*`, and of its own name. The first rule that applies decides:

1. A super user may do everything.
2. Without any entry, `allow.everyone.if.no.acl.found` decides.
3. An entry that denies the operation, or ALL, to the principal and its host.
4. An entry that allows it: for the operation itself, for ALL, or for one that implies it.
5. No.

The entries of a crowded pattern are found by principal and host: a decision takes the same time for
one entry and for ten thousand.

Principals and hosts are compared as text, where `User:*` and `*` stand for any; a host is written
as Java writes addresses, so IPv6 without `::`.

Kafka 2.7: kafka.security.authorizer.AclAuthorizer; KIP-11, KIP-290.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from itertools import chain
from typing import Final, NamedTuple

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
# Entries of a pattern that are compared one by one.
_FEW_ENTRIES: Final = 8

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


class _Rules:
    """The entries of one pattern, in their order."""

    __slots__ = ("_by_party", "entries", "pattern")

    def __init__(self, pattern: AclPattern, entries: Entries) -> None:
        self.pattern = pattern
        self.entries = entries
        # (principal, host) -> the places of their entries; None: there are few.
        self._by_party: dict[tuple[str, str], list[int]] | None = None
        if len(entries) > _FEW_ENTRIES:
            self._by_party = {}
            for place, entry in enumerate(entries):
                self._by_party.setdefault((entry.principal, entry.host), []).append(place)

    def about(self, principal: str, host: str) -> Sequence[AclEntry]:
        """Return the entries for the principal at the host, in their order."""
        if self._by_party is None:
            principals, hosts = (principal, WILDCARD_PRINCIPAL), (host, WILDCARD)
            return [it for it in self.entries if it.principal in principals and it.host in hosts]
        # Each once: the client's host may be written like the wildcard.
        parties = {(p, h) for p in (principal, WILDCARD_PRINCIPAL) for h in (host, WILDCARD)}
        found = [self._by_party.get(party, ()) for party in parties]
        return [self.entries[place] for place in sorted(chain.from_iterable(found))]


class AclIndex:
    """The entries of all patterns of a cluster."""

    def __init__(self) -> None:
        self._rules: dict[AclPattern, _Rules] = {}
        # The same by type and name: prefixed patterns, and literal ones.
        self._prefixed: dict[ResourceType, dict[str, _Rules]] = {it: {} for it in ResourceType}
        self._literal: dict[ResourceType, dict[str, _Rules]] = {it: {} for it in ResourceType}
        # Per type: the number of prefixed patterns with a name of each length.
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {it: {} for it in ResourceType}

    def __len__(self) -> int:
        return len(self._rules)

    def replace(self, pattern: AclPattern, entries: Iterable[AclEntry]) -> bool:
        """Set the entries of a pattern; return whether they are different ones."""
        now = tuple(entries)
        before = self.entries(pattern)
        if now == before:
            return False
        by_name = self._names_of(pattern)
        if now:
            self._rules[pattern] = rules = _Rules(pattern, now)
            if by_name is not None:
                by_name[pattern.name] = rules
        else:
            del self._rules[pattern]
            if by_name is not None:
                del by_name[pattern.name]
        if pattern.pattern_type is PatternType.PREFIXED and bool(now) != bool(before):
            self._count_prefix(pattern, 1 if now else -1)
        return True

    def _names_of(self, pattern: AclPattern) -> dict[str, _Rules] | None:
        """Return where decisions look for the pattern; None for a type that never applies, such as
        one of a later release."""
        if pattern.pattern_type is PatternType.PREFIXED:
            return self._prefixed[pattern.resource_type]
        if pattern.pattern_type is PatternType.LITERAL:
            return self._literal[pattern.resource_type]
        return None

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
        return list(self._rules)

    def entries(self, pattern: AclPattern) -> Entries:
        """Return the entries of one pattern."""
        rules = self._rules.get(pattern)
        return () if rules is None else rules.entries

    def _applying(self, resource_type: ResourceType, name: str) -> Iterator[_Rules]:
        """Yield the entries of each pattern that applies to a resource."""
        prefixed, length = self._prefixed[resource_type], len(name)
        for size in self._prefix_lengths[resource_type]:
            if size <= length and (rules := prefixed.get(name[:size])) is not None:
                yield rules
        literal = self._literal[resource_type]
        for text in dict.fromkeys((WILDCARD, name)):
            if (rules := literal.get(text)) is not None:
                yield rules

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
        for rules in self._applying(resource_type, name):
            has_entries = True
            for entry in rules.about(principal, host):
                if entry.permission is PermissionType.ALLOW:
                    if allowed is None and entry.operation in allowing:
                        allowed = AclBinding(rules.pattern, entry)
                elif entry.operation in (operation, AclOperation.ALL):
                    denying = AclBinding(rules.pattern, entry)
                    return Verdict(is_allowed=False, reason=Reason.DENIED, binding=denying)
        if allowed is not None:
            return Verdict(is_allowed=True, reason=Reason.ALLOWED, binding=allowed)
        if not has_entries:
            return Verdict(allow_if_no_acl, Reason.NO_ACLS)
        return Verdict(is_allowed=False, reason=Reason.NOT_ALLOWED)


@lru_cache(maxsize=1_000)
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
