"""AclRule: ACLs as the words of `kctl acl add` and the file of `kctl apply` declare them. Pure.

A rule is a principal with operations on resources, or with what a producer or a consumer needs; it
stands for one entry per resource and operation.

Kafka 2.7: kafka.admin.AclCommand (--producer, --consumer)
"""

from collections.abc import Sequence

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPattern,
    PermissionType,
    ResourceType,
)
from kctl.protocol.acl_text import (
    parse_host,
    parse_operations,
    parse_pattern,
    parse_principal,
    pattern_text,
    type_text,
)

_PRODUCER_NEEDS = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMER_NEEDS = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


@dataclass(frozen=True, slots=True)
class AclRule:
    """One rule; the texts are those of `kctl.protocol.acl_text`."""

    principal: str
    resources: Sequence[str]
    # As in `read,describe`; empty for a producer and a consumer.
    operations: str = ""
    host: str = WILDCARD
    is_denied: bool = False
    is_producer: bool = False
    is_consumer: bool = False
    # Whether the producer is idempotent, which brokers before Kafka 2.8 require a permission for.
    is_idempotent: bool = False

    def bindings(self) -> list[AclBinding]:
        """Return the entries of the rule, without repetition; raise UsageError."""
        self._check()
        who, host = parse_principal(self.principal), parse_host(self.host)
        patterns = [parse_pattern(text) for text in self.resources]
        if not self._is_role:
            permission = PermissionType.DENY if self.is_denied else PermissionType.ALLOW
            operations = parse_operations(self.operations)
            found = [
                AclBinding(pattern, AclEntry(who, host, operation, permission))
                for pattern in patterns
                for operation in operations
            ]
        else:
            found = self._role_bindings(who, host, patterns)
        return list(dict.fromkeys(found))

    @property
    def _is_role(self) -> bool:
        return self.is_producer or self.is_consumer

    def _check(self) -> None:
        """Raise UsageError if parts are missing or exclude each other."""
        if self.is_idempotent and not self.is_producer:
            raise UsageError("idempotent needs producer")
        if self._is_role and (self.is_denied or self.operations):
            raise UsageError("deny and operations exclude producer and consumer")
        if not self.resources or not (self.operations or self._is_role):
            raise UsageError("operations or resources are missing")

    def _role_bindings(
        self, who: str, host: str, patterns: Sequence[AclPattern]
    ) -> list[AclBinding]:
        """Return what the roles need; of both, each gets the types of resources that it needs."""
        needs = []
        if self.is_producer:
            needs.append(_PRODUCER_NEEDS)
        if self.is_consumer:
            needs.append(_CONSUMER_NEEDS)
        known = {kind for needed in needs for kind in needed}
        for pattern in patterns:
            if pattern.resource_type not in known:
                raise UsageError(
                    f"A {self._role} does not use {pattern_text(pattern)}",
                    hint=f"resources are {', '.join(type_text(it) for it in sorted(known))}",
                )
        found = [
            AclBinding(pattern, AclEntry(who, host, operation, PermissionType.ALLOW))
            for needed in needs
            for pattern in patterns
            for operation in needed.get(pattern.resource_type, ())
        ]
        if self.is_idempotent:
            cluster = AclPattern(ResourceType.CLUSTER, CLUSTER_NAME)
            entry = AclEntry(who, host, AclOperation.IDEMPOTENT_WRITE, PermissionType.ALLOW)
            found.append(AclBinding(cluster, entry))
        return found

    @property
    def _role(self) -> str:
        names = {"producer": self.is_producer, "consumer": self.is_consumer}
        return " and ".join(name for name, is_chosen in names.items() if is_chosen)
