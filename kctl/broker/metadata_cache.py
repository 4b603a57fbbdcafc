"""MetadataCache: brokers, topics and controller, as received by UpdateMetadata.

Readers see a Snapshot, which never changes; an update builds the next one (sharing what did not
change) and swaps it in, so that a reader that keeps one sees the cluster at one point in time. The
states of partitions are the objects of the request: they must not be changed.

Kafka 2.7: kafka.server.MetadataCache.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import field
from typing import Any

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.model import (
    LEADER_DURING_DELETE,
    NO_LEADER,
    BrokerInfo,
    Endpoint,
    SecurityProtocol,
    TopicPartition,
)
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from kctl.work import Work, at_once

_SECURITY_PROTOCOLS = {protocol.number: protocol for protocol in SecurityProtocol}

# Partitions of a request processed per turn of the loop.
PARTITIONS_PER_TURN = 5_000
# Topics of a request whose partitions are put together with those known, per turn.
TOPICS_PER_TURN = 2_000

PartitionStates = Mapping[int, UpdateMetadataPartitionState]
# Called after the swap with the topics whose partitions an update named.
TopicsListener = Callable[[list[str]], object]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one point in time."""

    # Number of updates so far.
    version: int = 0
    controller_id: int | None = None
    # Ascending by id.
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    # Broker id -> listener name -> endpoint.
    endpoints: Mapping[int, Mapping[str, Endpoint]] = field(default_factory=dict)
    # Topic -> partition -> state.
    topics: Mapping[str, PartitionStates] = field(default_factory=dict)
    # A cache for values that readers compute from this snapshot.
    memo: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)


