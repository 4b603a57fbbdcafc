"""Controller: elects itself through the store, then takes one event at a time.

An event reads the store, decides, writes conditionally, changes memory, and at its end what it
gathered goes out, at most one request of a kind per broker. Watches are set before what they
watch is read, so nothing is missed in between; being one-shot, they are set again by the reading.
Every write is fenced by the version of `/controller_epoch`: a controller that slept through its
own replacement is told so by its first write, and resigns.

States: standing by (watches `/controller` only) and active. Becoming active: `/controller` and
the epoch in one multi, watches, context, UpdateMetadata, the state machines, deletions. The
broker's registration is the controller's to renew when the session expires, because only then may
it stand again.

Invariants: events are processed in the order put, never two at once; the context is empty unless
active; an event that fails leaves the context as far as the store agreed.

Kafka 2.7: kafka.controller.{KafkaController, ControllerEventManager}.
"""

import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kctl.broker.config import BrokerConfig
from kctl.broker.controller import events, preferred_balance
from kctl.broker.controller.broker_link import ChannelLink
from kctl.broker.controller.channel_manager import (
    ControllerChannelManager,
    DeliverLocal,
    OpenLink,
    ResponseReceived,
)
from kctl.broker.controller.elections import ElectionStrategy
from kctl.broker.controller.events import ControllerEvent
from kctl.broker.controller.procedures import Procedures
from kctl.broker.controller.store_changes import StoreChanges, event_of
from kctl.errors import KctlError
from kctl.model import BrokerInfo, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kctl.protocol.messages.stop_replica import StopReplicaRequest
from kctl.protocol.schema import Message
from kctl.runtime.future import Future, Task
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import ControllerMovedError, NodeExistsError, SessionExpiredError
from kctl.store.interface import SessionState, WatchedEvent

NO_CONTROLLER = -1
AUTO_ELECTION_FIRST_DELAY_MS = 5000
REGISTRATION_RETRY_MS = 50
# How long beyond the session's timeout a broker waits for its previous self's registration to go.
REGISTRATION_GRACE_MS = 1000


class Controller:
    """One broker's controller: at any time at most one in the cluster is active."""

    def __init__(
        self,
        runtime: Runtime,
        cluster_store: ClusterStore,
        broker_id: int,
        broker_info_supplier: Callable[[], BrokerInfo],
        config: BrokerConfig,
        deliver_local: DeliverLocal,
        open_link: OpenLink | None = None,
    ) -> None:
        self._runtime = runtime
        self._trace = runtime.trace
        self._store = cluster_store
        self._broker_id = broker_id
        self._broker_info = broker_info_supplier
        self._config = config
        self._channels = ControllerChannelManager(
            runtime, broker_id, deliver_local, open_link or self._open_link, self._put
        )
        # This broker's epoch: the czxid of its registration (KIP-380), -1 before it.
        self.broker_epoch = -1
        procedures = self._procedures = Procedures(
            broker_id, config, cluster_store, runtime.trace, self._send, self._isrs_changed
        )
        self.context = procedures.context
        self._batch = procedures.batch
        self._from_store = StoreChanges(
            cluster_store, self._on_watch, config, runtime.trace, self._channels, procedures
        )
        self._active_controller_id = NO_CONTROLLER
        self._queue: deque[ControllerEvent] = deque()
        self._runner: Task[None] | None = None
        self._auto_election: Timer | None = None
        self._stopped = False
        self._when_standing_by: dict[type, Callable[[], Awaitable[None]]] = {
            events.Startup: self._on_startup,
            events.ControllerChange: self._look_who_is_controller,
            events.Reelect: self._on_startup,
            events.SessionExpired: self._renew_session,
        }
        # The one place where an event meets what the active controller does about it.
        self._when_active: dict[type, Callable[[Any], Awaitable[None]]] = {
            **self._from_store.reactions(),
            events.PartitionIsrChanged: self._on_partition_isr_changed,
            events.AutoPreferredElection: self._on_auto_preferred_election,
            events.Asked: self._on_asked,
            ResponseReceived: self._on_response,
        }
        # What the active controller is asked by requests.
        self._answers = procedures.answers()

    # --- for the rest of the broker

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._active_controller_id == self._broker_id

    @property
    def active_controller_id(self) -> int | None:
        """Who is controller, as this broker last saw in the store."""
        found = self._active_controller_id
        return None if found == NO_CONTROLLER else found

    @property
    def is_idle(self) -> bool:
        """Whether every event so far is done with."""
        return not self._queue and (self._runner is None or self._runner.done)

    def ask(self, request: Message) -> Future[Message]:
        """What the controller answers; NOT_CONTROLLER if this broker is not it, or ceases to be
        before it came to the request."""
        asked = events.Asked(request, self._runtime.scheduler.future())
        if self.is_active and not self._stopped:
            self._put(asked)
        else:
            asked.refuse(ErrorCode.NOT_CONTROLLER)
        return asked.answer

    async def register_broker(self) -> int:
        """Announce this broker in the store, before `start`; its epoch.

        A registration that our previous self left behind is waited for until its session must
        have expired; then NodeExistsError: another broker uses our id.
        """
        patience_ms = self._config.zookeeper_session_timeout_ms + REGISTRATION_GRACE_MS
        deadline_ms = self._runtime.clock.monotonic_ms() + patience_ms
        while True:
            try:
                self.broker_epoch = await self._store.register_broker(
                    self._broker_info(),
                    timestamp_ms=self._runtime.clock.wall_ms(),
                    version=5 if self._config.is_at_least("2.7-IV0") else 4,
                )
            except NodeExistsError:
                if self._runtime.clock.monotonic_ms() >= deadline_ms:
                    raise
                await self._sleep(REGISTRATION_RETRY_MS)
            else:
                return self.broker_epoch

    def start(self) -> None:
        """Watch the election and stand for it; the broker must be registered."""
        self._store.store.on_session_state(self._on_session_state)
        self._put(events.Startup())

    async def shutdown(self) -> None:
        """Finish the event under way, then step down; the session's end lets another take over."""
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
                self._trace.warning(f"The controller could not step down: {error}")

    # --- the queue

    def _put(self, event: ControllerEvent) -> None:
        if self._stopped:
            return
        # Events from the store only say "look again": one that waits already is enough.
        if not isinstance(event, ResponseReceived) and event in self._queue:
            return
        self._queue.append(event)
        if self._runner is None or self._runner.done:
            self._runner = self._runtime.scheduler.spawn(self._run(), "controller")

    def _clear_queue(self) -> None:
        """Forget what waits; whoever asked is sent to the next controller."""
        for event in self._queue:
            if isinstance(event, events.Asked):
                event.refuse(ErrorCode.NOT_CONTROLLER)
        self._queue.clear()

    async def _run(self) -> None:
        while self._queue and not self._stopped:
            # Let others have their turn between two events, whatever the store answers at once.
            await self._turn()
            if self._queue:
                await self._process(self._queue.popleft())

    async def _process(self, event: ControllerEvent) -> None:
        try:
            await self._handle(event)
            self._send()
        except ControllerMovedError:
            self._trace.info("Controller moved to another broker when processing an event")
            self._batch.clear()
            await self._look_who_is_controller()
        except KctlError as error:
            if isinstance(error, SessionExpiredError):
                # Before `start` nobody listens: a session may end unheard right behind the
                # registration.
                self._put(events.SessionExpired())
            self._batch.clear()
            self._trace.event("controller_event_failed", event=event, error=error)
            self._trace.warning(f"Error processing controller event {_name(event)}: {error}")
        except Exception as error:  # noqa: BLE001 - one bad event must not stop the cluster's brain
            self._batch.clear()
            self._trace.event("controller_bug", event=event, error=error)
            self._trace.warning(
                f"Error processing controller event {_name(event)}: "
                + "".join(traceback.format_exception(error))
            )

    async def _handle(self, event: ControllerEvent) -> None:
        """Whoever stands by minds the election only; the rest is the active controller's."""
        election = self._when_standing_by.get(type(event))
        if election is not None:
            await election()
        elif self.is_active:
            await self._when_active[type(event)](event)
        elif isinstance(event, events.Asked):
            event.refuse(ErrorCode.NOT_CONTROLLER)

    async def _on_startup(self) -> None:
        await self._look_who_is_controller()
        await self._elect()

    def _send(self) -> None:
        for request in self._batch.take():
            self._channels.send(request)

    def _open_link(self, broker: BrokerInfo) -> ChannelLink:
        return ChannelLink(
            self._runtime,
            broker,
            self._config.inter_broker_listener,
            controller_id=self._broker_id,
            timeout_ms=self._config.controller_socket_timeout_ms,
        )

    def _turn(self) -> Awaitable[None]:
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

    async def _look_who_is_controller(self) -> None:
        """Read `/controller` and watch it; resign if it was us and is no more."""
        was_active = self.is_active
        await self._store.exists(znodes.CONTROLLER, self._on_watch)
        found = await self._store.get_controller_id()
        self._active_controller_id = NO_CONTROLLER if found is None else found
        if was_active and not self.is_active:
            self._resign(keep_known=True)

    async def _elect(self) -> None:
        if self._active_controller_id != NO_CONTROLLER:
            return
        try:
            epoch, zk_version = await self._store.register_controller_and_increment_epoch(
                self._broker_id, timestamp_ms=self._runtime.clock.wall_ms()
            )
        except ControllerMovedError:
            await self._look_who_is_controller()
            return
        self._active_controller_id = self._broker_id
        self.context.epoch, self.context.epoch_zk_version = epoch, zk_version
        self._trace.event("controller_elected", broker_id=self._broker_id, epoch=epoch)
        try:
            await self._take_over()
        except (ControllerMovedError, SessionExpiredError):
            raise
        except KctlError:
            # Half a controller is worse than none: let another broker, or us again, try.
            self._resign()
            await self._store.delete_controller(zk_version)
            raise

    async def _take_over(self) -> None:
        await self._set_up_features()
        await self._from_store.forget_old_notifications()
        await self._from_store.load_context()
        self._batch.add_update_metadata([])
        self._send()
        await self._procedures.cluster.start_machines()
        await self._put_asked_for_in_store()
        # Their moves were not taken up, so no deletion must wait for one. (In Apache Kafka 2.7.2 it
        # does, until a broker starts.)
        self._procedures.cluster.deletion.resume(
            dict.fromkeys(tp.topic for tp in self.context.reassigning)
        )
        await self._procedures.cluster.run_deletions()
        # The rest of the caches' contents: every partition, the ones just elected included.
        self._batch.add_update_metadata(list(self.context.leadership))
        if self._config.auto_leader_rebalance_enable:
            self._schedule_auto_election(AUTO_ELECTION_FIRST_DELAY_MS)

    async def _put_asked_for_in_store(self) -> None:
        """Reassignments and elections that the last controller did not come to."""
        for event in (events.PartitionReassignment(), events.PreferredReplicaElection()):
            await self._when_active[type(event)](event)
        await self._procedures.reassignment.resume()

    async def _set_up_features(self) -> None:
        enabled = self._config.is_at_least("2.7-IV0")
        status = znodes.FeatureStatus.ENABLED if enabled else znodes.FeatureStatus.DISABLED
        found = await self._store.get_feature()
        if found is None or found[0] is not status:
            await self._store.set_or_create_feature(status, found[1] if found and enabled else {})

    def _resign(self, *, keep_known: bool = False) -> None:
        """Forget everything a controller knows."""
        if self.context.epoch:
            self._trace.event("controller_resigned", broker_id=self._broker_id)
        if not keep_known:
            self._active_controller_id = NO_CONTROLLER
        if self._auto_election is not None:
            self._auto_election.cancel()
            self._auto_election = None
        self._channels.close()
        self._procedures.clear()

    async def _renew_session(self) -> None:
        """The session is over: somebody else may be controller by now; start over."""
        self._resign()
        await self._store.store.new_session()
        await self.register_broker()
        await self._look_who_is_controller()
        await self._elect()

    # --- requests, answers and notifications

    async def _on_asked(self, asked: events.Asked) -> None:
        try:
            answer = await self._answers[type(asked.request)](asked.request)
        except ControllerMovedError:
            asked.refuse(ErrorCode.NOT_CONTROLLER)
            raise
        except Exception:
            asked.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise
        # Brokers hear of what was done no later than who asked for it.
        self._send()
        asked.answer.set_result(answer)

    def _isrs_changed(self, partitions: Sequence[TopicPartition]) -> None:
        """Reassignments wait for their new replicas to be in sync."""
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
            # Its previous self was asked; who has taken over from that one is asked again. That it
            # refused the old request is no reason to wait. (To Apache Kafka 2.7.2 it is.)
            pass
        elif isinstance(request, LeaderAndIsrRequest):
            await self._procedures.cluster.on_leader_and_isr_response(broker_id, response)
        elif isinstance(request, StopReplicaRequest):
            await self._procedures.cluster.on_stop_replica_response(broker_id, request, response)
        if response.error_code:
            self._trace.warning(
                f"Broker {broker_id} answered {_name(request)} with error {response.error_code}"
            )

    # --- preferred leaders

    def _schedule_auto_election(self, delay_ms: int) -> None:
        self._auto_election = self._runtime.scheduler.call_later(
            delay_ms, self._put, events.AutoPreferredElection()
        )

    async def _on_auto_preferred_election(self, _: events.AutoPreferredElection) -> None:
        self._schedule_auto_election(self._config.leader_imbalance_check_interval_seconds * 1000)
        partitions = preferred_balance.partitions_to_move_back(
            self.context, self._config.leader_imbalance_per_broker_percentage
        )
        if partitions:
            await self._procedures.changes.bring_online(partitions, ElectionStrategy.PREFERRED)


def _name(value: object) -> str:
    return type(value).__name__
