"""ClusterView: brokers, controller, topics and leaders as Metadata responses last told. Pure.

Invariants: a partition's leader epoch never goes back, so an old broker's picture does not
replace a newer one (KIP-320); a topic the cluster does not know is not here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

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
    """Where clients reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition; leader -1: none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error_code: int


@dataclass(slots=True)
class TopicView:
    """One topic; `error_code` says why partitions may be missing."""

    name: str
    is_internal: bool
    error_code: int
    partitions: dict[int, PartitionView] = field(default_factory=dict)


class ClusterView:
    """What is known of the cluster."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerAddress] = {}
        self.cluster_id: str | None = None
        # -1: not known.
        self.controller_id = NO_LEADER
        self.topics: dict[str, TopicView] = {}
        # Errors of topics that were asked for and are not among `topics`.
        self.topic_errors: dict[str, int] = {}

    def update(self, response: MetadataResponse) -> None:
        """Learn from `response`; topics that it does not mention stay."""
        self.brokers = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        for topic in response.topics:
            self._update_topic(topic)

    def leader(self, partition: TopicPartition) -> BrokerAddress | None:
        """Who leads `partition`, if that is known."""
        view = self.partition(partition)
        return None if view is None else self.brokers.get(view.leader)

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The epoch of that leader, -1 if not known."""
        view = self.partition(partition)
        return UNKNOWN_EPOCH if view is None else view.leader_epoch

    def partition(self, partition: TopicPartition) -> PartitionView | None:
        """What is known of `partition`."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def partitions_of(self, topic: str) -> list[int]:
        """Numbers of the partitions of `topic`, in order; none if it is not known."""
        view = self.topics.get(topic)
        return [] if view is None else sorted(view.partitions)

    def controller(self) -> BrokerAddress | None:
        """The controller, if it is known."""
        return self.brokers.get(self.controller_id)

    def error_of(self, partition: TopicPartition) -> int:
        """Why `partition` has no leader to send to; NONE if it has one."""
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
        """Let go of `topics`: what is known of them proved wrong."""
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
        for told in topic.partitions:
            number = told.partition_index
            before = old.partitions.get(number) if old else None
            newest = before.leader_epoch if before else UNKNOWN_EPOCH
            is_stale = UNKNOWN_EPOCH < told.leader_epoch < newest
            view.partitions[number] = before if before and is_stale else _partition_view(told)
        self.topics[topic.name] = view


def _partition_view(told: MetadataResponsePartition) -> PartitionView:
    return PartitionView(
        leader=told.leader_id,
        leader_epoch=told.leader_epoch,
        replicas=tuple(told.replica_nodes),
        isr=tuple(told.isr_nodes),
        offline_replicas=tuple(told.offline_replicas),
        error_code=told.error_code,
    )
