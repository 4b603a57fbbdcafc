"""Decides which partitions to move back to their preferred leader.

Kafka 2.7: kafka.controller.KafkaController.checkAndTriggerAutoLeaderRebalance.
"""

from kctl.broker.controller.context import ControllerContext
from kctl.broker.controller.leader_election_algorithms import preferred_leader
from kctl.model import TopicPartition
from kctl.work import Pace


async def partitions_to_move_back(
    context: ControllerContext, imbalance_percentage: int, pace: Pace
) -> list[TopicPartition]:
    """Return partitions whose preferred replica could lead but does not.

    Only brokers count that miss more than `imbalance_percentage` of their preferred leaderships.
    The context does not change meanwhile: events of the controller queue.
    """
    preferred_by: dict[int, list[TopicPartition]] = {}
    for tp in list(context.partitions()):
        await pace.spend()
        replicas = context.assignment(tp).replicas
        if replicas and tp in context.leadership and not context.is_to_be_deleted(tp.topic):
            preferred_by.setdefault(replicas[0], []).append(tp)
    to_move: list[TopicPartition] = []
    for broker_id, partitions in sorted(preferred_by.items()):
        strayed = []
        for tp in partitions:
            await pace.spend()
            if context.leadership[tp].leader_and_isr.leader != broker_id:
                strayed.append(tp)
        if len(strayed) * 100 > imbalance_percentage * len(partitions):
            for tp in strayed:
                await pace.spend()
                if _can_move_back(context, tp):
                    to_move.append(tp)
    return to_move


def _can_move_back(context: ControllerContext, partition: TopicPartition) -> bool:
    if partition in context.reassigning:
        return False
    replicas = context.assignment(partition).replicas
    live = [r for r in replicas if context.is_replica_online(r, partition)]
    isr = context.leadership[partition].leader_and_isr.isr
    return preferred_leader(replicas, isr, live) is not None
