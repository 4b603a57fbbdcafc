"""AdminClient: administration of one cluster; one attribute per kind of thing.

Every operation is a coroutine that returns dataclasses, with errors per item, and prints nothing:
`await admin.topics.list()`. Exceptions are for what concerns the whole request.

Kafka 2.7: org.apache.kafka.clients.admin.Admin
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.cluster import ClusterAdmin
    from kctl.admin.configs import ConfigAdmin
    from kctl.admin.elections import ElectionAdmin
    from kctl.admin.groups import GroupAdmin
    from kctl.admin.log_dirs import LogDirAdmin
    from kctl.admin.offset_reset import OffsetReset
    from kctl.admin.offsets import OffsetAdmin
    from kctl.admin.reassignment import ReassignmentAdmin
    from kctl.admin.topics import TopicAdmin
    from kctl.admin.transactions import TransactionAdmin
    from kctl.client.router import Router
    from kctl.runtime.runtime import Runtime


class AdminClient:
    """A Router and what can be asked through it; modules are imported when first used."""

    def __init__(self, router: "Router") -> None:
        self.router = router

    @classmethod
    def connect(
        cls,
        runtime: "Runtime",
        bootstrap_servers: Sequence[tuple[str, int]],
        timeout_ms: int,
        properties: Mapping[str, str] | None = None,
    ) -> "AdminClient":
        """A client of the cluster that has `bootstrap_servers`; nothing is sent yet."""
        from kctl.client.router import Router

        given = properties or {}
        protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if protocol != "PLAINTEXT":
            raise UsageError(
                f"security.protocol={protocol}: kctl speaks PLAINTEXT only as yet",
                hint="see docs/compatibility.md",
            )
        client_id = given.get("client.id", "kctl")
        router = Router(runtime, bootstrap_servers, client_id=client_id, timeout_ms=timeout_ms)
        return cls(router)

    def close(self) -> None:
        """Close all connections."""
        self.router.close()

    @cached_property
    def topics(self) -> "TopicAdmin":
        """Create, list, describe, delete."""
        from kctl.admin.topics import TopicAdmin

        return TopicAdmin(self.router)

    @cached_property
    def configs(self) -> "ConfigAdmin":
        """Describe and alter settings."""
        from kctl.admin.configs import ConfigAdmin

        return ConfigAdmin(self.router)

    @cached_property
    def groups(self) -> "GroupAdmin":
        """List, describe, delete consumer groups."""
        from kctl.admin.groups import GroupAdmin

        return GroupAdmin(self.router)

    @cached_property
    def offsets(self) -> "OffsetAdmin":
        """Bounds of partitions, committed offsets, deleting records."""
        from kctl.admin.offsets import OffsetAdmin

        return OffsetAdmin(self.router)

    @cached_property
    def transactions(self) -> "TransactionAdmin":
        """List, find and end transactions."""
        from kctl.admin.transactions import TransactionAdmin

        return TransactionAdmin(self.router)

    @cached_property
    def offset_reset(self) -> "OffsetReset":
        """Plan and carry out resets of groups."""
        from kctl.admin.offset_reset import OffsetReset

        return OffsetReset(self.router)

    @cached_property
    def cluster(self) -> "ClusterAdmin":
        """Brokers and the controller."""
        from kctl.admin.cluster import ClusterAdmin

        return ClusterAdmin(self.router)

    @cached_property
    def log_dirs(self) -> "LogDirAdmin":
        """Sizes of replicas."""
        from kctl.admin.log_dirs import LogDirAdmin

        return LogDirAdmin(self.router)

    @cached_property
    def elections(self) -> "ElectionAdmin":
        """Elect leaders."""
        from kctl.admin.elections import ElectionAdmin

        return ElectionAdmin(self.router)

    @cached_property
    def reassignments(self) -> "ReassignmentAdmin":
        """Move replicas to other brokers."""
        from kctl.admin.reassignment import ReassignmentAdmin

        return ReassignmentAdmin(self.router)
