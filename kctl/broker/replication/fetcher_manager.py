"""FetcherManager: replicates the partitions that this broker follows from their leaders.

There is one loop per leader: send the request of its ReplicaFetcher, wait for the response, apply
it to the logs. A loop starts with the first partition of a leader and ends with the last; a broken
connection is reopened after replica.fetch.backoff.ms. Changes by the controller take effect at
once, even while a request is in flight: the fetcher drops responses that no longer apply.

Kafka 2.7: kafka.server.{ReplicaFetcherManager, ReplicaFetcherThread}.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from kctl.broker.log.unified_log import UnifiedLog
from kctl.broker.quotas import ReplicationQuota
from kctl.broker.replication.fetch_session_handler import PARTITIONS_PER_TURN
from kctl.broker.replication.fetched_parts import parts_of
from kctl.broker.replication.leadership import RoleChange
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_fetcher import (
    Action,
    Append,
    FetcherOptions,
    GiveUp,
    ReplicaFetcher,
    StartOver,
    Truncate,
)
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.client.broker_channel import BrokerChannel
from kctl.client.security import NO_SECURITY, ClientSecurity
from kctl.errors import CorruptDataError, KctlError, StorageError, UnreachableError
from kctl.model import Endpoint, TopicPartition
from kctl.protocol.error_codes import ApiError
from kctl.runtime.future import Future, Task
from kctl.runtime.recurring_warnings import RecurringWarnings
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Scheduler
from kctl.runtime.turns import done_in_turns, pace_of
from kctl.runtime.wakeable_sleep import WakeableSleep
from kctl.work import while_wanted

# A leader responds to a fetch after its maximum wait at the latest; after this much more it is
# considered dead.
EXTRA_WAIT_MS = 30_000

# Work, in units of `Pace`: of a truncation without what is prepared, and of what one partition of a
# response requires. With records, it also grows with their bytes, as if all batches were small.
UNITS_OF_TRUNCATION = 100
UNITS_PER_PARTITION = 4
BYTES_PER_UNIT = 64
# Records that are appended at once, however many batches they hold.
SMALL_BYTES = 16 * 1024

# Returns where a broker listens for brokers, or None while this is unknown.
EndpointOf = Callable[[int], Endpoint | None]


class FetcherManager:
    """The fetcher loops, by leader."""

    def __init__(
        self,
        runtime: Runtime,
        replica_manager: ReplicaManager,
        options: FetcherOptions,
        endpoint_of: EndpointOf,
        quota: ReplicationQuota | None = None,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        self._runtime = runtime
        self._security = security
        self._replicas = replica_manager
        self._options = options
        self._endpoint_of = endpoint_of
        self._quota = quota
        self._loops: dict[int, FetcherLoop] = {}
        self._leader_of: dict[TopicPartition, int] = {}

    def on_role_change(self, changes: Sequence[RoleChange]) -> None:
        """Start, move or stop following (a listener of Leadership)."""
        for change in changes:
            tp = change.topic_partition
            partition = self._replicas.partitions.get(tp)
            if change.role is Role.FOLLOWER and partition is not None:
                self._follow(partition)
            else:
                self._stop(tp)
        self._drop_idle()

    def shutdown(self) -> None:
        """Stop every loop."""
        for loop in self._loops.values():
            loop.close()
        self._loops.clear()
        self._leader_of.clear()

    def _follow(self, partition: Partition) -> None:
        tp, log = partition.topic_partition, partition.log
        self._stop(tp)
        if partition.leader_id < 0 or log is None:
            return
        loop = self._loops.get(partition.leader_id)
        if loop is None:
            loop = self._loops[partition.leader_id] = FetcherLoop(
                self._runtime,
                self._replicas,
                partition.leader_id,
                self._options,
                self._endpoint_of,
                self._quota,
                self._security,
            )
        self._leader_of[tp] = partition.leader_id
        loop.add(partition)
        if log.is_write_through and log.recovery_point < log.log_end_offset:
            loop.hold_until_flushed(partition, log)

    def _stop(self, tp: TopicPartition) -> None:
        leader = self._leader_of.pop(tp, None)
        # A loop that dropped its last partition itself (it was fenced) may be gone.
        loop = None if leader is None else self._loops.get(leader)
        if loop is not None:
            loop.fetcher.remove(tp)

    def on_log_replaced(self, partition: Partition) -> None:
        """Use the partition's new log after a move between directories (a listener of the
        moves)."""
        leader = self._leader_of.get(partition.topic_partition)
        loop = None if leader is None else self._loops.get(leader)
        if loop is not None and partition.log is not None:
            loop.fetcher.replace_log(partition.topic_partition, partition.log)

    def _drop_idle(self) -> None:
        for leader in [leader for leader, loop in self._loops.items() if not len(loop.fetcher)]:
            self._loops.pop(leader).close()


class FetcherLoop:
    """Fetches from one leader continuously."""

    def __init__(
        self,
        runtime: Runtime,
        replica_manager: ReplicaManager,
        leader_id: int,
        options: FetcherOptions,
        endpoint_of: EndpointOf,
        quota: ReplicationQuota | None = None,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        self.fetcher = ReplicaFetcher(options, quota)
        self._security = security
        self._runtime = runtime
        self._replicas = replica_manager
        self._leader_id = leader_id
        self._options = options
        self._endpoint_of = endpoint_of
        self._channel: BrokerChannel | None = None
        self._is_closed = False
        self._sleep = WakeableSleep(runtime.scheduler)
        self._warnings = RecurringWarnings(runtime)
        self._pace = pace_of(runtime.scheduler)
        self._task: Task[None] | None = None

    def add(self, partition: Partition) -> None:
        """Start to follow this partition."""
        assert partition.log is not None
        self.fetcher.add(partition.topic_partition, partition.leader_epoch, partition.log)
        if self._task is None:
            self._task = self._runtime.scheduler.spawn(
                self._run(), f"replica-fetcher-{self._leader_id}"
            )
        self._sleep.wake()

    def hold_until_flushed(self, partition: Partition, log: UnifiedLog) -> None:
        """Fetch only after a flush, with flush.messages=1, because a fetch reports the end of the
        durable log. Records appended as leader, or found after a crash, may not be durable yet."""
        tp, leader_epoch = partition.topic_partition, partition.leader_epoch
        self.fetcher.hold(tp)

        def flushed(_: Future[None]) -> None:
            # If the flush failed, the partition is offline and no longer followed.
            self.fetcher.release(tp, leader_epoch)
            self._sleep.wake()

        self._replicas.log_manager.flush_soon(log).add_done_callback(flushed)

    def close(self) -> None:
        """Stop the loop."""
        self._is_closed = True
        if self._channel is not None:
            self._channel.close()
        self._sleep.wake()

    async def _run(self) -> None:
        # All partitions of one LeaderAndIsr go into the first request.
        await self._sleep.until(0)
        clock = self._runtime.clock
        while self._is_open():
            request, actions = await done_in_turns(
                self._runtime.scheduler, self.fetcher.next_request(clock.monotonic_ms())
            )
            await self._apply([actions])
            if not self._is_open():
                break
            if request is None:
                await self._sleep.until(self.fetcher.next_due_ms())
                continue
            try:
                channel = await self._ready_channel()
                # What names few partitions is answered for few.
                is_wide = len(self.fetcher) > PARTITIONS_PER_TURN
                send = channel.send_in_turns if is_wide else channel.send
                response = await send(request)
            except KctlError as error:
                self._failed(error)
                continue
            self._warnings.clear()
            # Partitions released meanwhile are no longer in the fetcher.
            await self._apply(self.fetcher.on_response(response, clock.monotonic_ms()))

    def _is_open(self) -> bool:
        return not self._is_closed

    async def _ready_channel(self) -> BrokerChannel:
        channel = self._channel
        if channel is not None and channel.is_usable:
            return channel
        endpoint = self._endpoint_of(self._leader_id)
        if endpoint is None:
            raise UnreachableError(f"broker {self._leader_id} is not known to be alive")
        options = self._options
        channel = self._channel = BrokerChannel(
            self._runtime,
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{options.broker_id}-fetcher-0",
            request_timeout_ms=options.wait_ms_max + EXTRA_WAIT_MS,
            security=self._security,
        )
        await channel.connect()
        return channel

    def _failed(self, error: KctlError) -> None:
        if not self._is_closed:
            self._warnings.warn(
                self._leader_id, f"Cannot fetch from leader {self._leader_id}: {error}"
            )
        self.fetcher.on_error(self._runtime.clock.monotonic_ms())

    # --- actions -----------------------------------------------------------------------------

    async def _apply(self, required: Iterable[Sequence[Action]]) -> None:
        """Carry out the actions that each partition requires, some partitions in each turn of the
        loop, and truncations last, because these take turns of their own.

        A partition's actions are determined and begun in the same turn, so that a change of its
        leader, its log or this broker in an earlier turn is known.
        """
        truncations = []
        for actions in required:
            for action in actions:
                tp = action.topic_partition
                partition = self._replicas.partitions.get(tp)
                if partition is None or partition.log is None:
                    self.fetcher.remove(tp)
                elif isinstance(action, Truncate):
                    epoch = self.fetcher.leader_epoch_of(tp)
                    truncations.append((action, partition, partition.log, epoch))
                elif isinstance(action, Append):
                    with self._failures_of(partition):
                        await self._append(action, partition, partition.log)
                else:
                    with self._failures_of(partition):
                        self._carry_out(action, partition.log)
            await self._spend(UNITS_PER_PARTITION)
            if self._is_closed:
                return
        for truncation, partition, log, epoch in truncations:
            tp = truncation.topic_partition

            def is_wanted(
                partition: Partition = partition,
                log: UnifiedLog = log,
                epoch: int | None = epoch,
            ) -> bool:
                return self._is_current(partition, log, epoch)

            with self._failures_of(partition):
                await self._truncate(truncation, log, is_wanted)

    async def _spend(self, units: int) -> None:
        """Count work that was done; wait for the next turn if this one is used up."""
        if self._runtime.scheduler.is_turn_spent():
            units = self._pace.UNITS_PER_TURN + 1
        await self._pace.spend(units)

    async def _append(self, action: Append, partition: Partition, log: UnifiedLog) -> None:
        """Append the fetched records, in several turns if they are many."""
        tp, fetched = action.topic_partition, action.records
        # A partition that is fetched from another leader, or into another log, after a turn has
        # whole batches of this one; the next request begins at their end.
        epoch = self.fetcher.leader_epoch_of(tp)
        for records in (fetched,) if len(fetched or b"") <= SMALL_BYTES else parts_of(fetched):
            if records is not None:
                on_replicated = self._replicas.on_replicated
                if on_replicated is not None and records:
                    on_replicated(tp.topic, len(records))
            if partition.append_as_follower(
                records, action.high_watermark, action.log_start_offset
            ):
                self._replicas.wake_fetches(tp)
            if records:
                await self._spend(len(records) // BYTES_PER_UNIT)
                if not self._is_current(partition, log, epoch):
                    return

    @contextmanager
    def _failures_of(self, partition: Partition) -> Iterator[None]:
        """Handle the failures of an action on a partition's log."""
        tp = partition.topic_partition
        try:
            yield
        except StorageError as error:
            self.fetcher.remove(tp)
            self._replicas.handle_storage_failure(partition, error)
        except (ApiError, CorruptDataError) as error:
            self._runtime.trace.warning(f"Cannot append records fetched for {tp}: {error}")
            self.fetcher.delay(tp, self._runtime.clock.monotonic_ms())

    def _is_current(self, partition: Partition, log: UnifiedLog, leader_epoch: int | None) -> bool:
        """Return whether the log is still the partition's, and follows in this leader epoch."""
        tp = partition.topic_partition
        return (
            not self._is_closed
            and self._replicas.partitions.get(tp) is partition
            and partition.log is log
            and not log.is_closed
            and leader_epoch is not None
            and self.fetcher.leader_epoch_of(tp) == leader_epoch
        )

    async def _truncate(
        self, action: Truncate, log: UnifiedLog, is_wanted: Callable[[], bool]
    ) -> None:
        tp, offset = action.topic_partition, action.offset
        await self._pace.spend(UNITS_OF_TRUNCATION)
        if await truncated(self._runtime.scheduler, self._replicas, log, offset, is_wanted):
            self._runtime.trace.info(f"{tp}: truncated to {offset} by leader {self._leader_id}")

    def _carry_out(self, action: StartOver | GiveUp, log: UnifiedLog) -> None:
        trace = self._runtime.trace
        tp = action.topic_partition
        match action:
            case StartOver():
                log.truncate_fully_and_start_at(action.offset)
                self._replicas.log_manager.futures.current_restarted(tp, action.offset)
                trace.info(f"{tp}: starts over at the leader's log start offset {action.offset}")
            case GiveUp():
                trace.info(f"{tp}: no longer fetched from {self._leader_id}: {action.why}")


async def truncated(
    scheduler: Scheduler,
    replicas: ReplicaManager,
    log: UnifiedLog,
    offset: int,
    is_wanted: Callable[[], bool],
) -> bool:
    """Truncate a log, and the future log that copies it, unless this is no longer wanted when it is
    prepared; return whether records were removed."""
    futures, tp = replicas.log_manager.futures, log.topic_partition
    if not is_wanted():
        return False
    in_future = await done_in_turns(
        scheduler, while_wanted(futures.prepare_truncation(tp, offset), is_wanted)
    )
    if not is_wanted():
        return False
    prepared = await done_in_turns(
        scheduler, while_wanted(log.prepare_truncation(offset), is_wanted)
    )
    if not (is_wanted() and log.truncate_to(offset, prepared)):
        return False
    futures.current_truncated(tp, offset, in_future)
    return True
