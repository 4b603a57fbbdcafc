"""Controller: elects itself through the store, then processes one event at a time.

An event reads the store, decides, writes conditionally, changes memory, and finally sends the
requests that it collected. It takes as many turns of the loop as its work needs (`Pace`), and later
events wait: an event is atomic for other events, not for the loop. A watch is set before the
watched data is read, so that no change is missed; as watches are one-shot, each read sets them
again. Every write is fenced by the version of `/controller_epoch`: a controller that was replaced
without noticing fails at its first write, and resigns.

States: standby (watches only `/controller`) and active. Becoming active: `/controller` and the
epoch in one multi, watches, context, UpdateMetadata, the state machines, deletions. The controller
also renews the broker's registration when the session expires, because only then may it stand for
election again.

Invariants: events are processed in order, never two at once; the context is empty unless active; an
event that fails leaves the context in agreement with the store.

Kafka 2.7: kafka.controller.{KafkaController, ControllerEventManager}.
"""

import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kctl.broker.controller import events, preferred_balance
from kctl.broker.controller.broker_link import ChannelLink, controller_link
from kctl.broker.controller.channel_manager import (
    ControllerChannelManager,
    DeliverLocal,
    OpenLink,
    ResponseReceived,
)
from kctl.broker.controller.events import ControllerEvent
from kctl.broker.controller.leader_election_algorithms import ElectionStrategy
from kctl.broker.controller.procedures import Procedures
from kctl.broker.controller.znode_events import ZnodeEvents, event_of
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import KctlError
from kctl.model import BrokerInfo, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.alter_isr import AlterIsrRequest
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from kctl.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kctl.protocol.messages.elect_leaders import ElectLeadersRequest
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from kctl.protocol.messages.stop_replica import StopReplicaRequest
from kctl.protocol.schema import Message
from kctl.runtime.future import Future, Task
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import pace_of
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import ControllerMovedError, NodeExistsError, SessionExpiredError
from kctl.store.interface import SessionState, WatchedEvent

NO_CONTROLLER = -1
AUTO_ELECTION_FIRST_DELAY_MS = 5000
REGISTRATION_RETRY_MS = 50
# Work of an event in units of Pace, in addition to what its procedure counts.
UNITS_PER_EVENT = 20
# How long beyond the session timeout a broker waits for its previous registration to expire.
REGISTRATION_GRACE_MS = 1000
# How long a broker that could not take over waits until it stands for election again.
ELECTION_RETRY_MS = 2_000
# How often a store that belongs to another cluster is checked again, and reported.
LOST_STORE_RETRY_MS = 500
LOST_STORE_REPORT_MS = 30_000


