"""The two ways to a cluster's reassignments: its brokers, or with --zookeeper its znodes."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from kctl.cli.session import Session
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.reassignment import Reassignments
    from kctl.admin.replication_throttle import ReplicationThrottle
    from kctl.runtime.future import Task
    from kctl.runtime.scheduler import Scheduler

T = TypeVar("T")

ZooKeeperOption = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="HOST:PORT[/PATH]",
        help="By znodes, for clusters older than Kafka 2.4.",
    ),
]


@dataclass(slots=True)
class Door:
    """A cluster, reached one way or the other."""

    cluster_id: str
    scheduler: "Scheduler"
    reassignments: "Reassignments"
    throttle: "ReplicationThrottle"
    # Only by requests: sizes, directories, and how far moves are.
    admin: "AdminClient | None" = None


def run_at(
    session: Session,
    zookeeper: str | None,
    work: Callable[[Door], Coroutine[Any, Any, T]],
    on_start: "Callable[[Task[T]], object] | None" = None,
) -> T:
    """Drive `work` against the cluster; UsageError if ZooKeeper knows none there."""

    async def through(admin: "AdminClient") -> T:
        if zookeeper is None:
            return await work(await _by_requests(session, admin))
        return await _by_znodes(session, zookeeper, work)

    return session.run(through, on_start)


async def _by_requests(session: Session, admin: "AdminClient") -> Door:
    from kctl.admin.replication_throttle import ApiThrottleConfigs, ReplicationThrottle

    cluster = await admin.cluster.describe()
    return Door(
        cluster.cluster_id or "unknown",
        session.runtime.scheduler,
        admin.reassignments,
        ReplicationThrottle(ApiThrottleConfigs(admin.router)),
        admin,
    )


async def _by_znodes(
    session: Session, zookeeper: str, work: Callable[[Door], Coroutine[Any, Any, T]]
) -> T:
    from kctl.admin.reassignment_znodes import ZnodeReassignments
    from kctl.admin.replication_throttle import ReplicationThrottle
    from kctl.store.cluster_store import ClusterStore
    from kctl.store.zookeeper import ZooKeeperStore

    timeout_ms = session.settings.timeout_ms
    store = await ZooKeeperStore.open(session.runtime, zookeeper, connection_timeout_ms=timeout_ms)
    try:
        znodes = ZnodeReassignments(ClusterStore(store))
        cluster_id = await znodes.cluster_id()
        if cluster_id is None:
            raise UsageError(
                f"No Kafka cluster at {zookeeper}", hint="is its path missing? HOST:PORT/PATH"
            )
        return await work(
            Door(cluster_id, session.runtime.scheduler, znodes, ReplicationThrottle(znodes))
        )
    finally:
        await store.close()
