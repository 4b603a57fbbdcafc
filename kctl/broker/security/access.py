# ruff: noqa: ARG002 - UNRESTRICTED ignores what is asked for
"""Access: what the client of one request may do; how handlers and guards ask.

Every Request has one. Without an authorizer, and for requests of this broker's own controller, it
is UNRESTRICTED. Pure.

Kafka 2.7: kafka.server.KafkaApis (authorize, filterByAuthorized, authorizedOperations).
"""

from collections.abc import Iterable
from typing import Protocol

from kctl.protocol.acl import SUPPORTED_OPERATIONS, AclOperation, ResourceType


class Access(Protocol):
    """What the client of one request may do."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_probe: bool = False,
        count: int = 1,
    ) -> bool:
        """Return whether the operation is allowed. A denial is logged, unless `is_probe`: then the
        client did not request the operation, and the result only filters what it sees. `count` is
        how often the request names the resource."""
        ...

    def allows_cluster(self, operation: AclOperation, *, is_probe: bool = False) -> bool:
        """Return whether the operation on the cluster is allowed."""
        ...

    def allowed(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        is_probe: bool = False,
    ) -> set[str]:
        """Return those of `names` on which the operation is allowed; each is decided once."""
        ...

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return all operations allowed on a resource: bit n for operation n (KIP-430)."""
        ...


_ALL_OPERATIONS = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}


class Unrestricted:
    """Everything is allowed."""

    def allows(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_probe: bool = False,
        count: int = 1,
    ) -> bool:
        """Return True."""
        return True

    def allows_cluster(self, operation: AclOperation, *, is_probe: bool = False) -> bool:
        """Return True."""
        return True

    def allowed(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        is_probe: bool = False,
    ) -> set[str]:
        """Return all names."""
        return set(names)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return all operations that resources of this type have."""
        return _ALL_OPERATIONS[resource_type]


UNRESTRICTED: Access = Unrestricted()