class Controller:
    """The controller of one broker; at any time at most one in the cluster is active."""

    def __init__(
        self,
        runtime: Runtime,
        cluster_store: ClusterStore,
        broker_id: int,
        broker_info_supplier: Callable[[], BrokerInfo],
        config: BrokerConfig,
        deliver_local: DeliverLocal,
        cluster_id: str | None = None,
        open_link: OpenLink | None = None,
    ) -> None:
        """Create a controller; with `cluster_id` a new session is used only if the store has this
        id."""
        self._runtime = runtime
        self._trace = runtime.trace
        self._store = cluster_store
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._broker_info = broker_info_supplier
        self._config = config
        self._channels = ControllerChannelManager(
            runtime, broker_id, deliver_local, open_link or self._open_link, self._put
        )
        # This broker's epoch: the czxid of its registration (KIP-380), -1 before it.
        self.broker_epoch = -1
        pace = self._pace = pace_of(runtime.scheduler)
        self._spend = pace.spend
        procedures = self._procedures = Procedures(
            broker_id, config, cluster_store, runtime, self._send, self._isrs_changed, pace
        )
        self.context = procedures.context
        self._batch = procedures.batch
        self._znode_events = ZnodeEvents(
            cluster_store, self._on_watch, config, runtime.trace, self._channels, procedures
        )
        self._active_controller_id = NO_CONTROLLER
        self._queue: deque[ControllerEvent] = deque()
        # Queued events that only request a read of the store; one of each is enough.
        self._awaited: set[ControllerEvent] = set()
        self._runner: Task[None] | None = None
        self._auto_election: Timer | None = None
        # Set while this broker does not stand for election, because it could not take over.
        self._election_retry: Timer | None = None
        self._stopped = False
        self._procedure_of = self._event_table()

    def _event_table(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Return the procedure of each event, and of each request that an `RequestReceived`
        carries."""
        znode_events, procedures = self._znode_events, self._procedures
        return {
            # Every broker, controller or not.
            events.Startup: self._on_startup,
            events.ControllerChange: self._on_controller_change,
            events.Reelect: self._on_startup,
            events.SessionExpired: self._on_session_expired,
            # The active controller: what changed in the store.
            events.BrokerChange: znode_events.on_broker_change,
            events.BrokerModification: znode_events.on_broker_modification,
            events.TopicChange: znode_events.on_topic_change,
            events.PartitionModification: znode_events.on_partition_modification,
            events.TopicDeletion: znode_events.on_topic_deletion,
            events.IsrChangeNotification: znode_events.on_isr_change_notification,
            events.LogDirEventNotification: znode_events.on_log_dir_event,
            events.PartitionReassignment: znode_events.on_partition_reassignment,
            events.PreferredReplicaElection: znode_events.on_preferred_replica_election,
            # The active controller: its own timers, and responses of brokers.
            events.PartitionIsrChanged: self._on_partition_isr_changed,
            events.AutoPreferredElection: self._on_auto_preferred_election,
            # The active controller: what changed in its configs.
            events.UncleanElectionEnabled: self._on_unclean_election_enabled,
            ResponseReceived: self._on_response,
            # The active controller: requests; each procedure returns the response.
            events.RequestReceived: self._on_request,
            AlterIsrRequest: procedures.isr_changes.alter,
            ControlledShutdownRequest: procedures.shutdown.shut_down,
            ElectLeadersRequest: procedures.elections.elect,
            AlterPartitionReassignmentsRequest: procedures.alter_reassignments,
            ListPartitionReassignmentsRequest: procedures.list_reassignments,
        }

    # --- for the rest of the broker

    @property
    def is_active(self) -> bool:
        """Return whether this broker is the controller, as far as it knows."""
        return self._active_controller_id == self._broker_id

    def follow_unclean_default(self, *, is_enabled: bool) -> None:
        """Follow the brokers' unclean.leader.election.enable; once it is enabled, partitions
        without a leader get one."""
        transitions = self._procedures.transitions
        was_enabled = transitions.unclean_election_default
        transitions.unclean_election_default = is_enabled
        if is_enabled and not was_enabled:
            self.elect_where_unclean_is_enabled()

    def elect_where_unclean_is_enabled(self) -> None:
        """Elect leaders of partitions that have none, since a config may allow it now."""
        if self.is_active:
            self._put(events.UncleanElectionEnabled())

    @property
    def active_controller_id(self) -> int | None:
        """Return the id of the controller, as last seen in the store, or None."""
        found = self._active_controller_id
        return None if found == NO_CONTROLLER else found

    @property
    def is_idle(self) -> bool:
        """Return whether every event so far has been processed."""
        return not self._queue and (self._runner is None or self._runner.done)

    def ask(self, request: Message) -> Future[Message]:
        """Return the controller's response; NOT_CONTROLLER if this broker is not the controller, or
        resigns before it handles the request."""
        received = events.RequestReceived(request, self._runtime.scheduler.future())
        if self.is_active and not self._stopped:
            self._put(received)
        else:
            received.reject(ErrorCode.NOT_CONTROLLER)
        return received.answer

    async def register_broker(self) -> int:
        """Register this broker in the store, before `start`; return its epoch.

        A previous registration of this broker is waited for until its session must have expired;
        then raise NodeExistsError: another broker uses the id.
        """
        patience_ms = self._config.zookeeper_session_timeout_ms + REGISTRATION_GRACE_MS
        deadline_ms = self._runtime.clock.monotonic_ms() + patience_ms
        while True:
            try:
                self.broker_epoch = await self._store.register_broker(
                    self._broker_info(),
                    timestamp_ms=self._runtime.clock.wall_ms(),
                    version=self._registration_version(),
                )
            except NodeExistsError:
                if self._runtime.clock.monotonic_ms() >= deadline_ms:
                    raise
                await self._sleep(REGISTRATION_RETRY_MS)
            else:
                return self.broker_epoch

    async def update_registration(self) -> None:
        """Announce this broker's changed listeners.

        Raise NoNodeError if its session has ended: the next registration has them.
        """
        await self._store.update_broker(
            self._broker_info(),
            timestamp_ms=self._runtime.clock.wall_ms(),
            version=self._registration_version(),
        )

    def _registration_version(self) -> int:
        return 5 if self._config.is_at_least("2.7-IV0") else 4

    def start(self) -> None:
        """Watch the election and stand for it; the broker must be registered."""
        self._store.store.on_session_state(self._on_session_state)
        self._put(events.Startup())

    async def shutdown(self) -> None:
        """Finish the current event, then step down; the end of the session lets another broker take
        over."""
        self._stopped = True
        self._clear_queue()
        runner = self._runner
        if runner is not None and not runner.done:
            await runner
        was_active = self.is_active
        fence = self.context.epoch_zk_version
        self._resign()
        if was_active:
            try:
                await self._store.delete_controller(fence)
            except KctlError as error:
                self._trace.warning(f"Cannot step down as controller: {error}")

    # --- the queue

    def _put(self, event: ControllerEvent) -> None:
        if self._stopped:
            return
        if not isinstance(event, (ResponseReceived, events.RequestReceived)):
            if event in self._awaited:
                return
            self._awaited.add(event)
        self._queue.append(event)
        if self._runner is None or self._runner.done:
            self._runner = self._runtime.scheduler.spawn(self._run(), "controller")

    def _clear_queue(self) -> None:
        """Drop queued events; requests among them get NOT_CONTROLLER."""
        for event in self._queue:
            if isinstance(event, events.RequestReceived):
                event.reject(ErrorCode.NOT_CONTROLLER)
        self._queue.clear()
        self._awaited.clear()

    async def _run(self) -> None:
        while self._queue and not self._stopped:
            # Let the callers return before an event begins.
            await self._soon()
            await self._spend(UNITS_PER_EVENT)
            if self._queue:
                event = self._queue.popleft()
                if not isinstance(event, (ResponseReceived, events.RequestReceived)):
                    self._awaited.discard(event)
                await self._process(event)

    async def _process(self, event: ControllerEvent) -> None:
        try:
            await self._execute(event)
        except KctlError as error:
            if isinstance(error, SessionExpiredError):
                # Before `start` there is no listener: a session may end unnoticed right after the
                # registration.
                self._put(events.SessionExpired())
            self._batch.clear()
            self._trace.event("controller_event_failed", event=event, error=error)
            self._trace.warning(f"Error processing controller event {_name(event)}: {error}")
        except Exception as error:  # noqa: BLE001 - one failed event must not stop the controller
            self._batch.clear()
            self._trace.event("controller_bug", event=event, error=error)
            self._trace.warning(
                f"Error processing controller event {_name(event)}: {error!r}",
                "".join(traceback.format_exception(error)),
            )

    async def _execute(self, event: ControllerEvent) -> None:
        """Handle the event and send the requests that it collected; resign if another broker is the
        controller."""
        try:
            await self._handle(event)
            await self._send()
        except ControllerMovedError:
            self._trace.info("Controller moved to another broker while processing an event")
            self._batch.clear()
            await self._read_controller()

    async def _handle(self, event: ControllerEvent) -> None:
        """Run the event's procedure. A standby controller handles only election events."""
        if isinstance(event, events.ElectionEvent) or self.is_active:
            await self._procedure_of[type(event)](event)
        elif isinstance(event, events.RequestReceived):
            event.reject(ErrorCode.NOT_CONTROLLER)

    async def _on_startup(self, _: events.Startup | events.Reelect) -> None:
        await self._read_controller()
        await self._elect()

    async def _on_controller_change(self, _: events.ControllerChange) -> None:
        await self._read_controller()

    async def _send(self) -> None:
        async for request in self._batch.take():
            self._channels.send(request)

    def _open_link(self, broker: BrokerInfo) -> ChannelLink:
        return controller_link(self._runtime, self._config, broker, self._broker_id)

    def _soon(self) -> Awaitable[None]:
        future = self._runtime.scheduler.future()
        self._runtime.scheduler.call_soon(future.set_result, None)
        return future

    def _sleep(self, delay_ms: int) -> Awaitable[None]:
        future = self._runtime.scheduler.future()
        self._runtime.scheduler.call_later(delay_ms, future.set_result, None)
        return future

    # --- watches

    def _on_watch(self, watched: WatchedEvent) -> None:
        event = event_of(watched)
        if event is not None:
            self._put(event)

    def _on_session_state(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED and not self._stopped:
            self._clear_queue()
            self._put(events.SessionExpired())

    # --- election

    async def _read_controller(self) -> None:
        """Read and watch `/controller`; resign if it no longer names this broker."""
        was_active = self.is_active
        await self._store.exists(znodes.CONTROLLER, self._on_watch)
        found = await self._store.get_controller_id()
        self._active_controller_id = NO_CONTROLLER if found is None else found
        if was_active and not self.is_active:
            self._resign(keep_known=True)

    async def _elect(self) -> None:
        if self._active_controller_id != NO_CONTROLLER or self._election_retry is not None:
            return
        try:
            await self._become_controller()
        except (ControllerMovedError, SessionExpiredError):
            raise
        except Exception:
            # No znode changes, so no watch would ask this broker to stand for election again.
            self._election_retry = self._runtime.scheduler.call_later(
                ELECTION_RETRY_MS, self._stand_again
            )
            raise

    def _stand_again(self) -> None:
        self._election_retry = None
        self._put(events.Reelect())

    async def _become_controller(self) -> None:
        try:
            epoch, zk_version = await self._store.register_controller_and_increment_epoch(
                self._broker_id, timestamp_ms=self._runtime.clock.wall_ms()
            )
        except ControllerMovedError:
            await self._read_controller()
            return
        self._active_controller_id = self._broker_id
        self.context.epoch, self.context.epoch_zk_version = epoch, zk_version
        self._trace.event("controller_elected", broker_id=self._broker_id, epoch=epoch)
        try:
            await self._take_over()
        except (ControllerMovedError, SessionExpiredError):
            raise
        except Exception:
            # An incomplete takeover is worse than none: let another broker, or this one, try again.
            self._resign()
            await self._store.delete_controller(zk_version)
            raise

    async def _take_over(self) -> None:
        await self._set_up_features()
        await self._znode_events.forget_old_notifications()
        await self._znode_events.load_context()
        self._batch.add_update_metadata([])
        await self._send()
        await self._procedures.cluster.start_machines()
        await self._handle_pending_znode_requests()
        # Their moves were not continued, so no deletion must wait for one. (In Apache Kafka 2.7.2
        # it does, until a broker starts.)
        self._procedures.cluster.deletion.resume(
            dict.fromkeys(tp.topic for tp in self.context.reassigning)
        )
        await self._procedures.cluster.run_deletions()
        # The rest of the metadata: every partition, including those just elected.
        self._batch.add_update_metadata(list(self.context.leadership))
        if self._config.auto_leader_rebalance_enable:
            self._schedule_auto_election(AUTO_ELECTION_FIRST_DELAY_MS)

    async def _handle_pending_znode_requests(self) -> None:
        """Handle reassignments and elections that the last controller did not begin."""
        for event in (events.PartitionReassignment(), events.PreferredReplicaElection()):
            await self._procedure_of[type(event)](event)
        await self._procedures.reassignment.resume()

    async def _set_up_features(self) -> None:
        enabled = self._config.is_at_least("2.7-IV0")
        status = znodes.FeatureStatus.ENABLED if enabled else znodes.FeatureStatus.DISABLED
        found = await self._store.get_feature()
        if found is None or found[0] is not status:
            await self._store.set_or_create_feature(status, found[1] if found and enabled else {})

    def _resign(self, *, keep_known: bool = False) -> None:
        """Stop acting as controller and clear its state."""
        if self.context.epoch:
            self._trace.event("controller_resigned", broker_id=self._broker_id)
        if not keep_known:
            self._active_controller_id = NO_CONTROLLER
        if self._auto_election is not None:
            self._auto_election.cancel()
            self._auto_election = None
        self._channels.close()
        self._procedures.clear()

    async def _on_session_expired(self, _: events.SessionExpired) -> None:
        """Resign, open a new session, register the broker and stand for election again."""
        self._resign()
        await self._store.store.new_session()
        await self._find_own_cluster()
        if self._stopped:
            return
        await self.register_broker()
        await self._read_controller()
        await self._elect()

    async def _find_own_cluster(self) -> None:
        """Wait until `/cluster/id` is the id that this broker belongs to (decision 0050).

        A store that has lost its data, or another cluster's, would result in a new controller with
        an epoch that every broker rejects, and in topics unknown to the brokers.
        """
        reported_ms: int | None = None
        while self._cluster_id is not None and not self._stopped:
            found = await self._store.get_cluster_id()
            if found == self._cluster_id:
                return
            now_ms = self._runtime.clock.monotonic_ms()
            if reported_ms is None or now_ms - reported_ms >= LOST_STORE_REPORT_MS:
                reported_ms = now_ms
                self._trace.warning(_lost_store(self._cluster_id, found))
            await self._sleep(LOST_STORE_RETRY_MS)

    # --- requests, responses and notifications

    async def _on_request(self, received: events.RequestReceived) -> None:
        try:
            answer = await self._procedure_of[type(received.request)](received.request)
        except ControllerMovedError:
            received.reject(ErrorCode.NOT_CONTROLLER)
            raise
        except Exception:
            received.reject(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        # Brokers are informed of the result no later than the sender of the request.
        await self._send()
        received.answer.set_result(answer)

    def _isrs_changed(self, partitions: Sequence[TopicPartition]) -> None:
        """Queue events for reassignments, which wait for their new replicas to be in sync."""
        for tp in partitions:
            if tp in self.context.reassigning:
                self._put(events.PartitionIsrChanged(tp))

    async def _on_partition_isr_changed(self, event: events.PartitionIsrChanged) -> None:
        await self._procedures.reassignment.isrs_changed([event.partition])

    async def _on_response(self, answered: ResponseReceived) -> None:
        broker_id = answered.broker_id
        request: Any = answered.request
        response: Any = answered.response
        broker = self.context.live_brokers.get(broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            # The request was sent to the broker's previous registration; the new one gets its own
            # requests, so the old response has no effect. (In Apache Kafka 2.7.2 it has.)
            pass
        elif isinstance(request, LeaderAndIsrRequest):
            await self._procedures.cluster.on_leader_and_isr_response(broker_id, response)
        elif isinstance(request, StopReplicaRequest):
            await self._procedures.cluster.on_stop_replica_response(broker_id, request, response)
        if response.error_code:
            self._trace.warning(
                f"Broker {broker_id} returned error {response.error_code} for {_name(request)}"
            )

    # --- preferred leaders

    def _schedule_auto_election(self, delay_ms: int) -> None:
        self._auto_election = self._runtime.scheduler.call_later(
            delay_ms, self._put, events.AutoPreferredElection()
        )

    async def _on_unclean_election_enabled(self, _: events.UncleanElectionEnabled) -> None:
        await self._procedures.transitions.bring_all_online()

    async def _on_auto_preferred_election(self, _: events.AutoPreferredElection) -> None:
        self._schedule_auto_election(self._config.leader_imbalance_check_interval_seconds * 1000)
        partitions = await preferred_balance.partitions_to_move_back(
            self.context, self._config.leader_imbalance_per_broker_percentage, self._pace
        )
        if partitions:
            await self._procedures.transitions.bring_online(partitions, ElectionStrategy.PREFERRED)


def _lost_store(cluster_id: str, found: str | None) -> str:
    what = "has no /cluster/id" if found is None else f"is cluster {found}'s"
    return (
        f"The metadata store {what}, and this broker belongs to cluster {cluster_id}: the store "
        "has lost its data, or is another one. The broker is not registered and serves what it "
        "leads; it registers again when the store has its data back"
    )


def _name(value: object) -> str:
    return type(value).__name__
