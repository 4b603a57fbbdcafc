"""Procedures: all that the active controller can do, built around one context; no more than that.

Kafka 2.7: the parts of kafka.controller.KafkaController.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kctl.broker.config import BrokerConfig
from kctl.broker.controller.cluster_changes import ClusterChanges
from kctl.broker.controller.context import ControllerContext
from kctl.broker.controller.controlled_shutdown import ControlledShutdown
from kctl.broker.controller.isr_changes import IsrChanges
from kctl.broker.controller.leader_elections import LeaderElections
from kctl.broker.controller.reassignment import Reassignment
from kctl.broker.controller.reassignment_requests import altered, listed, wishes_of
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.broker.controller.state_changes import StateChanges
from kctl.model import TopicPartition
from kctl.protocol.messages.alter_isr import AlterIsrRequest
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from kctl.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kctl.protocol.messages.elect_leaders import ElectLeadersRequest
from kctl.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from kctl.protocol.schema import Message
from kctl.runtime.trace import Trace
from kctl.store.cluster_store import ClusterStore


class Procedures:
    """Made with the controller; empty while it stands by."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        store: ClusterStore,
        trace: Trace,
        send: Callable[[], None],
        isrs_changed: Callable[[Sequence[TopicPartition]], object],
    ) -> None:
        """`send` hands what was gathered for brokers to the channels at once; `isrs_changed`
        hears of ISRs that leaders changed."""
        context = self.context = ControllerContext()
        batch = self.batch = ControllerBrokerRequestBatch(
            context, broker_id, config.inter_broker_listener
        )
        changes = self.changes = StateChanges(
            context,
            batch,
            store,
            trace,
            unclean_election_default=config.unclean_leader_election_enable,
        )
        self.cluster = ClusterChanges(context, changes, batch, store, send)
        self.reassignment = Reassignment(context, changes, batch, store, self.cluster)
        self.elections = LeaderElections(context, changes, store)
        self._isr_changes = IsrChanges(context, batch, store, isrs_changed)
        self._shutdown = ControlledShutdown(context, changes, batch)

    def answers(self) -> dict[type, Callable[[Any], Awaitable[Message]]]:
        """What answers each kind of request."""
        return {
            AlterIsrRequest: self._isr_changes.alter,
            ControlledShutdownRequest: self._shutdown.shut_down,
            ElectLeadersRequest: self.elections.elect,
            AlterPartitionReassignmentsRequest: self._alter_reassignments,
            ListPartitionReassignmentsRequest: self._list_reassignments,
        }

    def clear(self) -> None:
        """Forget everything that a controller knows."""
        self.batch.clear()
        self.changes.clear()
        self.cluster.deletion.clear()
        self.context.clear()

    async def _alter_reassignments(self, request: AlterPartitionReassignmentsRequest) -> Message:
        return altered(await self.reassignment.start(wishes_of(request)))

    async def _list_reassignments(self, request: ListPartitionReassignmentsRequest) -> Message:
        return listed(self.context, request)
