"""Procedures: builds the parts of the active controller around one context.

Kafka 2.7: the parts of kafka.controller.KafkaController.
"""

from collections.abc import Awaitable, Callable, Sequence

from kctl.broker.controller.broker_and_topic_changes import BrokerAndTopicChanges
from kctl.broker.controller.context import ControllerContext
from kctl.broker.controller.controlled_shutdown import ControlledShutdown
from kctl.broker.controller.isr_changes import IsrChanges
from kctl.broker.controller.reassignment import Reassignment
from kctl.broker.controller.reassignment_requests import altered, listed, targets_of
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.broker.controller.requested_elections import RequestedElections
from kctl.broker.controller.state_transitions import StateTransitions
from kctl.configs.broker_config import BrokerConfig
from kctl.model import TopicPartition
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from kctl.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from kctl.protocol.schema import Message
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.work import Pace


class Procedures:
    """The procedures of one controller; their state is empty unless it is active."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        store: ClusterStore,
        runtime: Runtime,
        send: Callable[[], Awaitable[None]],
        isrs_changed: Callable[[Sequence[TopicPartition]], object],
        pace: Pace,
    ) -> None:
        """Create the procedures.

        `send` sends the requests collected for brokers; `isrs_changed` is called with partitions
        whose leaders changed the ISR; `pace` counts the work of all events.
        """
        self.pace = pace
        context = self.context = ControllerContext()
        batch = self.batch = ControllerBrokerRequestBatch(
            context, broker_id, config.inter_broker_listener, pace
        )
        transitions = self.transitions = StateTransitions(
            context,
            batch,
            store,
            runtime,
            pace,
            unclean_election_default=config.unclean_leader_election_enable,
        )
        self.cluster = BrokerAndTopicChanges(
            context, transitions, batch, store, send, pace, runtime.trace
        )
        self.reassignment = Reassignment(context, transitions, batch, store, self.cluster, pace)
        self.elections = RequestedElections(context, transitions, store, pace)
        self.isr_changes = IsrChanges(context, batch, store, isrs_changed, pace)
        self.shutdown = ControlledShutdown(context, transitions, batch)

    def clear(self) -> None:
        """Clear the state of the procedures."""
        self.batch.resign()
        self.transitions.clear()
        self.cluster.deletion.clear()
        self.context.clear()

    async def alter_reassignments(self, request: AlterPartitionReassignmentsRequest) -> Message:
        """Start, replace or cancel reassignments; the response has a result per partition."""
        targets = await targets_of(request, self.pace)
        return await altered(await self.reassignment.start(targets), self.pace)

    async def list_reassignments(self, request: ListPartitionReassignmentsRequest) -> Message:
        """Return the reassignments that are in progress."""
        return await listed(self.context, request, self.pace)
