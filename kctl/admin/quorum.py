"""QuorumAdmin: the controllers of a cluster without ZooKeeper, and their metadata log.

Kafka 4.1: org.apache.kafka.clients.admin.KafkaAdminClient (describeMetadataQuorum),
org.apache.kafka.tools.MetadataQuorumCommand; KIP-595, KIP-836, KIP-853
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.client.results import raise_for
from kctl.lazy_dataclass import dataclass
from kctl.protocol.later_apis import LaterApi
from kctl.protocol.primitives import uuid_text
from kctl.protocol.schema import NO_UUID

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.later.describe_quorum import PartitionDataResponse, ReplicaState

METADATA_TOPIC = "__cluster_metadata"


class QuorumRole(StrEnum):
    """What a node is to the metadata log."""

    LEADER = "leader"
    FOLLOWER = "follower"
    # It fetches the log without a vote, as brokers do.
    OBSERVER = "observer"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node that has the metadata log. Times are in milliseconds, None where unknown."""

    node_id: int
    role: QuorumRole
    log_end_offset: int
    # Records behind the leader.
    lag: int
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    # None before Kafka 3.9, or for a quorum whose members are fixed.
    directory_id: str | None = None
    # Addresses of a voter's listeners, by name; empty before Kafka 3.9.
    listeners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum: its leader is the active controller. Voters come first."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplica, ...]


class QuorumAdmin:
    """The controllers of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def is_there(self) -> bool:
        """Return whether the cluster has a quorum of controllers, and not ZooKeeper."""
        return await self._router.max_version(LaterApi.DESCRIBE_QUORUM) >= 0

    async def describe(self) -> QuorumDescription:
        """Return the quorum; raise ApiError, with the release that has it, if the cluster uses
        ZooKeeper."""
        from kctl.protocol.later.describe_quorum import (
            DescribeQuorumRequest,
            PartitionData,
            TopicData,
        )

        wanted = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
        response = await self._router.send_to_any(DescribeQuorumRequest(topics=[wanted]))
        raise_for(response.error_code, response.error_message)
        partition = response.topics[0].partitions[0]
        raise_for(partition.error_code, partition.error_message)
        listeners = {
            node.node_id: tuple(f"{it.name}://{it.host}:{it.port}" for it in node.listeners)
            for node in response.nodes
        }
        return _description(partition, listeners)


def _description(
    partition: "PartitionDataResponse", listeners: dict[int, tuple[str, ...]]
) -> QuorumDescription:
    voters, observers = partition.current_voters, partition.observers
    ends = [it.log_end_offset for it in voters if it.replica_id == partition.leader_id]
    end = max(ends, default=partition.high_watermark)

    def replica(state: "ReplicaState", role: QuorumRole) -> QuorumReplica:
        has_directory = state.replica_directory_id != NO_UUID
        return QuorumReplica(
            state.replica_id,
            QuorumRole.LEADER if state.replica_id == partition.leader_id else role,
            state.log_end_offset,
            max(0, end - state.log_end_offset),
            _known_ms(state.last_fetch_timestamp),
            _known_ms(state.last_caught_up_timestamp),
            uuid_text(state.replica_directory_id) if has_directory else None,
            listeners.get(state.replica_id, ()),
        )

    found = [replica(it, QuorumRole.FOLLOWER) for it in voters]
    found.sort(key=lambda it: (it.role is not QuorumRole.LEADER, it.node_id))
    watching = [replica(it, QuorumRole.OBSERVER) for it in observers]
    watching.sort(key=lambda it: it.node_id)
    return QuorumDescription(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        (*found, *watching),
    )


def _known_ms(timestamp: int) -> int | None:
    return timestamp if timestamp >= 0 else None
