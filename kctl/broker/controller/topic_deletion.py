"""TopicDeletion: decides which topics can be deleted now, which must wait, and which are done.

A topic is *queued* (`context.topics_to_delete`, mirrored in `/admin/delete_topics`) until it is
gone. It is *ineligible* while a replica cannot be deleted: its broker is down, a StopReplica
failed, or a reassignment runs. It is *started* once its partitions were taken out of service. Each
replica moves OFFLINE -> DELETION_STARTED -> DELETION_SUCCESSFUL, or back via DELETION_INELIGIBLE;
the topic is gone when all are DELETION_SUCCESSFUL. A new controller starts again from the znodes:
every step can be repeated.

A replica that a reassignment removed is no longer in any assignment, but its data may still be on a
broker that has not responded yet. Until it responds, or its registration ends, the topic is not
gone: if created again it could begin with that data. (In Apache Kafka 2.7.2 it can.)

This class only decides; `broker_and_topic_changes` executes and reports the results.

Kafka 2.7: kafka.controller.TopicDeletionManager.
"""

from collections.abc import Collection, Iterable

from kctl.broker.controller.context import (
    PARTITIONS_PER_TURN,
    ControllerContext,
    PartitionAndReplica,
)
from kctl.broker.controller.replica_state_machine import ReplicaState, ReplicaStateMachine
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.work import Work


@dataclass(frozen=True, slots=True)
class DeletionSteps:
    """The possible steps; topics in the order in which they were queued."""

    # All replicas are deleted: remove the topic's znodes.
    complete: list[str]
    # Ineligible replicas that move to OFFLINE before another attempt.
    retry: list[PartitionAndReplica]
    # Topics whose replicas can be deleted.
    start: list[str]


class TopicDeletion:
    """Progress of all deletions; the queue itself is in the context."""

    def __init__(self, context: ControllerContext, replicas: ReplicaStateMachine) -> None:
        self._context = context
        self._replicas = replicas
        self._ineligible: dict[str, None] = {}
        self._started: dict[str, None] = {}
        # Removed by reassignments; their live brokers have not confirmed the deletion yet.
        self._leaving: dict[PartitionAndReplica, None] = {}

    def queue(self, topics: Iterable[str]) -> None:
        """Queue topics for deletion."""
        self._context.topics_to_delete.update(dict.fromkeys(topics))

    def mark_ineligible(self, topics: Iterable[str]) -> None:
        """Make these topics wait, if they are queued."""
        for topic in topics:
            if topic in self._context.topics_to_delete:
                self._ineligible[topic] = None

    def resume(self, topics: Iterable[str]) -> None:
        """Allow another attempt for these topics."""
        for topic in topics:
            self._ineligible.pop(topic, None)

    def mark_started(self, topics: Iterable[str]) -> list[str]:
        """Mark topics as started; return those that were not before."""
        fresh = [topic for topic in topics if topic not in self._started]
        self._started.update(dict.fromkeys(fresh))
        return fresh

    def is_started(self, topic: str) -> bool:
        """Return whether replicas of the topic may already be deleted."""
        return topic in self._started

    def mark_leaving(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """Record replicas that a reassignment deletes, on registered brokers."""
        self._leaving.update(dict.fromkeys(replicas))

    def mark_left(self, replicas: Iterable[PartitionAndReplica]) -> bool:
        """Record the brokers' responses; return whether a topic may have waited for them."""
        left = [replica for replica in replicas if replica in self._leaving]
        for replica in left:
            del self._leaving[replica]
        return any(self.is_started(replica.partition.topic) for replica in left)

    def mark_brokers_gone(self, broker_ids: Collection[int]) -> bool:
        """Record brokers that will not respond; return whether a topic may have waited for them."""
        return self.mark_left([r for r in self._leaving if r.broker_id in broker_ids])

    def forget(self, topic: str) -> None:
        """Remove a topic that is gone from the store."""
        self._ineligible.pop(topic, None)
        self._started.pop(topic, None)

    def clear(self) -> None:
        """Remove all state (the controller resigns)."""
        self._ineligible.clear()
        self._started.clear()
        self._leaving.clear()

    def decide(self) -> Work[DeletionSteps]:
        """Return the next steps; nothing is changed. A topic takes a turn of the loop for each
        PARTITIONS_PER_TURN."""
        steps = DeletionSteps([], [], [])
        for topic in self._context.topics_to_delete:
            # First, because it holds while the responses of thousands of replicas arrive.
            if self._replicas.is_deletion_under_way(topic):
                continue
            if (yield from self._is_deleted(topic)):
                if not self._is_left_anywhere(topic):
                    steps.complete.append(topic)
            elif topic in self._ineligible:
                continue
            else:
                steps.start.append(topic)
                steps.retry.extend(self._replicas.in_state(topic, ReplicaState.DELETION_INELIGIBLE))
        return steps

    def _is_deleted(self, topic: str) -> Work[bool]:
        """Return whether all replicas are deleted; ends at the first that is not."""
        for number, partitions in enumerate(self._context.parts_of(topic, PARTITIONS_PER_TURN)):
            if number:
                yield
            for replica in self._context.replicas_of(partitions):
                if self._replicas.state(replica) is not ReplicaState.DELETION_SUCCESSFUL:
                    return False
        return True

    def _is_left_anywhere(self, topic: str) -> bool:
        return any(replica.partition.topic == topic for replica in self._leaving)

    def split_replicas(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[list[PartitionAndReplica], list[PartitionAndReplica]]:
        """Return the partitions' replicas that can be deleted now and are not yet, and the dead
        ones."""
        alive: list[PartitionAndReplica] = []
        dead: list[PartitionAndReplica] = []
        for replica in self._context.replicas_of(partitions):
            if not self._context.is_replica_online(replica.broker_id, replica.partition):
                dead.append(replica)
            elif self._replicas.state(replica) is not ReplicaState.DELETION_SUCCESSFUL:
                alive.append(replica)
        return alive, dead
