"""ReassignmentCluster: access to a cluster's reassignments, by requests or by znodes.

Kafka 2.7: kafka.admin.ReassignPartitionsCommand (`--bootstrap-server` or `--zookeeper`)
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from kctl.admin.reassignment import Reassignments
from kctl.admin.replication_throttle import ApiThrottleConfigs, ReplicationThrottle
from kctl.admin.throttle_records import ThrottleRecords
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.scheduler import Scheduler

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.reassignment_plan import ClusterLayout, ReassignmentPlan
    from kctl.store.interface import MetadataStore

    Planner = Callable[[ClusterLayout], ReassignmentPlan]

T = TypeVar("T")


@dataclass(slots=True)
class ReassignmentCluster:
    """Access to one cluster's reassignments and throttles, by requests or by znodes."""

    cluster_id: str
    scheduler: Scheduler
    reassignments: Reassignments
    throttle: ReplicationThrottle
    records: ThrottleRecords
    # Sizes, log directories and progress are available by requests only.
    admin: "AdminClient | None" = None

    async def plan(self, planner: "Planner", *, with_sizes: bool = True) -> "ReassignmentPlan":
        """Return the plan of `planner`, a function of `reassignment_plan`, for the layout now."""
        return planner(await self.reassignments.layout(with_sizes=with_sizes))


async def on_cluster(
    admin: "AdminClient",
    zookeeper: str | None,
    records: ThrottleRecords,
    work: Callable[[ReassignmentCluster], Awaitable[T]],
) -> T:
    """Run `work` on the cluster of `admin`, or on the one at `zookeeper` (HOST:PORT[/PATH]).

    Raise UsageError if ZooKeeper holds no cluster.
    """
    runtime = admin.router.runtime
    if zookeeper is None:
        return await work(await cluster_by_requests(admin, runtime.scheduler, records))
    from kctl.store.zookeeper import COMMAND_CONNECTION_MS_MAX, ZooKeeperStore

    store = await ZooKeeperStore.open(
        runtime,
        zookeeper,
        connection_timeout_ms=min(admin.router.timeout_ms, COMMAND_CONNECTION_MS_MAX),
    )
    try:
        return await work(await cluster_by_znodes(store, zookeeper, runtime.scheduler, records))
    finally:
        await store.close()


async def cluster_by_requests(
    admin: "AdminClient", scheduler: Scheduler, records: ThrottleRecords
) -> ReassignmentCluster:
    """Return the cluster that `admin` is connected to (Kafka 2.4 and later)."""
    cluster = await admin.cluster.describe()
    return ReassignmentCluster(
        cluster.cluster_id or "unknown",
        scheduler,
        admin.reassignments,
        ReplicationThrottle(ApiThrottleConfigs(admin.router)),
        records,
        admin,
    )


async def cluster_by_znodes(
    store: "MetadataStore", address: str, scheduler: Scheduler, records: ThrottleRecords
) -> ReassignmentCluster:
    """Return the cluster whose znodes `store` holds; raise UsageError if it holds none."""
    from kctl.admin.reassignment_znodes import ZnodeReassignments
    from kctl.store.cluster_store import ClusterStore

    znodes = ZnodeReassignments(ClusterStore(store))
    cluster_id = await znodes.cluster_id()
    if cluster_id is None:
        raise UsageError(
            f"No Kafka cluster at {address}",
            hint="check the chroot path: --zookeeper HOST:PORT/PATH",
        )
    return ReassignmentCluster(cluster_id, scheduler, znodes, ReplicationThrottle(znodes), records)
