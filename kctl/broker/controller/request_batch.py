"""ControllerBrokerRequestBatch: combines the decisions of one event into few requests per broker.

Only *which* partitions concern a broker is collected; their state is read from the context when the
batch is taken, so that several decisions about one partition result in one state, the last. A
broker gets LeaderAndIsr, UpdateMetadata and StopReplica requests in this order; the next batch
follows them in the broker's queue.

A request names at most PARTITIONS_PER_REQUEST partitions, which limits the work that a broker does
for it. There are two exceptions. UpdateMetadata never splits a topic, because a producer that sees
some of its partitions would spread keys over those alone. The first LeaderAndIsr after a broker's
registration is complete, because Apache Kafka begins to write checkpoints of high watermarks after
it, and a partition that is missing would lose its own.

Invariant: `take` leaves the batch empty.

Kafka 2.7: kafka.controller.AbstractControllerBrokerRequestBatch; KIP-380, KIP-455, KIP-570.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.lazy_dataclass import dataclass
from kctl.model import LEADER_DURING_DELETE, BrokerInfo, TopicPartition
from kctl.protocol.constants import EPOCH_DURING_DELETE, NO_EPOCH
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
from kctl.work import Pace, parts

PARTITIONS_PER_REQUEST = 500


@dataclass(frozen=True, slots=True)
class BrokerRequest:
    """One request for one broker."""

    broker_id: int
    request: Message


class ControllerBrokerRequestBatch:
    """The requests to brokers that are sent at the end of an event."""

    def __init__(
        self,
        context: ControllerContext,
        controller_id: int,
        inter_broker_listener: str,
        pace: Pace,
    ) -> None:
        self._context = context
        self._pace = pace
        self._controller_id = controller_id
        self._listener = inter_broker_listener
        # Broker -> partition -> whether the replica is new there.
        self._leader_and_isr: dict[int, dict[TopicPartition, bool]] = {}
        # Broker -> partition -> whether its data must be deleted.
        self._stop_replica: dict[int, dict[TopicPartition, bool]] = {}
        self._update_metadata_brokers: dict[int, None] = {}
        self._update_metadata: dict[TopicPartition, None] = {}
        # Broker -> the epoch of the registration that was sent a LeaderAndIsr.
        self._informed_epochs: dict[int, int] = {}

    def add_leader_and_isr(
        self, broker_ids: Iterable[int], partition: TopicPartition, *, is_new: bool
    ) -> None:
        """Add a partition's state to the LeaderAndIsr of these brokers and to everyone's
        metadata."""
        for broker_id in broker_ids:
            partitions = self._leader_and_isr.setdefault(broker_id, {})
            partitions[partition] = partitions.get(partition, False) or is_new
        self.add_update_metadata([partition])

    def add_known(self, partitions_of: Mapping[int, Iterable[TopicPartition]]) -> None:
        """Add what `add_leader_and_isr` adds for partitions of each broker that it has already."""
        for broker_id, partitions in partitions_of.items():
            gathered = self._leader_and_isr.setdefault(broker_id, {})
            for partition in partitions:
                gathered.setdefault(partition, False)
            self.add_update_metadata(partitions)

    def add_stop_replica(self, replica: PartitionAndReplica, *, delete: bool) -> None:
        """Add a replica to its broker's StopReplica, with or without deletion."""
        partitions = self._stop_replica.setdefault(replica.broker_id, {})
        partitions[replica.partition] = partitions.get(replica.partition, False) or delete

    def add_update_metadata(
        self, partitions: Iterable[TopicPartition], broker_ids: Iterable[int] | None = None
    ) -> None:
        """Add partitions to the metadata update of these brokers (default: all).

        The update always includes the list of live brokers.
        """
        if broker_ids is None:
            broker_ids = self._context.live_or_shutting_down_ids
        self._update_metadata_brokers.update(dict.fromkeys(broker_ids))
        self._update_metadata.update(dict.fromkeys(partitions))

    def clear(self) -> None:
        """Drop the collected requests (an event failed)."""
        self._leader_and_isr.clear()
        self._stop_replica.clear()
        self._update_metadata_brokers.clear()
        self._update_metadata.clear()

    def resign(self) -> None:
        """Clear everything that was collected and sent."""
        self.clear()
        self._informed_epochs.clear()

    async def take(self) -> AsyncIterator[BrokerRequest]:
        """Empty the batch and yield its requests, in the order in which they must be sent.

        Each is built on demand. Brokers that are gone get none.
        """
        leader_and_isr, self._leader_and_isr = self._leader_and_isr, {}
        update_metadata, self._update_metadata = self._update_metadata, {}
        brokers, self._update_metadata_brokers = self._update_metadata_brokers, {}
        stop_replica, self._stop_replica = self._stop_replica, {}
        async for request in self._leader_and_isr_requests(leader_and_isr):
            yield request
        async for request in self._update_metadata_requests(update_metadata, brokers):
            yield request
        async for request in self._stop_replica_requests(stop_replica):
            yield request

    async def _leader_and_isr_requests(
        self, gathered: Mapping[int, Mapping[TopicPartition, bool]]
    ) -> AsyncIterator[BrokerRequest]:
        states: dict[tuple[TopicPartition, bool], LeaderAndIsrPartitionState] = {}
        for broker_id, partitions in gathered.items():
            broker = self._context.live_brokers.get(broker_id)
            if broker is None:
                continue
            is_first = self._informed_epochs.get(broker_id) != broker.epoch
            self._informed_epochs[broker_id] = broker.epoch
            count_max = len(partitions) if is_first else PARTITIONS_PER_REQUEST
            for part in parts(list(partitions.items()), count_max):
                topics: dict[str, list[LeaderAndIsrPartitionState]] = {}
                leaders: dict[int, None] = {}
                async for items in self._pace.over(part):
                    for item in items:
                        state = states.get(item) or self._leader_and_isr_state(*item)
                        if state is not None:
                            states[item] = state
                            topics.setdefault(item[0].topic, []).append(state)
                            leaders[state.leader] = None
                request = self._leader_and_isr_request(broker, topics, leaders)
                yield BrokerRequest(broker_id, request)

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

    async def _update_metadata_requests(
        self, partitions: Mapping[TopicPartition, None], broker_ids: Mapping[int, None]
    ) -> AsyncIterator[BrokerRequest]:
        topics: dict[str, list[UpdateMetadataPartitionState]] = {}
        async for part in self._pace.over(partitions):
            for partition in part:
                state = self._update_metadata_state(partition)
                if state is not None:
                    topics.setdefault(partition.topic, []).append(state)
        topic_states: list[UpdateMetadataTopicState] = []
        count = 0
        for topic, states in topics.items():
            if topic_states and count + len(states) > PARTITIONS_PER_REQUEST:
                for request in self._update_metadata_of(topic_states, broker_ids):
                    yield request
                topic_states, count = [], 0
            topic_states.append(UpdateMetadataTopicState(topic_name=topic, partition_states=states))
            count += len(states)
        for request in self._update_metadata_of(topic_states, broker_ids):
            yield request

    def _update_metadata_of(
        self, topic_states: list[UpdateMetadataTopicState], broker_ids: Iterable[int]
    ) -> Iterator[BrokerRequest]:
        """Yield the same update for each broker."""
        context = self._context
        live_brokers = [_update_metadata_broker(b) for b in context.live_brokers.values()]
        for broker_id in broker_ids:
            broker = context.live_brokers.get(broker_id)
            if broker is not None:
                yield BrokerRequest(
                    broker_id,
                    UpdateMetadataRequest(
                        controller_id=self._controller_id,
                        controller_epoch=context.epoch,
                        broker_epoch=broker.epoch,
                        topic_states=topic_states,
                        live_brokers=live_brokers,
                    ),
                )

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

    async def _stop_replica_requests(
        self, gathered: Mapping[int, Mapping[TopicPartition, bool]]
    ) -> AsyncIterator[BrokerRequest]:
        for broker_id, partitions in gathered.items():
            broker = self._context.live_brokers.get(broker_id)
            if broker is None:
                continue
            for part in parts(list(partitions.items()), PARTITIONS_PER_REQUEST):
                await self._pace.spend(len(part))
                request = StopReplicaRequest(
                    controller_id=self._controller_id,
                    controller_epoch=self._context.epoch,
                    broker_epoch=broker.epoch,
                    topic_states=self._stop_replica_topics(part),
                )
                yield BrokerRequest(broker_id, request)

    def _stop_replica_topics(
        self, partitions: Iterable[tuple[TopicPartition, bool]]
    ) -> list[StopReplicaTopicState]:
        topics: dict[str, list[StopReplicaPartitionState]] = {}
        for partition, delete in partitions:
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
        return known.leader_and_isr.leader_epoch if known else NO_EPOCH


def _update_metadata_broker(broker: BrokerInfo) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener_name,
                security_protocol=endpoint.security_protocol.number,
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )
