"""Describes brokers: what each leads and holds, its log directories and its dynamic configs."""

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.cluster import BrokerDescription, ClusterDescription
from kctl.errors import KctlError, not_found
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.log_dirs import LogDirDescription


@dataclass(slots=True)
class BrokerCounts:
    """The numbers of partitions of one broker."""

    leaders: int = 0
    # Partitions of which it is the preferred leader.
    preferred: int = 0
    replicas: int = 0
    # Its replicas that are out of sync.
    out_of_sync: int = 0


async def describe_brokers(
    admin: "AdminClient",
) -> tuple[ClusterDescription, dict[int, BrokerCounts]]:
    """Return the cluster, and the counts of every broker that is alive or holds a replica."""
    cluster = await admin.cluster.describe()
    counts = {broker.broker_id: BrokerCounts() for broker in cluster.brokers}
    for topic in await admin.topics.list_topics():
        for partition in topic.partitions:
            for index, broker_id in enumerate(partition.replicas):
                held = counts.setdefault(broker_id, BrokerCounts())
                held.replicas += 1
                held.preferred += index == 0
                held.leaders += partition.leader == broker_id
                held.out_of_sync += broker_id not in partition.isr
    return cluster, counts


@dataclass(slots=True)
class BrokerOverview:
    """One broker: its place in the cluster, and what only the broker itself reports."""

    broker_id: int
    counts: BrokerCounts
    # None if the broker is not alive; then the fields below are empty, too.
    broker: BrokerDescription | None = None
    log_dirs: "list[LogDirDescription]" = field(default_factory=list)
    # Dynamic configs with their values; None for a sensitive one.
    configs: dict[str, str | None] = field(default_factory=dict)
    # Why the broker did not report its directories and configs.
    error: KctlError | None = None


async def overview_of_brokers(
    admin: "AdminClient", broker_ids: Sequence[int] = ()
) -> list[BrokerOverview]:
    """Return these brokers, or all that are alive or hold a replica.

    Raise NotFoundError for a broker that neither is alive nor holds a replica.
    """
    cluster, counts = await describe_brokers(admin)
    alive = {broker.broker_id: broker for broker in cluster.brokers}
    for broker_id in broker_ids:
        if broker_id not in counts:
            raise not_found("broker", broker_id, sorted(counts))
    overviews = []
    for broker_id in broker_ids or sorted(counts):
        overview = BrokerOverview(broker_id, counts[broker_id], alive.get(broker_id))
        if overview.broker is not None:
            try:
                await _look_inside(admin, overview)
            except KctlError as error:
                overview.error = error
        overviews.append(overview)
    return overviews


async def _look_inside(admin: "AdminClient", overview: BrokerOverview) -> None:
    from kctl.admin.configs import ConfigResource, ConfigSource, ResourceType

    overview.log_dirs = await admin.log_dirs.describe([overview.broker_id])
    resource = ConfigResource(ResourceType.BROKER, str(overview.broker_id))
    [found] = await admin.configs.describe([resource])
    overview.configs = {
        entry.name: entry.value
        for entry in found.entries
        if entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG
    }
