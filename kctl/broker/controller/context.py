"""ControllerContext: the controller's picture of the cluster, kept for as long as it is elected.

It holds facts and no decisions: brokers, assignments, who leads, what is being deleted or moved.
States of partitions and replicas are with their state machines.

Invariants: everything here was read from or written to the metadata store first; `_on_broker`
mirrors `_assignments`; iteration follows insertion (topics) or number (partitions), never a set.

Kafka 2.7: kafka.controller.ControllerContext.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kctl.model import BrokerInfo, ReplicaAssignment, TopicPartition
from kctl.store.znodes import LeaderIsrAndControllerEpoch

NO_CONTROLLER_EPOCH = 0
NO_ASSIGNMENT = ReplicaAssignment(())


class PartitionAndReplica(NamedTuple):
    """One broker's copy of one partition."""

    partition: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        """As Kafka's state change log spells it."""
        return f"[{self.partition},replica={self.broker_id}]"


class ControllerContext:
    """What the controller knows; emptied when it resigns."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all (the controller resigns)."""
        # Our controller epoch, and the version of /controller_epoch that fences our writes.
        self.epoch = NO_CONTROLLER_EPOCH
        self.epoch_zk_version = 0
        # Brokers registered in the store, those in controlled shutdown included.
        self.live_brokers: dict[int, BrokerInfo] = {}
        self.shutting_down: dict[int, None] = {}
        self.leadership: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        # Led by a broker that has started again since it was elected, which no controller saw: it
        # may have less than it had.
        self.led_from_before: dict[TopicPartition, None] = {}
        # Partitions with adding or removing replicas (KIP-455).
        self.reassigning: dict[TopicPartition, None] = {}
        # Replicas whose log directory failed, by broker (KIP-112).
        self.on_offline_dirs: dict[int, set[TopicPartition]] = {}
        self.topics_to_delete: dict[str, None] = {}
        self._assignments: dict[str, dict[int, ReplicaAssignment]] = {}
        self._on_broker: dict[int, dict[TopicPartition, None]] = {}

    # --- brokers

    @property
    def live_broker_ids(self) -> list[int]:
        """Brokers that may lead: registered and not shutting down."""
        return [b for b in self.live_brokers if b not in self.shutting_down]

    @property
    def live_or_shutting_down_ids(self) -> list[int]:
        """Brokers that can be sent requests."""
        return list(self.live_brokers)

    def is_replica_online(
        self, broker_id: int, partition: TopicPartition, *, include_shutting_down: bool = False
    ) -> bool:
        """Whether the broker lives and its log directory with the partition does, too."""
        if broker_id not in self.live_brokers:
            return False
        if broker_id in self.shutting_down and not include_shutting_down:
            return False
        offline = self.on_offline_dirs.get(broker_id)
        return not offline or partition not in offline

    def remove_brokers(self, broker_ids: Iterable[int]) -> None:
        """Brokers whose registration is gone; their replicas stay assigned."""
        for broker_id in broker_ids:
            self.live_brokers.pop(broker_id, None)
            self.shutting_down.pop(broker_id, None)
            self.on_offline_dirs.pop(broker_id, None)

    # --- topics and assignments

    @property
    def topics(self) -> Mapping[str, Mapping[int, ReplicaAssignment]]:
        """Every topic's assignment, topics being deleted included."""
        return self._assignments

    def partitions(self) -> Iterator[TopicPartition]:
        """All partitions of all topics."""
        for topic, assignment in self._assignments.items():
            for partition in assignment:
                yield TopicPartition(topic, partition)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions, ascending; none for an unknown topic."""
        return [TopicPartition(topic, p) for p in sorted(self._assignments.get(topic, ()))]

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """The partition's assignment; an empty one if it is unknown."""
        topic = self._assignments.get(partition.topic)
        return NO_ASSIGNMENT if topic is None else topic.get(partition.partition, NO_ASSIGNMENT)

    def set_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Add a partition or replace its assignment; topic and partition may be new."""
        topic = self._assignments.setdefault(partition.topic, {})
        old = topic.get(partition.partition, NO_ASSIGNMENT)
        topic[partition.partition] = assignment
        for broker_id in old.replicas:
            if broker_id not in assignment.replicas:
                self._on_broker[broker_id].pop(partition, None)
        for broker_id in assignment.replicas:
            self._on_broker.setdefault(broker_id, {})[partition] = None
        if assignment.adding or assignment.removing:
            self.reassigning[partition] = None
        else:
            self.reassigning.pop(partition, None)

    def remove_replica(self, replica: PartitionAndReplica) -> None:
        """Take one broker's copy out of the assignment in memory (its data is deleted)."""
        old = self.assignment(replica.partition)
        self.set_assignment(
            replica.partition,
            ReplicaAssignment(
                tuple(b for b in old.replicas if b != replica.broker_id),
                tuple(b for b in old.adding if b != replica.broker_id),
                tuple(b for b in old.removing if b != replica.broker_id),
            ),
        )

    def remove_topic(self, topic: str) -> None:
        """Forget a topic that is deleted."""
        for partition, assignment in self._assignments.pop(topic, {}).items():
            tp = TopicPartition(topic, partition)
            self.leadership.pop(tp, None)
            self.reassigning.pop(tp, None)
            for broker_id in assignment.replicas:
                self._on_broker[broker_id].pop(tp, None)
            for offline in self.on_offline_dirs.values():
                offline.discard(tp)
        self.topics_to_delete.pop(topic, None)

    def replicas_on(self, broker_id: int) -> list[PartitionAndReplica]:
        """Every replica assigned to the broker."""
        return [PartitionAndReplica(tp, broker_id) for tp in self._on_broker.get(broker_id, ())]

    def replicas_of_topic(self, topic: str) -> list[PartitionAndReplica]:
        """Every replica of the topic, by partition, then in order of assignment."""
        return self.replicas_of(self.partitions_of(topic))

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionAndReplica]:
        """Every replica of the partitions."""
        return [
            PartitionAndReplica(tp, broker_id)
            for tp in partitions
            for broker_id in self.assignment(tp).replicas
        ]

    def online_and_offline_replicas(
        self,
    ) -> tuple[list[PartitionAndReplica], list[PartitionAndReplica]]:
        """All replicas of all partitions, those that are online and those that are not."""
        online: list[PartitionAndReplica] = []
        offline: list[PartitionAndReplica] = []
        for replica in self.replicas_of(self.partitions()):
            alive = self.is_replica_online(replica.broker_id, replica.partition)
            (online if alive else offline).append(replica)
        return online, offline

    # --- leadership

    def partitions_with_offline_leader(self) -> list[TopicPartition]:
        """Partitions led by a broker that is not online, topics being deleted left out."""
        return [
            tp
            for tp, state in self.leadership.items()
            if not self.is_replica_online(state.leader_and_isr.leader, tp)
            and tp.topic not in self.topics_to_delete
        ]

    def partitions_led_by(self, broker_id: int) -> list[TopicPartition]:
        """Partitions whose leader is the broker."""
        return [
            tp
            for tp in self._on_broker.get(broker_id, ())
            if (state := self.leadership.get(tp)) and state.leader_and_isr.leader == broker_id
        ]

    def is_to_be_deleted(self, topic: str) -> bool:
        """Whether the topic's deletion was asked for."""
        return topic in self.topics_to_delete
