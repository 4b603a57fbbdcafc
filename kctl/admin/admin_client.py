"""AdminClient: administration of one cluster, with one attribute per kind of resource.

Operations are coroutines that return dataclasses: `await admin.topics.list_topics()`. Errors that
concern one item are in its result; an error that concerns the whole request is raised.

Kafka 2.7: org.apache.kafka.clients.admin.Admin
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.admin.acls import AclAdmin
    from kctl.admin.client_quotas import QuotaAdmin
    from kctl.admin.cluster import ClusterAdmin
    from kctl.admin.configs import ConfigAdmin
    from kctl.admin.elections import ElectionAdmin
    from kctl.admin.features import FeatureAdmin
    from kctl.admin.groups import GroupAdmin
    from kctl.admin.log_dirs import LogDirAdmin
    from kctl.admin.offset_reset import OffsetReset
    from kctl.admin.quorum import QuorumAdmin
    from kctl.admin.reassignment import ReassignmentAdmin
    from kctl.admin.tokens import TokenAdmin
    from kctl.admin.topics import TopicAdmin
    from kctl.admin.transactions import TransactionAdmin
    from kctl.admin.users import UserAdmin
    from kctl.client.offsets import OffsetsClient
    from kctl.client.router import Router
    from kctl.runtime.runtime import Runtime


class AdminClient:
    """The administration of one cluster over one Router; modules are imported on first use."""

    def __init__(self, router: "Router") -> None:
        self.router = router

    @classmethod
    def connect(
        cls,
        runtime: "Runtime",
        bootstrap_servers: Sequence[tuple[str, int]],
        timeout_ms: int,
        properties: Mapping[str, str] | None = None,
        *,
        reads_only: bool = False,
    ) -> "AdminClient":
        """Return a client of the cluster that `bootstrap_servers`, (host, port) pairs, belong to.

        `timeout_ms` is the default deadline of an operation. `properties` are Kafka's client
        settings, of which `client.id`, `security.protocol`, `sasl.*` and `ssl.*` have an effect,
        and librdkafka's `api.version.request` and `broker.version.fallback`. Nothing is sent yet:
        an unreachable cluster raises UnreachableError from the first operation, and
        rejected credentials AuthenticationError. With `reads_only`, a request that could change
        something is not sent and raises UsageError. Raise UsageError for settings that are not
        valid.
        """
        from kctl.client.old_brokers import VersionFallback
        from kctl.client.router import Router
        from kctl.client.security import ClientSecurity

        given = properties or {}
        router = Router(
            runtime,
            bootstrap_servers,
            client_id=given.get("client.id", "kctl"),
            timeout_ms=timeout_ms,
            security=ClientSecurity.of(given),
            reads_only=reads_only,
            fallback=VersionFallback.of(given),
        )
        return cls(router)

    def close(self) -> None:
        """Close all connections."""
        self.router.close()

    @cached_property
    def topics(self) -> "TopicAdmin":
        """Create, list, describe, enlarge and delete topics."""
        from kctl.admin.topics import TopicAdmin

        return TopicAdmin(self.router)

    @cached_property
    def configs(self) -> "ConfigAdmin":
        """Describe and alter configs."""
        from kctl.admin.configs import ConfigAdmin

        return ConfigAdmin(self.router)

    @cached_property
    def groups(self) -> "GroupAdmin":
        """List, describe and delete consumer groups, and compute their lag."""
        from kctl.admin.groups import GroupAdmin

        return GroupAdmin(self.router)

    @cached_property
    def offsets(self) -> "OffsetsClient":
        """Find offsets of partitions, read and commit offsets of groups, delete records."""
        from kctl.client.offsets import OffsetsClient

        return OffsetsClient(self.router)

    @cached_property
    def transactions(self) -> "TransactionAdmin":
        """List and find transactions, and end them."""
        from kctl.admin.transactions import TransactionAdmin

        return TransactionAdmin(self.router)

    @cached_property
    def offset_reset(self) -> "OffsetReset":
        """Plan and execute offset resets of groups."""
        from kctl.admin.offset_reset import OffsetReset

        return OffsetReset(self.router)

    @cached_property
    def cluster(self) -> "ClusterAdmin":
        """Describe brokers and the controller."""
        from kctl.admin.cluster import ClusterAdmin

        return ClusterAdmin(self.router)

    @cached_property
    def quorum(self) -> "QuorumAdmin":
        """Describe the controllers of a cluster without ZooKeeper."""
        from kctl.admin.quorum import QuorumAdmin

        return QuorumAdmin(self.router)

    @cached_property
    def features(self) -> "FeatureAdmin":
        """Describe and upgrade the features of a cluster."""
        from kctl.admin.features import FeatureAdmin

        return FeatureAdmin(self.router)

    @cached_property
    def log_dirs(self) -> "LogDirAdmin":
        """Describe log directories, and move replicas between them."""
        from kctl.admin.log_dirs import LogDirAdmin

        return LogDirAdmin(self.router)

    @cached_property
    def elections(self) -> "ElectionAdmin":
        """Elect leaders."""
        from kctl.admin.elections import ElectionAdmin

        return ElectionAdmin(self.router)

    @cached_property
    def users(self) -> "UserAdmin":
        """List users, set their passwords and delete them."""
        from kctl.admin.users import UserAdmin

        return UserAdmin(self.router)

    @cached_property
    def tokens(self) -> "TokenAdmin":
        """Create, list, renew and expire delegation tokens."""
        from kctl.admin.tokens import TokenAdmin

        return TokenAdmin(self.router)

    @cached_property
    def quotas(self) -> "QuotaAdmin":
        """Describe and alter the quotas of users and client ids."""
        from kctl.admin.client_quotas import QuotaAdmin

        return QuotaAdmin(self.router)

    @cached_property
    def acls(self) -> "AclAdmin":
        """List, create and delete ACLs, and find the one that decides."""
        from kctl.admin.acls import AclAdmin

        return AclAdmin(self.router)

    @cached_property
    def reassignments(self) -> "ReassignmentAdmin":
        """Move replicas between brokers."""
        from kctl.admin.reassignment import ReassignmentAdmin

        return ReassignmentAdmin(self.router)
