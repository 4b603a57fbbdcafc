"""ZnodeEvents: the active controller's reactions to changes of znodes.

Watches are one-shot and name only the path: each method reads the current state, which sets the
watch again, so that no change is missed. The consequences are executed by the procedures
(`broker_and_topic_changes`, `reassignment`, `requested_elections`).

Kafka 2.7: kafka.controller.KafkaController (processBrokerChange, processTopicChange,
processPartitionModifications, processTopicDeletion, processZkPartitionReassignment, ...).
"""

from collections.abc import Sequence

from kctl.broker.controller import events
from kctl.broker.controller.channel_manager import ControllerChannelManager
from kctl.broker.controller.events import ControllerEvent
from kctl.broker.controller.procedures import Procedures
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import CorruptDataError
from kctl.model import ReplicaAssignment, TopicPartition
from kctl.runtime.trace import Trace
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.interface import EventType, Watch, WatchedEvent


class ZnodeEvents:
    """Handles znode events for the active controller; `on_watch` receives changes of what it
    reads."""

    def __init__(
        self,
        store: ClusterStore,
        on_watch: Watch,
        config: BrokerConfig,
        trace: Trace,
        channels: ControllerChannelManager,
        procedures: Procedures,
    ) -> None:
        self.context = procedures.context
        self._store = store
        self._on_watch = on_watch
        self._config = config
        self._trace = trace
        self._channels = channels
        self._batch = procedures.batch
        self._cluster = procedures.cluster
        self._reassignment = procedures.reassignment
        self._elections = procedures.elections
        self._pace = procedures.pace

    # --- election

    async def forget_old_notifications(self) -> None:
        """Delete old notifications: a new controller reads everything anyway."""
        fence = self.context.epoch_zk_version
        log_dir_events = await self._store.get_log_dir_event_names(self._on_watch)
        await self._store.delete_log_dir_events(log_dir_events, fence)
        isr_changes = await self._store.get_isr_change_names(self._on_watch)
        await self._store.delete_isr_changes(isr_changes, fence)

    async def load_context(self) -> None:
        """Load brokers, topics, leaders and deletions from the store."""
        context, store = self.context, self._store
        broker_ids = await store.get_broker_ids(self._on_watch)
        context.live_brokers = await store.get_brokers(broker_ids, self._on_watch)
        topics = await store.get_all_topics(self._on_watch)
        assignments = await self._assignments(topics)
        partitions: list[TopicPartition] = []
        for topic, assignment in assignments.items():
            context.add_topic(topic)
            async for part in self._pace.over(assignment.items()):
                for partition, replicas in part:
                    partitions.append(TopicPartition(topic, partition))
                    context.set_assignment(partitions[-1], replicas)
        found = await store.get_partition_states_and_changes(partitions, self._warn_of_state)
        context.leadership, changes = found
        async for changed in self._pace.over(changes.items()):
            for tp, zxid in changed:
                if self._is_led_from_before(tp, zxid):
                    context.led_from_before[tp] = None
        for broker in context.live_brokers.values():
            self._channels.add_broker(broker)
        await self._queue_deletions(await store.get_topic_deletions(self._on_watch))

    def _is_led_from_before(self, partition: TopicPartition, changed_zxid: int) -> bool:
        """Return whether the leader registered after the partition's state was written.

        Followers may have records of its epoch that were lost with its machine: it must not
        continue in the same epoch.
        """
        context = self.context
        leader = context.live_brokers.get(context.leadership[partition].leader_and_isr.leader)
        is_alone = len(context.assignment(partition).replicas) == 1
        return leader is not None and leader.epoch > changed_zxid and not is_alone

    # --- brokers

    async def on_broker_change(self, _: events.BrokerChange) -> None:
        """Handle brokers that registered, re-registered or are gone."""
        context = self.context
        broker_ids = await self._store.get_broker_ids(self._on_watch)
        current = await self._store.get_brokers(broker_ids, self._on_watch)
        known = context.live_brokers
        dead = [b for b in known if b not in current]
        bounced = [b for b in current if b in known and current[b].epoch > known[b].epoch]
        new = [b for b in current if b not in known]
        for gone in (bounced, dead):
            for broker_id in gone:
                self._channels.remove_broker(broker_id)
            context.remove_brokers(gone)
        if bounced:
            # It was away briefly: its partitions must lose it before they get it back.
            await self._cluster.on_broker_failure(bounced)
        started = sorted([*bounced, *new])
        for broker_id in started:
            context.live_brokers[broker_id] = current[broker_id]
            self._channels.add_broker(current[broker_id])
        if started:
            await self._cluster.on_broker_startup(started)
            await self._reassignment.brokers_started(started)
        if dead:
            await self._cluster.on_broker_failure(dead)
        # Brokers that restarted have received by now which of their logs have no partition.
        if self._cluster.deletion.mark_brokers_gone([*bounced, *dead]):
            await self._cluster.run_deletions()
        self._trace.event("brokers_changed", new=new, bounced=bounced, dead=dead)

    async def on_broker_modification(self, event: events.BrokerModification) -> None:
        """Apply the new listeners of a broker."""
        broker_id = event.broker_id
        broker = await self._store.get_broker(broker_id, self._on_watch)
        known = self.context.live_brokers.get(broker_id)
        if broker is None or known is None or broker.endpoints == known.endpoints:
            return
        self.context.live_brokers[broker_id] = broker
        self._batch.add_update_metadata([])

    # --- topics

    async def on_topic_change(self, _: events.TopicChange) -> None:
        """Add new topics; remove topics whose znodes are gone."""
        context = self.context
        topics = await self._store.get_all_topics(self._on_watch)
        known = context.topics
        new = [topic for topic in topics if topic not in known]
        if len(topics) - len(new) < len(known):
            current = set(topics)
            for topic in [gone for gone in known if gone not in current]:
                await self._cluster.forget_topic(topic)
        if not new:
            return
        await self._cluster.on_new_partitions(await self._assignments(new))

    async def _assignments(self, topics: Sequence[str]) -> dict[str, dict[int, ReplicaAssignment]]:
        """Return the assignments of existing topics; one that cannot be read must not keep the
        others from their leaders."""
        return await self._store.get_topic_assignments(topics, self._on_watch, self._warn_of_topic)

    def _warn_of_topic(self, error: CorruptDataError) -> None:
        self._trace.warning(f"{error}. The topic has no new partitions until it is repaired")

    def _warn_of_state(self, error: CorruptDataError) -> None:
        self._trace.warning(
            f"{error}. The partition has no leader until it is repaired and a controller is elected"
        )

    def _warn_of_notification(self, error: CorruptDataError) -> None:
        self._trace.warning(f"Dropping an invalid notification: {error}")

    async def on_partition_modification(self, event: events.PartitionModification) -> None:
        """Add new partitions of a topic."""
        topic = event.topic
        found = await self._assignments([topic])
        known = self.context.topics.get(topic)
        if topic not in found or known is None:
            return
        added = {
            partition: replicas
            for partition, replicas in found[topic].items()
            if partition not in known
        }
        if not added:
            return
        if self.context.is_to_be_deleted(topic):
            self._trace.warning(f"Partitions added to topic {topic}, which is being deleted")
            await self._store.set_topic_assignment(topic, known, self.context.epoch_zk_version)
            return
        await self._cluster.on_new_partitions({topic: added})

    async def on_topic_deletion(self, _: events.TopicDeletion) -> None:
        """Queue the deletions in `/admin/delete_topics`."""
        topics = await self._store.get_topic_deletions(self._on_watch)
        fresh = [topic for topic in topics if not self.context.is_to_be_deleted(topic)]
        await self._queue_deletions(fresh)
        await self._cluster.run_deletions()

    async def _queue_deletions(self, topics: Sequence[str]) -> None:
        fence = self.context.epoch_zk_version
        known = [topic for topic in topics if topic in self.context.topics]
        refused = [topic for topic in topics if topic not in self.context.topics]
        if not self._config.delete_topic_enable:
            refused, known = list(topics), []
        if refused:
            await self._store.delete_topic_deletions(refused, fence)
        self._cluster.deletion.queue(known)
        moving = dict.fromkeys(tp.topic for tp in self.context.reassigning)
        self._cluster.deletion.mark_ineligible(topic for topic in known if topic in moving)

    async def on_isr_change_notification(self, _: events.IsrChangeNotification) -> None:
        """Read ISRs that leaders wrote themselves, and publish them. The leader of a copy of
        another cluster's topic also raises its epoch so, which its replicas have to learn."""
        names = await self._store.get_isr_change_names(self._on_watch)
        if not names:
            return
        leadership = self.context.leadership
        partitions: list[TopicPartition] = []
        changes = await self._store.get_isr_changes(names, self._warn_of_notification)
        async for named in self._pace.over(changes):
            partitions += [tp for tp in named if tp in leadership]
        found = await self._store.get_partition_states(partitions)
        # Only events change the context, one after the other: it is the same after each turn.
        live = frozenset(self.context.live_or_shutting_down_ids)
        async for part in self._pace.over(partitions):
            self._batch.add_update_metadata(part)
            for tp in part:
                state = found.get(tp)
                if state is None:
                    continue
                before, leadership[tp] = leadership[tp], state
                if state.leader_and_isr.leader_epoch > before.leader_and_isr.leader_epoch:
                    replicas = self.context.assignment(tp).replicas
                    recipients = [it for it in replicas if it in live]
                    self._batch.add_leader_and_isr(recipients, tp, is_new=False)
        await self._reassignment.isrs_changed(partitions)
        await self._store.delete_isr_changes(names, self.context.epoch_zk_version)

    async def on_log_dir_event(self, _: events.LogDirEventNotification) -> None:
        """Find the replicas that a failed log directory took offline."""
        names = await self._store.get_log_dir_event_names(self._on_watch)
        if not names:
            return
        warn = self._warn_of_notification
        for broker_id in await self._store.get_log_dir_event_brokers(names, warn):
            # Its responses to LeaderAndIsr report the lost replicas.
            await self._cluster.ask_for_offline_replicas(broker_id)
        await self._store.delete_log_dir_events(names, self.context.epoch_zk_version)

    # --- requests by znode

    async def on_partition_reassignment(self, _: events.PartitionReassignment) -> None:
        """Start the reassignments of `/admin/reassign_partitions`."""
        try:
            targets = await self._store.get_partition_reassignment(self._on_watch)
        except CorruptDataError as error:
            self._trace.warning(f"Dropping an invalid reassignment: {error}")
            fence = self.context.epoch_zk_version
            await self._store.set_or_delete_partition_reassignment({}, fence)
            return
        if targets:
            await self._reassignment.start_by_znode(targets)

    async def on_preferred_replica_election(self, _: events.PreferredReplicaElection) -> None:
        """Run the elections of `/admin/preferred_replica_election`."""
        try:
            partitions = await self._store.get_preferred_replica_election(self._on_watch)
        except CorruptDataError as error:
            self._trace.warning(f"Dropping an invalid election: {error}")
            fence = self.context.epoch_zk_version
            await self._store.delete_preferred_replica_election(fence)
            return
        if partitions:
            await self._elections.elect_by_znode(partitions)


