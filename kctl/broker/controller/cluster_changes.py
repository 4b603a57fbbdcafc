"""ClusterChanges: what the controller does when brokers, topics or partitions come and go.

Each method is one procedure of the controller, the parts of it in Kafka's order: facts into the
context, moves of partitions and replicas, and what brokers are told, which the shell sends when
the event is over (or here in between, where brokers must hear one thing before the other).
A procedure that is cut short by losing the controllership is taken up by the next controller from
what the store holds.

Kafka 2.7: kafka.controller.KafkaController (onBrokerStartup, onBrokerFailure,
onReplicasBecomeOffline, onNewPartitionCreation), kafka.controller.TopicDeletionManager.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kctl.broker.controller.context import ControllerContext, PartitionAndReplica
from kctl.broker.controller.elections import ElectionStrategy
from kctl.broker.controller.partition_state_machine import PartitionState
from kctl.broker.controller.replica_state_machine import ReplicaState
from kctl.broker.controller.request_batch import ControllerBrokerRequestBatch
from kctl.broker.controller.state_changes import StateChanges
from kctl.broker.controller.topic_deletion import TopicDeletion
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from kctl.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import NotEmptyError


class ClusterChanges:
    """The controller's procedures; the shell calls one at a time."""

    def __init__(
        self,
        context: ControllerContext,
        changes: StateChanges,
        batch: ControllerBrokerRequestBatch,
        store: ClusterStore,
        send: Callable[[], None],
    ) -> None:
        self._context = context
        self._changes = changes
        self._batch = batch
        self._store = store
        self._send = send
        self.deletion = TopicDeletion(context, changes.replicas)

    # --- brokers

    async def start_machines(self) -> None:
        """A new controller: find the state of every partition and replica, elect what can be."""
        context, changes = self._context, self._changes
        online, offline = context.online_and_offline_replicas()
        for replica in online:
            changes.replicas.start(replica, ReplicaState.ONLINE)
        for replica in offline:
            # Perhaps its deletion was under way: this state lets it be tried again.
            changes.replicas.start(replica, ReplicaState.DELETION_INELIGIBLE)
        changes.move_replicas(online, ReplicaState.ONLINE)
        await changes.take_offline(offline)
        for tp in context.partitions():
            known = context.leadership.get(tp)
            if known is None:
                state = PartitionState.NEW
            elif tp in context.led_from_before:
                # Another epoch, even if it is the same leader.
                state = PartitionState.OFFLINE
            elif context.is_replica_online(known.leader_and_isr.leader, tp):
                state = PartitionState.ONLINE
            else:
                state = PartitionState.OFFLINE
            changes.partitions.start(tp, state)
        await changes.bring_all_online()

    async def on_broker_startup(self, broker_ids: Sequence[int]) -> None:
        """Brokers registered; the context has them already."""
        context = self._context
        for broker_id in broker_ids:
            context.on_offline_dirs.pop(broker_id, None)
        # Everybody learns of the new brokers before anybody is told that they lead something.
        others = [b for b in context.live_or_shutting_down_ids if b not in broker_ids]
        self._batch.add_update_metadata([], others)
        self._send()
        self._batch.add_update_metadata(list(context.leadership), broker_ids)
        self._send()
        replicas = [r for broker_id in broker_ids for r in context.replicas_on(broker_id)]
        self._changes.move_replicas(replicas, ReplicaState.ONLINE)
        await self._changes.bring_all_online()
        waiting = dict.fromkeys(
            r.partition.topic for r in replicas if context.is_to_be_deleted(r.partition.topic)
        )
        if waiting:
            self.deletion.resume(waiting)
            await self.run_deletions()

    async def on_broker_failure(self, broker_ids: Sequence[int]) -> None:
        """Registrations are gone; the context has dropped them already."""
        replicas = [r for broker_id in broker_ids for r in self._context.replicas_on(broker_id)]
        await self.on_replicas_offline(replicas)

    async def on_replicas_offline(self, replicas: Sequence[PartitionAndReplica]) -> None:
        """Their broker or their log directory failed: partitions they led get other leaders."""
        context, changes = self._context, self._changes
        leaderless = context.partitions_with_offline_leader()
        changes.move_partitions(leaderless, PartitionState.OFFLINE)
        await changes.bring_all_online()
        to_delete = [r for r in replicas if context.is_to_be_deleted(r.partition.topic)]
        await changes.take_offline(
            r for r in replicas if not context.is_to_be_deleted(r.partition.topic)
        )
        if to_delete:
            self._fail_deletion(to_delete)
            await self.run_deletions()
        if not leaderless:
            # No LeaderAndIsr may have come of it, yet all must hear who lives.
            self._batch.add_update_metadata([])

    async def on_leader_and_isr_response(
        self, broker_id: int, response: LeaderAndIsrResponse
    ) -> None:
        """A broker says which replicas it could not bring up for a failed log directory."""
        if response.error_code != ErrorCode.NONE:
            return
        known = self._context.on_offline_dirs.get(broker_id, set())
        failed: list[TopicPartition] = []
        now_offline = set(known)
        for result in response.partition_errors:
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

    def ask_for_offline_replicas(self, broker_id: int) -> None:
        """A log directory of the broker failed: announce its replicas again, so that its answer
        tells which are gone."""
        self._changes.move_replicas(self._context.replicas_on(broker_id), ReplicaState.ONLINE)

    # --- topics and partitions

    async def on_new_partitions(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment]
    ) -> None:
        """Partitions appeared in the store: take them over and give them their first leaders."""
        context, changes = self._context, self._changes
        for partition, assignment in assignments.items():
            context.set_assignment(partition, assignment)
        partitions = list(assignments)
        replicas = context.replicas_of(partitions)
        changes.move_partitions(partitions, PartitionState.NEW)
        changes.move_replicas(replicas, ReplicaState.NEW)
        await changes.bring_online(partitions, ElectionStrategy.OFFLINE)
        changes.move_replicas(replicas, ReplicaState.ONLINE)

    # --- deletion

    async def run_deletions(self) -> None:
        """Carry every deletion as far as it gets now."""
        steps = self.deletion.decide()
        if steps.complete:
            await self._complete_deletion(steps.complete)
        if steps.start:
            await self._start_deletion(steps.start, steps.retry)

    async def on_stop_replica_response(
        self, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
    ) -> None:
        """A broker deleted replicas, or could not."""
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
        was_waited_for = self.deletion.mark_left(answered)
        asked = [r for r in answered if self._context.is_to_be_deleted(r.partition.topic)]
        if not asked and not was_waited_for:
            return
        if response.error_code != ErrorCode.NONE:
            self._fail_deletion(asked)
        else:
            self._fail_deletion([r for r in asked if r.partition in failed])
            deleted = [r for r in asked if r.partition not in failed]
            self._changes.move_replicas(
                (r for r in deleted if self._is_being_deleted(r)), ReplicaState.DELETION_SUCCESSFUL
            )
        await self.run_deletions()

    def _is_being_deleted(self, replica: PartitionAndReplica) -> bool:
        return self._changes.replicas.state(replica) is ReplicaState.DELETION_STARTED

    def _fail_deletion(self, replicas: Sequence[PartitionAndReplica]) -> None:
        machine = self._changes.replicas
        self._changes.move_replicas(
            (r for r in replicas if machine.is_legal(r, ReplicaState.DELETION_INELIGIBLE)),
            ReplicaState.DELETION_INELIGIBLE,
        )
        self.deletion.mark_ineligible(dict.fromkeys(r.partition.topic for r in replicas))

    async def _start_deletion(
        self, topics: Sequence[str], retry: Iterable[PartitionAndReplica]
    ) -> None:
        context, changes = self._context, self._changes
        for topic in self.deletion.mark_started(topics):
            partitions = context.partitions_of(topic)
            changes.move_partitions(partitions, PartitionState.OFFLINE)
            changes.move_partitions(partitions, PartitionState.NON_EXISTENT)
        alive: list[PartitionAndReplica] = []
        dead: list[PartitionAndReplica] = []
        for topic in topics:
            self._batch.add_update_metadata(context.partitions_of(topic))
            alive_of_topic, dead_of_topic = self.deletion.split_replicas(topic)
            if dead_of_topic:
                self.deletion.mark_ineligible([topic])
            alive += alive_of_topic
            dead += dead_of_topic
        # Caches forget the topic before its replicas stop.
        self._send()
        await changes.take_offline(dict.fromkeys([*retry, *alive]))
        changes.move_replicas(
            (r for r in dead if changes.replicas.is_legal(r, ReplicaState.DELETION_INELIGIBLE)),
            ReplicaState.DELETION_INELIGIBLE,
        )
        changes.move_replicas(alive, ReplicaState.DELETION_STARTED)

    async def _complete_deletion(self, topics: Sequence[str]) -> None:
        fence = self._context.epoch_zk_version
        paths = [path for topic in topics for path in self._topic_paths(topic)]
        try:
            await self._store.delete_all(paths, fence)
        except NotEmptyError:
            # There is more below a topic than we knew of.
            for topic in topics:
                await self._store.delete_topic_znode(topic, fence)
        await self._store.delete_topic_configs(topics, fence)
        await self._store.delete_topic_deletions(topics, fence)
        for topic in topics:
            self._changes.move_replicas(
                self._context.replicas_of_topic(topic), ReplicaState.NON_EXISTENT
            )
            self._context.remove_topic(topic)
            self.deletion.forget(topic)

    def _topic_paths(self, topic: str) -> Iterator[str]:
        """The topic's znodes, children first."""
        for partition in self._context.partitions_of(topic):
            yield znodes.partition_state_path(partition)
            yield znodes.partition_path(partition)
        yield znodes.partitions_path(topic)
        yield znodes.topic_path(topic)

    def forget_topic(self, topic: str) -> None:
        """Somebody removed a topic's znodes behind the controller's back: drop it here, too."""
        self._changes.forget_topic(topic, self._context.partitions_of(topic))
        self._context.remove_topic(topic)
        self.deletion.forget(topic)
