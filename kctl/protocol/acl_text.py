"""The text form of ACLs in commands, `kctl serve --acl` and tests. Pure.

    alice: Read,Describe topic:orders, Write topic:invoices-*, deny Read group:secret from 10.0.0.1

A name that ends with `*` is a prefix; `*` alone is every name. The cluster has no name. A principal
without a type is a user.
"""

from collections.abc import Iterable

from kctl.errors import UsageError
from kctl.protocol.acl import (
    CLUSTER_NAME,
    USER_TYPE,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    PermissionType,
    ResourceType,
    is_principal,
)
from kctl.protocol.acl_decisions import canonical_host

_OPERATIONS = {it.text.lower(): it for it in AclOperation}


def type_text(kind: ResourceType) -> str:
    """Return a type of resources as `parse_pattern` takes it: `transactional-id`; if it is unknown,
    its name."""
    if not kind.is_known:
        return kind.name
    return kind.name.lower().replace("_", "-")


_TYPES = {type_text(it): it for it in ResourceType}


def parse_principal(text: str) -> str:
    """Return `Type:name`; a name without a type is a user's."""
    if not text:
        raise UsageError("A principal must not be empty")
    return text if is_principal(text) else f"{USER_TYPE}:{text}"


def parse_operations(text: str) -> list[AclOperation]:
    """Parse `Read,DescribeConfigs`, in any case, with or without dashes; raise UsageError."""
    operations = []
    for word in text.split(","):
        operation = _OPERATIONS.get(word.strip().lower().replace("-", "").replace("_", ""))
        if operation is None:
            raise UsageError(
                f"{word.strip()!r} is not an operation",
                hint=f"use {', '.join(it.text for it in AclOperation)}",
            )
        operations.append(operation)
    return operations


def parse_pattern(text: str) -> AclPattern:
    """Parse `topic:orders`, `topic:orders-*`, `group:*` or `cluster`; raise UsageError."""
    word, _, name = text.partition(":")
    kind = _TYPES.get(word.strip().lower())
    if kind is None:
        raise UsageError(
            f"{text!r} is not a resource",
            hint=f"write TYPE:NAME, TYPE is one of {', '.join(_TYPES)}",
        )
    if kind is ResourceType.CLUSTER:
        if name not in ("", CLUSTER_NAME):
            raise UsageError(f"{text!r}: the cluster has no other name than {CLUSTER_NAME}")
        return AclPattern(kind, CLUSTER_NAME)
    if not name:
        raise UsageError(f"{text!r} has no name", hint=f"write {word}:NAME, or {word}:* for all")
    if name.endswith(WILDCARD) and name != WILDCARD:
        return AclPattern(kind, name[:-1], PatternType.PREFIXED)
    return AclPattern(kind, name)


def pattern_text(pattern: AclPattern) -> str:
    """Return a pattern as `parse_pattern` takes it; an unknown pattern type follows the name."""
    kind = type_text(pattern.resource_type)
    if pattern.resource_type is ResourceType.CLUSTER:
        return kind
    star = WILDCARD if pattern.pattern_type is PatternType.PREFIXED else ""
    unknown = "" if pattern.pattern_type.is_known else f" {pattern.pattern_type.name}"
    return f"{kind}:{pattern.name}{star}{unknown}"


def parse_host(text: str) -> str:
    """Return the host of an entry, an address or `*`, as brokers compare it; raise UsageError."""
    host = canonical_host(text)
    if host is None:
        raise UsageError(
            f"{text!r} is not an IP address", hint="brokers compare addresses, not names; * is any"
        )
    return host


def parse_acls(text: str) -> list[AclBinding]:
    """Parse `PRINCIPAL: [deny] OPERATIONS RESOURCE [from HOST], ...`; raise UsageError."""
    principal, separator, rules = text.partition(": ")
    if not separator:
        raise UsageError(
            f"{text!r} is not an ACL", hint='e.g. "alice: Read,Describe topic:orders, Read group:*"'
        )
    bindings: list[AclBinding] = []
    for rule in _rules(rules):
        bindings += _parse_rule(parse_principal(principal.strip()), rule)
    return bindings


def _rules(text: str) -> Iterable[list[str]]:
    """Yield the words of each rule; a comma ends one if a resource stands before it."""
    words: list[str] = []
    for word in text.split():
        ends = word.endswith(",") and bool(words)
        words.append(word.rstrip(","))
        if ends:
            yield words
            words = []
    if words:
        yield words


def _parse_rule(principal: str, words: list[str]) -> list[AclBinding]:
    rule, host, permission = list(words), WILDCARD, PermissionType.ALLOW
    if rule and rule[0].lower() in ("deny", "allow"):
        permission = PermissionType[rule.pop(0).upper()]
    if len(rule) == 4 and rule[2].lower() == "from":
        host = parse_host(rule[3])
        del rule[2:]
    if len(rule) != 2:
        raise UsageError(
            f"{' '.join(words)!r} is not a rule",
            hint="write [deny] OPERATIONS TYPE:NAME [from HOST]",
        )
    pattern = parse_pattern(rule[1])
    return [
        AclBinding(pattern, AclEntry(principal, host, operation, permission))
        for operation in parse_operations(rule[0])
    ]