def event_of(watched: WatchedEvent) -> ControllerEvent | None:
    """Return the event for a watch notification, or None."""
    path = watched.path
    fixed = _WATCHED.get(path)
    if fixed is not None:
        return fixed
    if path == znodes.CONTROLLER:
        gone = watched.type is EventType.DELETED
        return events.Reelect() if gone else events.ControllerChange()
    if watched.type is EventType.DATA_CHANGED:
        parent, _, name = path.rpartition("/")
        if parent == znodes.TOPICS:
            return events.PartitionModification(name)
        if parent == znodes.BROKER_IDS:
            return events.BrokerModification(int(name))
    return None


_WATCHED: dict[str, ControllerEvent] = {
    znodes.BROKER_IDS: events.BrokerChange(),
    znodes.TOPICS: events.TopicChange(),
    znodes.DELETE_TOPICS: events.TopicDeletion(),
    znodes.ISR_CHANGE_NOTIFICATIONS: events.IsrChangeNotification(),
    znodes.LOG_DIR_EVENTS: events.LogDirEventNotification(),
    # Also on deletion, which consumes the watch: the next request must be noticed.
    znodes.REASSIGN_PARTITIONS: events.PartitionReassignment(),
    znodes.PREFERRED_REPLICA_ELECTION: events.PreferredReplicaElection(),
}
