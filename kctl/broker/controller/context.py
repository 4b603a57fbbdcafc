"""ControllerContext: the controller's view of the cluster while it is elected.

It holds facts, not decisions: brokers, assignments, leaders, deletions, reassignments. The states
of partitions and replicas are in their state machines.

Invariants: everything here was first read from or written to the metadata store; `_on_broker`
mirrors `_assignments`; iteration follows insertion (topics) or number (partitions), never a set.

Kafka 2.7: kafka.controller.ControllerContext.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import NamedTuple

from kctl.model import BrokerInfo, ReplicaAssignment, TopicPartition
from kctl.store.znodes import NO_CONTROLLER_EPOCH, LeaderIsrAndControllerEpoch
from kctl.work import Pace, Work, parts

# Partitions of a topic that are listed, examined or removed in one turn of the loop.
PARTITIONS_PER_TURN = 500
NO_ASSIGNMENT = ReplicaAssignment(())


class PartitionAndReplica(NamedTuple):
    """The replica of one partition on one broker."""

    partition: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        """Return the format of Kafka's state change log."""
        return f"[{self.partition},replica={self.broker_id}]"


# Half the time of a NamedTuple's constructor, which is Python code: a new controller makes some of
# each for every partition.
_partition_of = partial(tuple.__new__, TopicPartition)
_replica_of = partial(tuple.__new__, PartitionAndReplica)


class ControllerContext:
    """The facts that a controller knows; empty after it resigns."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove everything (the controller resigns)."""
        # This controller's epoch, and the version of /controller_epoch that fences its writes.
        self.epoch = NO_CONTROLLER_EPOCH
        self.epoch_zk_version = 0
        # Brokers registered in the store, including those in controlled shutdown.
        self.live_brokers: dict[int, BrokerInfo] = {}
        self.shutting_down: dict[int, None] = {}
        self.leadership: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        # Partitions whose leader has restarted since it was elected, without a controller seeing
        # it: it may have lost records.
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
        """Return the brokers that may lead: registered and not shutting down."""
        return [b for b in self.live_brokers if b not in self.shutting_down]

    @property
    def live_or_shutting_down_ids(self) -> list[int]:
        """Return the brokers that can receive requests."""
        return list(self.live_brokers)

    def is_replica_online(
        self, broker_id: int, partition: TopicPartition, *, include_shutting_down: bool = False
    ) -> bool:
        """Return whether the broker is alive, and its log directory with the partition is
        online."""
        if broker_id not in self.live_brokers:
            return False
        if broker_id in self.shutting_down and not include_shutting_down:
            return False
        offline = self.on_offline_dirs.get(broker_id)
        return not offline or partition not in offline

    def remove_brokers(self, broker_ids: Iterable[int]) -> None:
        """Remove brokers whose registration is gone; their replicas stay assigned."""
        for broker_id in broker_ids:
            self.live_brokers.pop(broker_id, None)
            self.shutting_down.pop(broker_id, None)
            self.on_offline_dirs.pop(broker_id, None)

    # --- topics and assignments

    @property
    def topics(self) -> Mapping[str, Mapping[int, ReplicaAssignment]]:
        """Return every topic's assignment, including topics being deleted."""
        return self._assignments

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield all partitions of all topics."""
        for topic, assignment in self._assignments.items():
            yield from map(_partition_of, zip(repeat(topic), assignment))

    def parts_of(self, topic: str, count_max: int) -> Iterator[list[TopicPartition]]:
        """Yield the topic's partitions as of now, ascending, at most `count_max` at a time; none
        for an unknown topic."""
        for numbers in parts(sorted(self._assignments.get(topic, ())), count_max):
            yield [TopicPartition(topic, number) for number in numbers]

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """Return the partition's assignment; an empty one if it is unknown."""
        topic = self._assignments.get(partition.topic)
        return NO_ASSIGNMENT if topic is None else topic.get(partition.partition, NO_ASSIGNMENT)

    def add_topic(self, topic: str) -> None:
        """Add a topic, if it is new, without partitions."""
        self._assignments.setdefault(topic, {})

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
        """Remove one replica from the assignment in memory (its data is deleted)."""
        old = self.assignment(replica.partition)
        self.set_assignment(
            replica.partition,
            ReplicaAssignment(
                tuple(b for b in old.replicas if b != replica.broker_id),
                tuple(b for b in old.adding if b != replica.broker_id),
                tuple(b for b in old.removing if b != replica.broker_id),
            ),
        )

    def remove_topic(self, topic: str) -> Work[None]:
        """Remove a deleted topic, with a `yield` after PARTITIONS_PER_TURN of its partitions."""
        for number, partitions in enumerate(self.parts_of(topic, PARTITIONS_PER_TURN)):
            if number:
                yield
            for tp in partitions:
                self._remove_partition(tp)
        self._assignments.pop(topic, None)
        self.topics_to_delete.pop(topic, None)

    def _remove_partition(self, tp: TopicPartition) -> None:
        assignment = self._assignments[tp.topic].pop(tp.partition)
        self.leadership.pop(tp, None)
        self.reassigning.pop(tp, None)
        for broker_id in assignment.replicas:
            self._on_broker[broker_id].pop(tp, None)
        for offline in self.on_offline_dirs.values():
            offline.discard(tp)

    def replicas_on(self, broker_id: int) -> list[PartitionAndReplica]:
        """Return every replica assigned to the broker."""
        return [PartitionAndReplica(tp, broker_id) for tp in self._on_broker.get(broker_id, ())]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionAndReplica]:
        """Return every replica of the partitions, in order, then in order of assignment."""
        return [
            _replica_of((tp, broker_id))
            for tp in partitions
            for broker_id in self.assignment(tp).replicas
        ]

    async def online_and_offline_replicas(
        self, partitions: Iterable[TopicPartition], pace: Pace
    ) -> tuple[list[PartitionAndReplica], list[PartitionAndReplica]]:
        """Return all replicas of the partitions: (those that are online, those that are not)."""
        online: list[PartitionAndReplica] = []
        offline: list[PartitionAndReplica] = []
        async for part in pace.over(partitions):
            for replica in self.replicas_of(part):
                alive = self.is_replica_online(replica.broker_id, replica.partition)
                (online if alive else offline).append(replica)
        return online, offline

    # --- leadership

    async def partitions_with_offline_leader(self, pace: Pace) -> list[TopicPartition]:
        """Return the partitions whose leader is not online, except of topics being deleted."""
        found = []
        # The context does not change meanwhile: events of the controller queue.
        async for part in pace.over(list(self.leadership.items())):
            for tp, state in part:
                is_online = self.is_replica_online(state.leader_and_isr.leader, tp)
                if not is_online and tp.topic not in self.topics_to_delete:
                    found.append(tp)
        return found

    def is_to_be_deleted(self, topic: str) -> bool:
        """Return whether the topic is queued for deletion."""
        return topic in self.topics_to_delete
