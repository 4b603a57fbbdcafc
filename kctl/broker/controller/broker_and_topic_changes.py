"""BrokerAndTopicChanges: the controller's procedures for changes of brokers, topics and partitions.

Each method is one procedure of the controller, with its parts in Kafka's order: facts into the
context, moves of partitions and replicas, and requests to brokers, which the controller sends at
the end of the event (or here in between, where brokers must receive one before the other). A
procedure that is interrupted by losing the controllership is continued by the next controller from
the content of the store.

Kafka 2.7: kafka.controller.KafkaController (onBrokerStartup, onBrokerFailure,
onReplicasBecomeOffline, onNewPartitionCreation), kafka.controller.TopicDeletionManager.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from kctl.broker.controller.context import (
    PARTITIONS_PER_TURN,
    ControllerContext,
    PartitionAndReplica,
)
from kctl.broker.controller.leader_election_algorithms import ElectionStrategy
from kctl.broker.controller.partition_state_machine import PartitionState
from kctl.broker.controller.replica_state_machine import ReplicaState
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.broker.controller.state_transitions import StateTransitions
from kctl.broker.controller.topic_deletion import TopicDeletion
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from kctl.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kctl.runtime.trace import Trace
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import NotEmptyError
from kctl.work import Pace, Work, finished, parts

T = TypeVar("T")


class BrokerAndTopicChanges:
    """The controller's procedures; it calls one at a time."""

    def __init__(
        self,
        context: ControllerContext,
        transitions: StateTransitions,
        batch: ControllerBrokerRequestBatch,
        store: ClusterStore,
        send: Callable[[], Awaitable[None]],
        pace: Pace,
        trace: Trace,
    ) -> None:
        self._context = context
        self._transitions = transitions
        self._batch = batch
        self._store = store
        self._send = send
        self._pace = pace
        self._trace = trace
        self._spend = pace.spend
        self.deletion = TopicDeletion(context, transitions.replicas)

    # --- brokers

    async def start_machines(self) -> None:
        """Determine the state of every partition and replica for a new controller; elect
        leaders."""
        context, transitions = self._context, self._transitions
        partitions = list(context.partitions())
        online, offline = await context.online_and_offline_replicas(partitions, self._pace)
        async for replicas in self._pace.over(online):
            transitions.replicas.start(replicas, ReplicaState.ONLINE)
        async for replicas in self._pace.over(offline):
            # Its deletion may have been interrupted: this state allows another attempt.
            transitions.replicas.start(replicas, ReplicaState.DELETION_INELIGIBLE)
        await transitions.move_replicas(online, ReplicaState.ONLINE)
        await transitions.take_offline(offline)
        async for part in self._pace.over(partitions):
            for tp in part:
                transitions.partitions.start(tp, self._first_state(tp))
        await transitions.bring_all_online()

    def _first_state(self, tp: TopicPartition) -> PartitionState:
        context = self._context
        known = context.leadership.get(tp)
        if known is None:
            return PartitionState.NEW
        # Led from before, it needs another epoch, even under the same leader.
        is_led = tp not in context.led_from_before and context.is_replica_online(
            known.leader_and_isr.leader, tp
        )
        return PartitionState.ONLINE if is_led else PartitionState.OFFLINE

    async def on_broker_startup(self, broker_ids: Sequence[int]) -> None:
        """Handle brokers that registered; the context contains them already."""
        context = self._context
        for broker_id in broker_ids:
            context.on_offline_dirs.pop(broker_id, None)
        # All brokers receive the new ones before one of these is announced as a leader.
        others = [b for b in context.live_or_shutting_down_ids if b not in broker_ids]
        self._batch.add_update_metadata([], others)
        await self._send()
        self._batch.add_update_metadata(list(context.leadership), broker_ids)
        await self._send()
        replicas = [r for broker_id in broker_ids for r in context.replicas_on(broker_id)]
        await self._transitions.move_replicas(replicas, ReplicaState.ONLINE)
        await self._transitions.bring_all_online()
        waiting = dict.fromkeys(
            r.partition.topic for r in replicas if context.is_to_be_deleted(r.partition.topic)
        )
        if waiting:
            self.deletion.resume(waiting)
            await self.run_deletions()

    async def on_broker_failure(self, broker_ids: Sequence[int]) -> None:
        """Handle brokers whose registration is gone; the context no longer contains them."""
        replicas = [r for broker_id in broker_ids for r in self._context.replicas_on(broker_id)]
        await self.on_replicas_offline(replicas)

    async def on_replicas_offline(self, replicas: Sequence[PartitionAndReplica]) -> None:
        """Handle replicas whose broker or log directory failed: partitions that they led get new
        leaders."""
        context, transitions = self._context, self._transitions
        leaderless = await context.partitions_with_offline_leader(self._pace)
        await transitions.move_partitions(leaderless, PartitionState.OFFLINE)
        await transitions.bring_all_online()
        to_delete = [r for r in replicas if context.is_to_be_deleted(r.partition.topic)]
        await transitions.take_offline(
            r for r in replicas if not context.is_to_be_deleted(r.partition.topic)
        )
        if to_delete:
            await self._fail_deletion(to_delete)
            await self.run_deletions()
        if not leaderless:
            # There may have been no LeaderAndIsr, yet all brokers need the list of live ones.
            self._batch.add_update_metadata([])

    async def on_leader_and_isr_response(
        self, broker_id: int, response: LeaderAndIsrResponse
    ) -> None:
        """Handle a broker's report of replicas that it could not start because a log directory
        failed."""
        if response.error_code != ErrorCode.NONE:
            return
        known = self._context.on_offline_dirs.get(broker_id, set())
        failed: list[TopicPartition] = []
        now_offline = set(known)
        async for part in self._pace.over(response.partition_errors):
            for result in part:
                if result.error_code == ErrorCode.NONE and not now_offline:
                    continue
                partition = TopicPartition(result.topic_name, result.partition_index)
                if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    now_offline.add(partition)
                    if partition not in known:
                        failed.append(partition)
                elif result.error_code == ErrorCode.NONE:
                    now_offline.discard(partition)
        if now_offline or known:
            self._context.on_offline_dirs[broker_id] = now_offline
        if failed:
            await self.on_replicas_offline([PartitionAndReplica(tp, broker_id) for tp in failed])

    async def ask_for_offline_replicas(self, broker_id: int) -> None:
        """Announce a broker's replicas again after a log directory failed, so that its response
        reports those that are gone."""
        await self._transitions.move_replicas(
            self._context.replicas_on(broker_id), ReplicaState.ONLINE
        )

    # --- topics and partitions

    async def on_new_partitions(
        self, assignments: Mapping[str, Mapping[int, ReplicaAssignment]]
    ) -> None:
        """Add new partitions (topic -> partition -> replicas) from the store and elect their first
        leaders."""
        context, transitions = self._context, self._transitions
        partitions: list[TopicPartition] = []
        for topic, assignment in assignments.items():
            self._trace.event("partitions_added", topic=topic, partitions=len(assignment))
            context.add_topic(topic)
            async for part in self._pace.over(assignment.items()):
                for number, replica_assignment in part:
                    partitions.append(TopicPartition(topic, number))
                    context.set_assignment(partitions[-1], replica_assignment)
        replicas: list[PartitionAndReplica] = []
        for listed in parts(partitions, PARTITIONS_PER_TURN):
            await self._spend(len(listed))
            replicas += context.replicas_of(listed)
        await transitions.move_partitions(partitions, PartitionState.NEW)
        await transitions.move_replicas(replicas, ReplicaState.NEW)
        await transitions.bring_online(partitions, ElectionStrategy.OFFLINE)
        await transitions.move_replicas(replicas, ReplicaState.ONLINE)

    # --- deletion

    async def run_deletions(self) -> None:
        """Advance every deletion as far as possible."""
        steps = await self._finished(self.deletion.decide())
        if steps.complete:
            await self._complete_deletion(steps.complete)
        if steps.start:
            await self._start_deletion(steps.start, steps.retry)

    async def on_stop_replica_response(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> None:
        """Handle a broker's report of replicas that it deleted, or failed to delete."""
        failed = {
            TopicPartition(result.topic_name, result.partition_index)
            for result in response.partition_errors
            if result.error_code != ErrorCode.NONE
        }
        answered = [
            PartitionAndReplica(TopicPartition(topic.topic_name, p.partition_index), broker_id)
            for topic in request.topic_states
            for p in topic.partition_states
            if p.delete_partition
        ]
        was_awaited = self.deletion.mark_left(answered)
        asked = [r for r in answered if self._context.is_to_be_deleted(r.partition.topic)]
        if not asked and not was_awaited:
            return
        if response.error_code != ErrorCode.NONE:
            await self._fail_deletion(asked)
        else:
            await self._fail_deletion([r for r in asked if r.partition in failed])
            deleted = [r for r in asked if r.partition not in failed]
            await self._transitions.move_replicas(
                [r for r in deleted if self._is_being_deleted(r)], ReplicaState.DELETION_SUCCESSFUL
            )
        await self.run_deletions()

    def _is_being_deleted(self, replica: PartitionAndReplica) -> bool:
        return self._transitions.replicas.state(replica) is ReplicaState.DELETION_STARTED

    async def _fail_deletion(self, replicas: Sequence[PartitionAndReplica]) -> None:
        machine = self._transitions.replicas
        await self._transitions.move_replicas(
            [r for r in replicas if machine.is_legal(r, ReplicaState.DELETION_INELIGIBLE)],
            ReplicaState.DELETION_INELIGIBLE,
        )
        self.deletion.mark_ineligible(dict.fromkeys(r.partition.topic for r in replicas))

    async def _start_deletion(
        self, topics: Sequence[str], retry: Iterable[PartitionAndReplica]
    ) -> None:
        context, transitions = self._context, self._transitions
        for topic in self.deletion.mark_started(topics):
            for target in (PartitionState.OFFLINE, PartitionState.NON_EXISTENT):
                for part in context.parts_of(topic, PARTITIONS_PER_TURN):
                    await transitions.move_partitions(part, target)
        alive: list[PartitionAndReplica] = []
        dead: list[PartitionAndReplica] = []
        for topic in topics:
            for part in context.parts_of(topic, PARTITIONS_PER_TURN):
                await self._spend(Pace.UNITS_PER_TURN // 2)
                self._batch.add_update_metadata(part)
                alive_of_part, dead_of_part = self.deletion.split_replicas(part)
                if dead_of_part:
                    self.deletion.mark_ineligible([topic])
                alive += alive_of_part
                dead += dead_of_part
        # Caches must forget the topic before its replicas stop.
        await self._send()
        await transitions.take_offline(dict.fromkeys([*retry, *alive]))
        await transitions.move_replicas(
            [r for r in dead if transitions.replicas.is_legal(r, ReplicaState.DELETION_INELIGIBLE)],
            ReplicaState.DELETION_INELIGIBLE,
        )
        await transitions.move_replicas(alive, ReplicaState.DELETION_STARTED)

    async def _complete_deletion(self, topics: Sequence[str]) -> None:
        fence = self._context.epoch_zk_version
        paths = (path for topic in topics for path in self._topic_paths(topic))
        try:
            await self._store.delete_all(paths, fence)
        except NotEmptyError:
            # There are znodes below a topic that the context does not contain.
            for topic in topics:
                await self._store.delete_topic_znode(topic, fence)
        await self._store.delete_topic_configs(topics, fence)
        await self._store.delete_topic_deletions(topics, fence)
        for topic in topics:
            for part in self._context.parts_of(topic, PARTITIONS_PER_TURN):
                await self._transitions.move_replicas(
                    self._context.replicas_of(part), ReplicaState.NON_EXISTENT
                )
            await self._finished(self._context.remove_topic(topic))
            self.deletion.forget(topic)
            self._trace.event("topic_deleted", topic=topic)

    async def _finished(self, work: Work[T]) -> T:
        """Return the result of `work`, each of whose parts takes a turn of the loop."""
        return await finished(work, lambda: self._spend(Pace.UNITS_PER_TURN))

    def _topic_paths(self, topic: str) -> Iterator[str]:
        """Yield the topic's znodes, children first."""
        for partitions in self._context.parts_of(topic, PARTITIONS_PER_TURN):
            for partition in partitions:
                yield znodes.partition_state_path(partition)
                yield znodes.partition_path(partition)
        yield znodes.partitions_path(topic)
        yield znodes.topic_path(topic)

    async def forget_topic(self, topic: str) -> None:
        """Remove a topic whose znodes were deleted by another client."""
        for part in self._context.parts_of(topic, PARTITIONS_PER_TURN):
            await self._spend(len(part))
            self._transitions.forget_partitions(part)
        self._transitions.replicas.forget_topic(topic)
        await self._finished(self._context.remove_topic(topic))
        self.deletion.forget(topic)
