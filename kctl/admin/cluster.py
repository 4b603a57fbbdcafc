"""ClusterAdmin: the brokers, the controller, and what each broker speaks.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient (`describeCluster`); KIP-78, KIP-35
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kctl.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from kctl.client.router import Router


@dataclass(slots=True)
class BrokerDescription:
    """A live broker as clients see it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool


@dataclass(slots=True)
class ClusterDescription:
    """A cluster; id None before Kafka 0.10.1, controller -1: none just now."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerDescription] = field(default_factory=list)


class ClusterAdmin:
    """The cluster itself."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def describe(self) -> ClusterDescription:
        """Brokers by id."""
        response = await self._router.send_to_any(MetadataRequest(topics=[]))
        brokers = [
            BrokerDescription(
                broker.node_id,
                broker.host,
                broker.port,
                broker.rack,
                broker.node_id == response.controller_id,
            )
            for broker in response.brokers
        ]
        brokers.sort(key=lambda broker: broker.broker_id)
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)
