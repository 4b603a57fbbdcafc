"""ControlledShutdown: moves leadership away from a broker that is about to stop.

The broker counts as shutting down from its request until its registration is gone: it becomes
leader of nothing, and its leaderships move to other in-sync replicas. Partitions without one stay
with it, and the response names them: the broker retries, or stops and leaves them without a leader.
Its followers are stopped, so that leaders do not wait for them.

Kafka 2.7: kafka.controller.KafkaController.doControlledShutdown; KIP-380.
"""

from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.broker.controller.leader_election_algorithms import ElectionStrategy
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.broker.controller.state_transitions import StateTransitions
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

NO_BROKER_EPOCH = -1


class ControlledShutdown:
    """Handles ControlledShutdown for the active controller."""

    def __init__(
        self,
        context: ControllerContext,
        transitions: StateTransitions,
        batch: ControllerBrokerRequestBatch,
    ) -> None:
        self._context = context
        self._transitions = transitions
        self._batch = batch

    async def shut_down(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move leaderships; return a response with the partitions that have no other leader."""
        context, broker_id = self._context, request.broker_id
        broker = context.live_brokers.get(broker_id)
        if broker is None:
            return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
        if request.broker_epoch != NO_BROKER_EPOCH and request.broker_epoch < broker.epoch:
            return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        context.shutting_down[broker_id] = None
        replicated = self._replicated(broker_id)
        led = [tp for tp in replicated if self._leader(tp) == broker_id]
        followed = [tp for tp in replicated if self._leader(tp) != broker_id]
        await self._transitions.bring_online(led, ElectionStrategy.CONTROLLED_SHUTDOWN)
        replicas = [PartitionAndReplica(tp, broker_id) for tp in followed]
        for replica in replicas:
            self._batch.add_stop_replica(replica, delete=False)
        await self._transitions.take_offline(replicas)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=tp.topic, partition_index=tp.partition)
                for tp in self._replicated(broker_id)
                if self._leader(tp) == broker_id
            ]
        )

    def _replicated(self, broker_id: int) -> list[TopicPartition]:
        """Return the broker's partitions that have other replicas."""
        context = self._context
        return [
            replica.partition
            for replica in context.replicas_on(broker_id)
            if len(context.assignment(replica.partition).replicas) > 1
            and replica.partition in context.leadership
            and not context.is_to_be_deleted(replica.partition.topic)
        ]

    def _leader(self, partition: TopicPartition) -> int:
        return self._context.leadership[partition].leader_and_isr.leader
