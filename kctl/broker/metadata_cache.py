"""MetadataCache: what UpdateMetadata told this broker about brokers, topics and the controller.

Readers see a Snapshot, which never changes; an update builds the next one (sharing what did not
change) and swaps it in, so that a reader that holds on to one sees one moment of the cluster.
The states of partitions are the very objects that came with the request: nobody may change them.

Kafka 2.7: kafka.server.MetadataCache.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kctl.errors import CorruptDataError
from kctl.model import LEADER_DURING_DELETE, NO_LEADER, BrokerInfo, Endpoint, TopicPartition
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
SECURITY_PROTOCOLS = {number: name for name, number in SECURITY_PROTOCOL_IDS.items()}

PartitionStates = Mapping[int, UpdateMetadataPartitionState]
# Called with the topics whose partitions an update named, after the swap.
TopicsListener = Callable[[list[str]], object]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the cluster."""

    # Counts the updates.
    version: int = 0
    controller_id: int | None = None
    # Ascending by id.
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    # Broker id -> listener name -> where it listens.
    endpoints: Mapping[int, Mapping[str, Endpoint]] = field(default_factory=dict)
    # Topic -> partition -> state.
    topics: Mapping[str, PartitionStates] = field(default_factory=dict)
    # What readers computed from this snapshot and want to find again; goes when it goes.
    memo: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)


class MetadataCache:
    """The current Snapshot, and the questions that handlers ask of it."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.snapshot = Snapshot()
        self._listeners: list[TopicsListener] = []

    def on_topics_updated(self, listener: TopicsListener) -> None:
        """Call `listener(topics)` after each update that names partitions of topics."""
        self._listeners.append(listener)

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Take over what the controller says; the partitions that it says are being deleted.

        Whether the request is fresh (controller epoch, broker epoch) was checked by the caller.
        """
        old = self.snapshot
        brokers, endpoints = _brokers(request.live_brokers)
        deleted: list[TopicPartition] = []
        topics = dict(old.topics)
        updated: dict[str, dict[int, UpdateMetadataPartitionState]] = {}
        for topic, state in partition_states(request):
            partitions = updated.get(topic)
            if partitions is None:
                partitions = updated[topic] = dict(topics.get(topic, ()))
            if state.leader == LEADER_DURING_DELETE:
                partitions.pop(state.partition_index, None)
                deleted.append(TopicPartition(topic, state.partition_index))
            else:
                partitions[state.partition_index] = state
        for topic, partitions in updated.items():
            if partitions:
                topics[topic] = partitions
            else:
                topics.pop(topic, None)
        controller_id = request.controller_id
        self.snapshot = Snapshot(
            old.version + 1,
            controller_id if controller_id >= 0 else None,
            brokers,
            endpoints,
            topics,
        )
        if updated:
            names = list(updated)
            for listener in self._listeners:
                listener(names)
        return deleted

    # --- brokers

    @property
    def controller_id(self) -> int | None:
        """The controller's broker id, as last heard."""
        return self.snapshot.controller_id

    def alive_brokers(self) -> list[BrokerInfo]:
        """Brokers that live, ascending by id (their epochs are not known here)."""
        return list(self.snapshot.brokers.values())

    def is_broker_alive(self, broker_id: int) -> bool:
        """Whether the broker lives."""
        return broker_id in self.snapshot.brokers

    def rack(self, broker_id: int) -> str | None:
        """The rack of a live broker, if it has one."""
        broker = self.snapshot.brokers.get(broker_id)
        return broker.rack if broker else None

    def broker_endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Where a live broker is reached by clients of a listener; None if it is not."""
        endpoints = self.snapshot.endpoints.get(broker_id)
        return endpoints.get(listener_name) if endpoints else None

    # --- topics

    def topics(self) -> list[str]:
        """All topics, sorted."""
        return sorted(self.snapshot.topics)

    def contains(self, topic: str) -> bool:
        """Whether the topic is known, with any partition."""
        return topic in self.snapshot.topics

    def partition_count(self, topic: str) -> int | None:
        """How many partitions the topic has, None if it is unknown."""
        partitions = self.snapshot.topics.get(topic)
        return len(partitions) if partitions else None

    def partition(self, partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        """The partition's state, None if it is unknown."""
        partitions = self.snapshot.topics.get(partition.topic)
        return partitions.get(partition.partition) if partitions else None

    def partitions_of(self, topic: str) -> list[int]:
        """Numbers of the topic's partitions, ascending; none if it is unknown."""
        return sorted(self.snapshot.topics.get(topic, ()))

    def leader_endpoint(
        self, partition: TopicPartition, listener_name: str
    ) -> tuple[int, Endpoint] | None:
        """Leader's id and where clients of the listener reach it; None if there is no leader
        or it cannot be reached that way."""
        state = self.partition(partition)
        if state is None:
            return None
        endpoint = self.broker_endpoint(state.leader, listener_name)
        return (state.leader, endpoint) if endpoint else None

    def has_leader(self, partition: TopicPartition) -> bool:
        """Whether the partition is known to be led by somebody."""
        state = self.partition(partition)
        return state is not None and state.leader > NO_LEADER

    def missing_leader_count(self, topic: str, partitions: Iterable[int]) -> int:
        """How many of these partitions of the topic have no leader yet."""
        known = self.snapshot.topics.get(topic, {})
        return sum(
            (state := known.get(number)) is None or state.leader <= NO_LEADER
            for number in partitions
        )


def _brokers(
    live_brokers: Iterable[UpdateMetadataBroker],
) -> tuple[dict[int, BrokerInfo], dict[int, dict[str, Endpoint]]]:
    brokers: dict[int, BrokerInfo] = {}
    endpoints: dict[int, dict[str, Endpoint]] = {}
    for broker in sorted(live_brokers, key=lambda live: live.id):
        for point in broker.endpoints:
            if point.security_protocol not in SECURITY_PROTOCOLS:
                words = f"broker {broker.id} has security protocol {point.security_protocol}"
                raise CorruptDataError(f"UpdateMetadata: {words}")
        points = tuple(
            Endpoint(
                point.host,
                point.port,
                # Before version 3 a listener is named after its security protocol.
                point.listener or SECURITY_PROTOCOLS[point.security_protocol],
                SECURITY_PROTOCOLS[point.security_protocol],
            )
            for point in broker.endpoints
        ) or (Endpoint(broker.v0_host, broker.v0_port),)
        brokers[broker.id] = BrokerInfo(broker.id, points, broker.rack)
        endpoints[broker.id] = {point.listener_name: point for point in points}
    return brokers, endpoints


def partition_states(
    request: UpdateMetadataRequest,
) -> Iterable[tuple[str, UpdateMetadataPartitionState]]:
    """(topic, state) of a request of any version."""
    for state in request.ungrouped_partition_states:
        yield state.topic_name, state
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, state
