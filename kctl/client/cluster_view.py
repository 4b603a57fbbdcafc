"""ClusterView: brokers, controller, topics and leaders from Metadata responses. No I/O.

Invariants: the leader epoch of a partition never decreases, so outdated metadata of one broker does
not replace newer metadata (KIP-320); topics that the cluster does not know are not in the view.
"""

from collections.abc import Iterable
from dataclasses import field

from kctl.lazy_dataclass import dataclass
from kctl.model import NO_LEADER, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address at which clients reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition; leader -1 if it has none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error_code: int


@dataclass(slots=True)
class TopicView:
    """A topic; `error_code` says why partitions may be missing."""

    name: str
    is_internal: bool
    error_code: int
    partitions: dict[int, PartitionView] = field(default_factory=dict)


class ClusterView:
    """What is known about the cluster."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerAddress] = {}
        self.cluster_id: str | None = None
        # -1 if not known.
        self.controller_id = NO_LEADER
        self.topics: dict[str, TopicView] = {}
        # Errors of requested topics that are not in `topics`.
        self.topic_errors: dict[str, int] = {}

    def update(self, response: MetadataResponse) -> None:
        """Merge a response into the view; topics that it does not contain stay."""
        self.brokers = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        for topic in response.topics:
            self._update_topic(topic)

    def leader(self, partition: TopicPartition) -> BrokerAddress | None:
        """Return the leader of `partition`, or None if it is not known."""
        view = self.partition(partition)
        return None if view is None else self.brokers.get(view.leader)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the epoch of the known leader, or -1."""
        view = self.partition(partition)
        return UNKNOWN_EPOCH if view is None else view.leader_epoch

    def partition(self, partition: TopicPartition) -> PartitionView | None:
        """Return what is known about `partition`."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def partitions_of(self, topic: str) -> list[int]:
        """Return the numbers of the partitions of `topic` in order, none if the topic is not
        known."""
        view = self.topics.get(topic)
        return [] if view is None else sorted(view.partitions)

    def controller(self) -> BrokerAddress | None:
        """Return the controller, or None if it is not known."""
        return self.brokers.get(self.controller_id)

    def error_of(self, partition: TopicPartition) -> int:
        """Return the error code that explains why `partition` has no usable leader; NONE if it has
        one."""
        topic = self.topics.get(partition.topic)
        if topic is None:
            unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self.topic_errors.get(partition.topic, unknown)
        view = topic.partitions.get(partition.partition)
        if view is None:
            return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if view.leader in self.brokers:
            return int(ErrorCode.NONE)
        return view.error_code or int(ErrorCode.LEADER_NOT_AVAILABLE)

    def forget(self, topics: Iterable[str]) -> None:
        """Remove `topics`, whose metadata proved wrong."""
        for topic in topics:
            self.topics.pop(topic, None)
            self.topic_errors.pop(topic, None)

    def _update_topic(self, topic: MetadataResponseTopic) -> None:
        if topic.error_code and not topic.partitions:
            self.topics.pop(topic.name, None)
            self.topic_errors[topic.name] = topic.error_code
            return
        self.topic_errors.pop(topic.name, None)
        old = self.topics.get(topic.name)
        view = TopicView(topic.name, topic.is_internal, topic.error_code)
        for received in topic.partitions:
            number = received.partition_index
            before = old.partitions.get(number) if old else None
            newest = before.leader_epoch if before else UNKNOWN_EPOCH
            is_stale = UNKNOWN_EPOCH < received.leader_epoch < newest
            view.partitions[number] = before if before and is_stale else _partition_view(received)
        self.topics[topic.name] = view


def _partition_view(received: MetadataResponsePartition) -> PartitionView:
    return PartitionView(
        leader=received.leader_id,
        leader_epoch=received.leader_epoch,
        replicas=tuple(received.replica_nodes),
        isr=tuple(received.isr_nodes),
        offline_replicas=tuple(received.offline_replicas),
        error_code=received.error_code,
    )
