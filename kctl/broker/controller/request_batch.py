"""ControllerBrokerRequestBatch: folds what one event decided into few requests per broker.

Only *which* partitions a broker must hear about is gathered; what it is told is read from the
context when the batch is taken, so that several decisions about one partition become one state,
the last. Of each of LeaderAndIsr, UpdateMetadata and StopReplica a broker gets at most one, in
this order; the next batch follows behind it in the broker's queue.

Invariant: `take` leaves the batch empty.

Kafka 2.7: kafka.controller.AbstractControllerBrokerRequestBatch; KIP-380, KIP-455, KIP-570.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.broker.metadata_cache import SECURITY_PROTOCOL_IDS
from kctl.model import LEADER_DURING_DELETE, BrokerInfo, TopicPartition
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.protocol.schema import Message

# StopReplica's leader epoch: the topic is deleted, or nobody ever led the partition (KIP-570).
EPOCH_DURING_DELETE = -2
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class BrokerRequest:
    """One request for one broker."""

    broker_id: int
    request: Message


class ControllerBrokerRequestBatch:
    """What brokers are to be told at the end of an event."""

    def __init__(
        self, context: ControllerContext, controller_id: int, inter_broker_listener: str
    ) -> None:
        self._context = context
        self._controller_id = controller_id
        self._listener = inter_broker_listener
        # Broker -> partition -> whether the replica is new there.
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        # Broker -> partition -> whether its data is to be deleted.
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self._update_metadata_brokers: dict[int, None] = {}
        self._update_metadata: dict[TopicPartition, None] = {}

    def add_leader_and_isr(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, is_new: bool
    ) -> None:
        """Tell these brokers, which hold it, who leads the partition; and everybody's caches."""
        for broker_id in broker_ids:
            partitions = self._leader_and_isr.setdefault(broker_id, {})
            partitions[partition] = partitions.get(partition, False) or is_new
        self.add_update_metadata([partition])

    def add_stop_replica(self, replica: PartitionAndReplica, *, delete: bool) -> None:
        """Tell a broker to stop its replica, and perhaps to delete it."""
        partitions = self._stop_replica.setdefault(replica.broker_id, {})
        partitions[replica.partition] = partitions.get(replica.partition, False) or delete

    def add_update_metadata(
        self, partitions: Iterable[TopicPartition], broker_ids: Iterable[int] | None = None
    ) -> None:
        """Tell the caches of these brokers (all, if not said) about the partitions and, always,
        about the brokers."""
        if broker_ids is None:
            broker_ids = self._context.live_or_shutting_down_ids
        self._update_metadata_brokers.update(dict.fromkeys(broker_ids))
        self._update_metadata.update(dict.fromkeys(partitions))

    def clear(self) -> None:
        """Drop what was gathered (the controller resigns)."""
        self._leader_and_isr.clear()
        self._stop_replica.clear()
        self._update_metadata_brokers.clear()
        self._update_metadata.clear()

    def take(self) -> list[BrokerRequest]:
        """The requests, in the order in which they are to be sent; brokers that are gone get
        none."""
        requests = [
            *self._leader_and_isr_requests(),
            *self._update_metadata_requests(),
            *self._stop_replica_requests(),
        ]
        self.clear()
        return requests

    def _leader_and_isr_requests(self) -> list[BrokerRequest]:
        states: dict[tuple[TopicPartition, bool], LeaderAndIsrPartitionState] = {}
        requests = []
        for broker_id, partitions in self._leader_and_isr.items():
            broker = self._context.live_brokers.get(broker_id)
            if broker is None:
                continue
            topics: dict[str, list[LeaderAndIsrPartitionState]] = {}
            leaders: dict[int, None] = {}
            for item in partitions.items():
                state = states.get(item) or self._leader_and_isr_state(*item)
                if state is not None:
                    states[item] = state
                    topics.setdefault(item[0].topic, []).append(state)
                    leaders[state.leader] = None
            requests.append(
                BrokerRequest(broker_id, self._leader_and_isr_request(broker, topics, leaders))
            )
        return requests

    def _leader_and_isr_request(
        self,
        broker: BrokerInfo,
        topics: dict[str, list[LeaderAndIsrPartitionState]],
        leaders: Iterable[int],
    ) -> LeaderAndIsrRequest:
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=broker.epoch,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=topic, partition_states=states)
                for topic, states in topics.items()
            ],
            live_leaders=[
                live
                for leader in leaders
                if (found := self._context.live_brokers.get(leader))
                and (live := self._live_leader(found))
            ],
        )

    def _live_leader(self, broker: BrokerInfo) -> LeaderAndIsrLiveLeader | None:
        for endpoint in broker.endpoints:
            if endpoint.listener_name == self._listener:
                return LeaderAndIsrLiveLeader(
                    broker_id=broker.broker_id, host_name=endpoint.host, port=endpoint.port
                )
        return None

    def _leader_and_isr_state(
        self, partition: TopicPartition, is_new: bool
    ) -> LeaderAndIsrPartitionState | None:
        known = self._context.leadership.get(partition)
        if known is None:
            return None
        current = known.leader_and_isr
        assignment = self._context.assignment(partition)
        return LeaderAndIsrPartitionState(
            topic_name=partition.topic,
            partition_index=partition.partition,
            controller_epoch=known.controller_epoch,
            leader=current.leader,
            leader_epoch=current.leader_epoch,
            isr=list(current.isr),
            zk_version=current.zk_version,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
        )

    def _update_metadata_requests(self) -> list[BrokerRequest]:
        context = self._context
        topics: dict[str, list[UpdateMetadataPartitionState]] = {}
        for partition in self._update_metadata:
            state = self._update_metadata_state(partition)
            if state is not None:
                topics.setdefault(partition.topic, []).append(state)
        topic_states = [
            UpdateMetadataTopicState(topic_name=topic, partition_states=states)
            for topic, states in topics.items()
        ]
        live_brokers = [_update_metadata_broker(b) for b in context.live_brokers.values()]
        return [
            BrokerRequest(
                broker_id,
                UpdateMetadataRequest(
                    controller_id=self._controller_id,
                    controller_epoch=context.epoch,
                    broker_epoch=context.live_brokers[broker_id].epoch,
                    topic_states=topic_states,
                    live_brokers=live_brokers,
                ),
            )
            for broker_id in self._update_metadata_brokers
            if broker_id in context.live_brokers
        ]

    def _update_metadata_state(
        self, partition: TopicPartition
    ) -> UpdateMetadataPartitionState | None:
        context = self._context
        known = context.leadership.get(partition)
        if known is None:
            return None
        current = known.leader_and_isr
        replicas = context.assignment(partition).replicas
        leader = current.leader
        if context.is_to_be_deleted(partition.topic):
            leader = LEADER_DURING_DELETE
        return UpdateMetadataPartitionState(
            topic_name=partition.topic,
            partition_index=partition.partition,
            controller_epoch=known.controller_epoch,
            leader=leader,
            leader_epoch=current.leader_epoch,
            isr=list(current.isr),
            zk_version=current.zk_version,
            replicas=list(replicas),
            offline_replicas=[r for r in replicas if not context.is_replica_online(r, partition)],
        )

    def _stop_replica_requests(self) -> list[BrokerRequest]:
        return [
            BrokerRequest(
                broker_id,
                StopReplicaRequest(
                    controller_id=self._controller_id,
                    controller_epoch=self._context.epoch,
                    broker_epoch=broker.epoch,
                    topic_states=self._stop_replica_topics(partitions),
                ),
            )
            for broker_id, partitions in self._stop_replica.items()
            if (broker := self._context.live_brokers.get(broker_id))
        ]

    def _stop_replica_topics(
        self, partitions: dict[TopicPartition, bool]
    ) -> list[StopReplicaTopicState]:
        topics: dict[str, list[StopReplicaPartitionState]] = {}
        for partition, delete in partitions.items():
            topics.setdefault(partition.topic, []).append(
                StopReplicaPartitionState(
                    partition_index=partition.partition,
                    leader_epoch=self._stop_replica_epoch(partition),
                    delete_partition=delete,
                )
            )
        return [
            StopReplicaTopicState(topic_name=topic, partition_states=states)
            for topic, states in topics.items()
        ]

    def _stop_replica_epoch(self, partition: TopicPartition) -> int:
        if self._context.is_to_be_deleted(partition.topic):
            return EPOCH_DURING_DELETE
        known = self._context.leadership.get(partition)
        return known.leader_and_isr.leader_epoch if known else NO_LEADER_EPOCH


def _update_metadata_broker(broker: BrokerInfo) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener_name,
                security_protocol=SECURITY_PROTOCOL_IDS[endpoint.security_protocol],
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )
