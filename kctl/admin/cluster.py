"""ClusterAdmin: the brokers and the controller of a cluster.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient (`describeCluster`); KIP-78, KIP-595
"""

from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING

from kctl.admin.quorum import QuorumAdmin
from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ApiError
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
    """A cluster; the id is None before Kafka 0.10.1, the controller is -1 if there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerDescription] = field(default_factory=list)


class ClusterAdmin:
    """The brokers of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def describe(self) -> ClusterDescription:
        """Return the cluster with its live brokers in order of id; raise UnreachableError.

        Without ZooKeeper, the controller may be a node that is no broker.
        """
        response = await self._router.send_to_any(MetadataRequest(topics=[]))
        controller = await self._controller_of_quorum()
        if controller is None:
            controller = response.controller_id
        brokers = [
            BrokerDescription(
                broker.node_id,
                broker.host,
                broker.port,
                broker.rack,
                broker.node_id == controller,
            )
            for broker in response.brokers
        ]
        brokers.sort(key=lambda broker: broker.broker_id)
        return ClusterDescription(response.cluster_id, controller, brokers)

    async def _controller_of_quorum(self) -> int | None:
        """Return the active controller, or None if the cluster uses ZooKeeper, or does not say.

        Without ZooKeeper, Metadata names any broker as the controller: each forwards requests.
        """
        quorum = QuorumAdmin(self._router)
        if await quorum.is_there():
            with suppress(ApiError):
                return (await quorum.describe()).leader_id
        return None
