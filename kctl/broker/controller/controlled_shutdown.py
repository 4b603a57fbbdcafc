"""ControlledShutdown: moves leadership off a broker that asks to leave.

The broker counts as shutting down from its request until its registration goes: it leads nothing
new, and what it leads goes to other replicas in sync. Partitions for which there is none stay with
it, and the answer names them: the broker asks again, or leaves them without a leader. What it
follows it is told to stop, so that it is not waited for.

Kafka 2.7: kafka.controller.KafkaController.doControlledShutdown; KIP-380.
"""

from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.broker.controller.elections import ElectionStrategy
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.broker.controller.state_changes import StateChanges
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

NO_BROKER_EPOCH = -1


class ControlledShutdown:
    """Part of the active controller."""

    def __init__(
        self,
        context: ControllerContext,
        changes: StateChanges,
        batch: ControllerBrokerRequestBatch,
    ) -> None:
        self._context = context
        self._changes = changes
        self._batch = batch

    async def shut_down(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        """Move what can be moved; the answer names what still has only this leader."""
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
        await self._changes.bring_online(led, ElectionStrategy.CONTROLLED_SHUTDOWN)
        replicas = [PartitionAndReplica(tp, broker_id) for tp in followed]
        for replica in replicas:
            self._batch.add_stop_replica(replica, delete=False)
        await self._changes.take_offline(replicas)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=tp.topic, partition_index=tp.partition)
                for tp in self._replicated(broker_id)
                if self._leader(tp) == broker_id
            ]
        )

    def _replicated(self, broker_id: int) -> list[TopicPartition]:
        """The broker's partitions that have other replicas to go on with."""
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
