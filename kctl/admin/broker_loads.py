"""BrokerLoads: how much of a cluster each broker leads and holds, as Metadata tells."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl.admin.cluster import ClusterDescription

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient


@dataclass(slots=True)
class BrokerCounts:
    """Partitions of one broker."""

    leaders: int = 0
    # Those that it is to lead when all is well.
    preferred: int = 0
    replicas: int = 0
    # Replicas of it that are out of sync.
    out_of_sync: int = 0


async def describe_brokers(
    admin: "AdminClient",
) -> tuple[ClusterDescription, dict[int, BrokerCounts]]:
    """The cluster, and the counts of every broker that lives or should."""
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
