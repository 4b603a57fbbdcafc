"""TopicDeletion: which topics can be deleted now, which must wait, and which are done.

A topic is *queued* (`context.topics_to_delete`, mirrored in `/admin/delete_topics`) until it is
gone. It is *ineligible* while a replica cannot be deleted: its broker is down, a StopReplica
failed, or a reassignment runs. It is *started* once its partitions were taken out of service.
Each replica goes OFFLINE -> DELETION_STARTED -> DELETION_SUCCESSFUL, or back by way of
DELETION_INELIGIBLE; the topic is gone when all are DELETION_SUCCESSFUL. A controller that takes
over starts again from the znodes: every step can be repeated.

A replica that a reassignment took away is in no assignment any more, but its data may still be on
a broker that did not answer yet. Until it answers, or its registration ends, the topic is not gone:
created again it could begin with that data. (In Apache Kafka 2.7.2 it can.)

This machine only decides; the shell carries out, and tells it what came of it.

Kafka 2.7: kafka.controller.TopicDeletionManager.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.broker.controller.replica_state_machine import ReplicaState, ReplicaStateMachine


@dataclass(frozen=True, slots=True)
class DeletionSteps:
    """What can be done now; topics in the order in which they were queued."""

    # All replicas are deleted: remove the topic's znodes.
    complete: list[str]
    # Replicas that were ineligible and go back to OFFLINE before they are tried again.
    retry: list[PartitionAndReplica]
    # Topics whose replicas can be told to delete their data.
    start: list[str]


class TopicDeletion:
    """Progress of all deletions; the queue itself is in the context."""

    def __init__(self, context: ControllerContext, replicas: ReplicaStateMachine) -> None:
        self._context = context
        self._replicas = replicas
        self._ineligible: dict[str, None] = {}
        self._started: dict[str, None] = {}
        # Taken away by reassignments; their live brokers have not said yet that they are deleted.
        self._leaving: dict[PartitionAndReplica, None] = {}

    def queue(self, topics: Iterable[str]) -> None:
        """Deletion of these topics was asked for."""
        self._context.topics_to_delete.update(dict.fromkeys(topics))

    def mark_ineligible(self, topics: Iterable[str]) -> None:
        """These topics, if queued, must wait."""
        for topic in topics:
            if topic in self._context.topics_to_delete:
                self._ineligible[topic] = None

    def resume(self, topics: Iterable[str]) -> None:
        """What these topics waited for may have come."""
        for topic in topics:
            self._ineligible.pop(topic, None)

    def mark_started(self, topics: Iterable[str]) -> list[str]:
        """Those of `topics` that were not started before; now they are."""
        fresh = [topic for topic in topics if topic not in self._started]
        self._started.update(dict.fromkeys(fresh))
        return fresh

    def is_started(self, topic: str) -> bool:
        """Whether replicas of the topic may be deleted already."""
        return topic in self._started

    def mark_leaving(self, replicas: Iterable[PartitionAndReplica]) -> None:
        """A reassignment has these deleted, by brokers that are registered."""
        self._leaving.update(dict.fromkeys(replicas))

    def mark_left(self, replicas: Iterable[PartitionAndReplica]) -> bool:
        """Their brokers have answered; True if that may be what a topic waits for."""
        left = [replica for replica in replicas if replica in self._leaving]
        for replica in left:
            del self._leaving[replica]
        return any(self.is_started(replica.partition.topic) for replica in left)

    def mark_brokers_gone(self, broker_ids: Collection[int]) -> bool:
        """These will not answer; True if that may be what a topic waits for."""
        return self.mark_left([r for r in self._leaving if r.broker_id in broker_ids])

    def forget(self, topic: str) -> None:
        """The topic is gone from the store."""
        self._ineligible.pop(topic, None)
        self._started.pop(topic, None)

    def clear(self) -> None:
        """Forget all (the controller resigns)."""
        self._ineligible.clear()
        self._started.clear()
        self._leaving.clear()

    def decide(self) -> DeletionSteps:
        """What to do next; nothing is changed."""
        steps = DeletionSteps([], [], [])
        for topic in self._context.topics_to_delete:
            replicas = self._context.replicas_of_topic(topic)
            states = [self._replicas.state(replica) for replica in replicas]
            if all(state is ReplicaState.DELETION_SUCCESSFUL for state in states):
                if not self._is_left_anywhere(topic):
                    steps.complete.append(topic)
            elif topic in self._ineligible or ReplicaState.DELETION_STARTED in states:
                continue
            else:
                steps.start.append(topic)
                steps.retry.extend(self._replicas.in_state(topic, ReplicaState.DELETION_INELIGIBLE))
        return steps

    def _is_left_anywhere(self, topic: str) -> bool:
        return any(replica.partition.topic == topic for replica in self._leaving)

    def split_replicas(
        self, topic: str
    ) -> tuple[list[PartitionAndReplica], list[PartitionAndReplica]]:
        """The topic's replicas that can be deleted now (not done yet), and the dead ones."""
        alive: list[PartitionAndReplica] = []
        dead: list[PartitionAndReplica] = []
        for replica in self._context.replicas_of_topic(topic):
            if not self._context.is_replica_online(replica.broker_id, replica.partition):
                dead.append(replica)
            elif self._replicas.state(replica) is not ReplicaState.DELETION_SUCCESSFUL:
                alive.append(replica)
        return alive, dead