class MetadataCache:
    """The current Snapshot, with queries for handlers."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.snapshot = Snapshot()
        self._listeners: list[TopicsListener] = []
        self._first_update_listeners: list[Callable[[], object]] = []

    def on_topics_updated(self, listener: TopicsListener) -> None:
        """Call `listener(topics)` after each update that names partitions of topics."""
        self._listeners.append(listener)

    def on_first_update(self, listener: Callable[[], object]) -> None:
        """Call `listener()` after the first update, even if it names no topic."""
        self._first_update_listeners.append(listener)

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply the controller's metadata; return the partitions that are being deleted.

        The caller has checked that the request is current (controller epoch, broker epoch).
        """
        return at_once(self.updating(request))

    def updating(self, request: UpdateMetadataRequest) -> Work[list[TopicPartition]]:
        """Do the same as `update`, with a `yield` after every PARTITIONS_PER_TURN.

        The next Snapshot is built and swapped in after the last of them.
        """
        brokers, endpoints = _brokers(request.live_brokers)
        deleted: list[TopicPartition] = []
        changes: dict[str, dict[int, UpdateMetadataPartitionState | None]] = {}
        for number, (topic, state) in enumerate(partition_states(request), 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            if state is None:
                continue
            if state.leader == LEADER_DURING_DELETE:
                deleted.append(TopicPartition(topic, state.partition_index))
                changes.setdefault(topic, {})[state.partition_index] = None
            else:
                changes.setdefault(topic, {})[state.partition_index] = state
        while True:
            old = self.snapshot
            topics = yield from _changed(old.topics, changes)
            if self.snapshot is old:
                break
        controller_id = request.controller_id
        self.snapshot = Snapshot(
            old.version + 1,
            controller_id if controller_id >= 0 else None,
            brokers,
            endpoints,
            topics,
        )
        self._announce(list(changes), is_first=not old.version)
        return deleted

    def _announce(self, topics: list[str], *, is_first: bool) -> None:
        if is_first:
            for first in self._first_update_listeners:
                first()
        if topics:
            for listener in self._listeners:
                listener(topics)

    # --- brokers

    @property
    def controller_id(self) -> int | None:
        """Return the controller's broker id, or None."""
        return self.snapshot.controller_id

    def alive_brokers(self) -> list[BrokerInfo]:
        """Return the live brokers, ascending by id (without their epochs)."""
        return list(self.snapshot.brokers.values())

    def is_broker_alive(self, broker_id: int) -> bool:
        """Return whether the broker is alive."""
        return broker_id in self.snapshot.brokers

    def rack(self, broker_id: int) -> str | None:
        """Return the rack of a live broker, or None."""
        broker = self.snapshot.brokers.get(broker_id)
        return broker.rack if broker else None

    def broker_endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Return the endpoint of a live broker on a listener, or None."""
        endpoints = self.snapshot.endpoints.get(broker_id)
        return endpoints.get(listener_name) if endpoints else None

    # --- topics

    def topics(self) -> list[str]:
        """Return all topics, sorted."""
        return sorted(self.snapshot.topics)

    def contains(self, topic: str) -> bool:
        """Return whether the topic has a known partition."""
        return topic in self.snapshot.topics

    def partition_count(self, topic: str) -> int | None:
        """Return the topic's number of partitions, or None if it is unknown."""
        partitions = self.snapshot.topics.get(topic)
        return len(partitions) if partitions else None

    def partition(self, partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        """Return the partition's state, or None if it is unknown."""
        partitions = self.snapshot.topics.get(partition.topic)
        return partitions.get(partition.partition) if partitions else None

    def partitions_of(self, topic: str) -> list[int]:
        """Return the topic's partition numbers, ascending; empty if it is unknown."""
        return sorted(self.snapshot.topics.get(topic, ()))

    def leader_endpoint(
        self, partition: TopicPartition, listener_name: str
    ) -> tuple[int, Endpoint] | None:
        """Return the leader's id and endpoint on the listener; None without either."""
        state = self.partition(partition)
        if state is None:
            return None
        endpoint = self.broker_endpoint(state.leader, listener_name)
        return (state.leader, endpoint) if endpoint else None

    def has_leader(self, partition: TopicPartition) -> bool:
        """Return whether the partition has a leader."""
        state = self.partition(partition)
        return state is not None and state.leader > NO_LEADER

    def have_leaders(self, topic: str, partitions: Iterable[int]) -> bool:
        """Return whether each of these partitions of the topic has a leader."""
        return all(self.has_leader(TopicPartition(topic, number)) for number in partitions)

    def lacks_leader(self, topic: str, count: int) -> bool:
        """Return whether one of the topic's partitions 0 to `count` - 1 has no leader yet.

        The last ones are checked first: a growing topic lacks those.
        """
        known = self.snapshot.topics.get(topic, {})
        return len(known) < count or any(
            (state := known.get(number)) is None or state.leader <= NO_LEADER
            for number in range(count - 1, -1, -1)
        )


def _changed(
    topics: Mapping[str, PartitionStates],
    changes: Mapping[str, Mapping[int, UpdateMetadataPartitionState | None]],
) -> Work[dict[str, PartitionStates]]:
    """Return `topics` with `changes`, None for a partition that goes, with a `yield` after every
    TOPICS_PER_TURN."""
    changed = dict(topics)
    for number, (topic, states) in enumerate(changes.items(), 1):
        if number % TOPICS_PER_TURN == 0:
            yield
        partitions = {**changed.get(topic, {}), **states}
        kept = {n: state for n, state in partitions.items() if state is not None}
        if kept:
            changed[topic] = kept
        else:
            changed.pop(topic, None)
    return changed


def _brokers(
    live_brokers: Iterable[UpdateMetadataBroker],
) -> tuple[dict[int, BrokerInfo], dict[int, dict[str, Endpoint]]]:
    brokers: dict[int, BrokerInfo] = {}
    endpoints: dict[int, dict[str, Endpoint]] = {}
    for broker in sorted(live_brokers, key=lambda live: live.id):
        for point in broker.endpoints:
            if point.security_protocol not in _SECURITY_PROTOCOLS:
                problem = f"broker {broker.id} has security protocol {point.security_protocol}"
                raise CorruptDataError(f"UpdateMetadata: {problem}")
        points = tuple(
            Endpoint(
                point.host,
                point.port,
                # Before version 3 a listener is named after its security protocol.
                point.listener or _SECURITY_PROTOCOLS[point.security_protocol],
                _SECURITY_PROTOCOLS[point.security_protocol],
            )
            for point in broker.endpoints
        ) or (Endpoint(broker.v0_host, broker.v0_port),)
        brokers[broker.id] = BrokerInfo(broker.id, points, broker.rack)
        endpoints[broker.id] = {point.listener_name: point for point in points}
    return brokers, endpoints


def partition_states(
    request: UpdateMetadataRequest,
) -> Iterable[tuple[str, UpdateMetadataPartitionState | None]]:
    """Yield (topic, state) of a request of any version, (topic, None) of a topic without
    partitions: the caller may have to count it."""
    for state in request.ungrouped_partition_states:
        yield state.topic_name, state
    for topic in request.topic_states:
        if not topic.partition_states:
            yield topic.topic_name, None
        for state in topic.partition_states:
            yield topic.topic_name, state
