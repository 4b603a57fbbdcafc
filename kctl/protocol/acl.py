"""Access control lists: their vocabulary as it is on the wire, in znodes and in log lines; bindings
and filters. Pure.

A binding is one entry (principal, host, operation, permission) of one resource pattern. A filter
selects bindings: a null or ANY part matches everything.

Kafka 2.7: org.apache.kafka.common.acl, org.apache.kafka.common.resource,
kafka.security.authorizer.AclEntry; KIP-11, KIP-290.
"""

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple, Self

from kctl.protocol.error_codes import ErrorCode

CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
USER_TYPE = "User"
WILDCARD_PRINCIPAL = f"{USER_TYPE}:{WILDCARD}"
# Matches everything, as a part of a filter.
ANY = 1


class AclCode(IntEnum):
    """A number of the protocol; `text` is its name in znodes and log lines."""

    @classmethod
    def of(cls, number: int) -> Self:
        """Return the constant, or a stand-in called `UNKNOWN(number)` for one that later versions
        have; it is equal to `number` and to no constant."""
        if number in cls._value2member_map_:
            return cls(number)
        unknown = int.__new__(cls, number)
        unknown._name_, unknown._value_ = f"UNKNOWN({number})", number
        return unknown

    @property
    def is_known(self) -> bool:
        """Return whether this is a constant."""
        return self._value_ in type(self)._value2member_map_

    @cached_property
    def text(self) -> str:
        """Return the name as in `DescribeConfigs`, or `UNKNOWN(99)`."""
        return camel_case(self.name) if self.is_known else self.name


class ResourceType(AclCode):
    """The kind of a resource. Kafka 2.7 has no USER."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(AclCode):
    """How the name of a pattern relates to those of resources; MATCH is for filters only."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(AclCode):
    """What a principal does with a resource. The last three are of later versions (KIP-373,
    KIP-939)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(AclCode):
    """Whether an entry denies or allows."""

    DENY = 2
    ALLOW = 3


def camel_case(name: str) -> str:
    """Return a constant's name as log lines and znodes have it: `ListGroups` for LIST_GROUPS."""
    return "".join(word.capitalize() for word in name.split("_"))


RESOURCE_TYPES_BY_TEXT = {it.text: it for it in ResourceType}
OPERATIONS_BY_TEXT = {it.text: it for it in AclOperation}
PERMISSIONS_BY_TEXT = {it.text: it for it in PermissionType}

# The operations that an entry which allows the key also allows; ALL allows every operation. Entries
# that deny imply nothing else.
IMPLIED = {
    AclOperation.READ: (AclOperation.DESCRIBE,),
    AclOperation.WRITE: (AclOperation.DESCRIBE,),
    AclOperation.DELETE: (AclOperation.DESCRIBE,),
    AclOperation.ALTER: (AclOperation.DESCRIBE,),
    AclOperation.ALTER_CONFIGS: (AclOperation.DESCRIBE_CONFIGS,),
}

# The operations that have a meaning for resources of each type (KIP-430).
SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE,
        AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE),
    ResourceType.CLUSTER: (
        AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
}  # fmt: skip

# The error of a request that lacks a permission on a resource of each type.
AUTHORIZATION_ERRORS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class AclPattern(NamedTuple):
    """The resources that entries apply to: LITERAL the one of this name, or all if it is `*`;
    PREFIXED those whose names begin with it."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def matches(self, name: str) -> bool:
        """Return whether the pattern applies to a resource of its type that is called `name`."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def __str__(self) -> str:
        return f"{self.resource_type.text}:{self.pattern_type.name}:{self.name}"


class AclEntry(NamedTuple):
    """Whether a principal (`Type:name`) may do an operation from a host."""

    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType

    def __str__(self) -> str:
        return (
            f"{self.permission.text} {self.operation.text} for {self.principal}"
            f" from host {self.host}"
        )


class AclBinding(NamedTuple):
    """One entry of one pattern."""

    pattern: AclPattern
    entry: AclEntry

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"


def by_pattern(bindings: Iterable[AclBinding]) -> dict[AclPattern, list[AclEntry]]:
    """Return the entries of each pattern, both in the order of `bindings`."""
    found: dict[AclPattern, list[AclEntry]] = {}
    for pattern, entry in bindings:
        found.setdefault(pattern, []).append(entry)
    return found


class AclFilter(NamedTuple):
    """Selects bindings by the numbers and texts of the protocol; ANY and None match everything.

    With a name, pattern type MATCH selects the patterns that apply to a resource of that name, and
    ANY those of exactly that name.
    """

    resource_type: int = ANY
    name: str | None = None
    pattern_type: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    @classmethod
    def of(cls, binding: AclBinding) -> Self:
        """Return the filter that selects only `binding`."""
        pattern, entry = binding
        return cls._make([*pattern, *entry])

    def matches_pattern(self, pattern: AclPattern) -> bool:
        """Return whether the filter selects entries of `pattern`."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        kind = self.pattern_type
        if kind not in (ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if kind == PatternType.MATCH:
            return pattern.matches(self.name)
        return pattern.name == self.name

    def matches_entry(self, entry: AclEntry) -> bool:
        """Return whether the filter selects `entry` within a pattern that it selects."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the filter selects `binding`."""
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def named_patterns(self) -> list[AclPattern]:
        """Return the patterns that the filter can select, or none if that depends on which exist.

        Unlike `matches_pattern` this finds patterns that are in no list yet.
        """
        if self.name is None or self.resource_type == ANY or self.pattern_type == 2:
            return []
        kind = ResourceType(self.resource_type)
        types = (PatternType.LITERAL, PatternType.PREFIXED)
        return [AclPattern(kind, self.name, it) for it in types if self.pattern_type in (ANY, it)]


def is_principal(text: str) -> bool:
    """Return whether `text` is `Type:name`; the name may contain colons."""
    return ":" in text
