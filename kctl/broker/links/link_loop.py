"""LinkLoop: fetches from one leader of a source, and appends what it sends.

It sends what its LinkFetcher asks for and carries out what the responses require, one partition
after the other. What concerns more than a log goes to its owner: another leader, or the end of a
partition's copy.

Kafka 2.7: kafka.server.ReplicaFetcherThread
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from kctl.broker.links.link_fetcher import (
    Action,
    Append,
    Compare,
    Failed,
    FindLeader,
    LinkFetcher,
    StartAt,
    Stop,
    Truncate,
)
from kctl.broker.log.unified_log import FetchIsolation, UnifiedLog
from kctl.broker.replication.fetch_session_handler import PARTITIONS_PER_TURN
from kctl.broker.replication.fetched_parts import parts_of
from kctl.broker.replication.fetcher_manager import truncated
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.client.broker_channel import BrokerChannel
from kctl.errors import CorruptDataError, KctlError, StorageError
from kctl.model import TopicPartition
from kctl.protocol.constants import NO_EPOCH
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import Buffer
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record_batch import MAGIC_OFFSET
from kctl.runtime.disk import FileSlice
from kctl.runtime.future import sleep
from kctl.runtime.recurring_warnings import RecurringWarnings
from kctl.runtime.runtime import Runtime
from kctl.runtime.turns import done_in_turns, next_turn, pace_of
from kctl.runtime.wakeable_sleep import WakeableSleep

OLD_FORMAT = "the source has records in a format before 0.11, which have no leader epochs"


# Work of an action, in units of `Pace`, without the records that it appends.
UNITS_PER_ACTION = 8


class LinkOwner(Protocol):
    """What a loop reports to."""

    def fetched(self, tp: TopicPartition, high_watermark: int) -> None:
        """Note the end of the source's partition."""
        ...

    def failed(self, tp: TopicPartition, why: str) -> None:
        """Note that a partition is not copied now; the loop tries it again."""
        ...

    def was_truncated(self, tp: TopicPartition, before: int, after: int) -> None:
        """Report records that were removed because the source does not have them."""
        ...

    def stop(self, tp: TopicPartition, why: str) -> None:
        """Stop following a partition for good."""
        ...

    def find_leader(self, tp: TopicPartition | None, why: str) -> None:
        """Ask the source who leads this partition; None: the loop lost its leader."""
        ...


class LinkLoop:
    """One connection to one broker of a source."""

    def __init__(
        self,
        runtime: Runtime,
        replicas: ReplicaManager,
        connect: Callable[[], Awaitable[BrokerChannel]],
        owner: LinkOwner,
    ) -> None:
        self.fetcher = LinkFetcher()
        self._runtime = runtime
        self._replicas = replicas
        self._connect = connect
        self._owner = owner
        self._channel: BrokerChannel | None = None
        self._is_closed = False
        self._is_running = False
        self._warnings = RecurringWarnings(runtime)
        self._sleep = WakeableSleep(runtime.scheduler)
        self._pace = pace_of(runtime.scheduler)

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Follow the source's leader of `leader_epoch` with the partition's log."""
        log = partition.log
        assert log is not None
        self.fetcher.add(
            partition.topic_partition, leader_epoch, log, is_compacted=log.config.is_compacted
        )
        if not self._is_running:
            self._is_running = True
            self._runtime.scheduler.spawn(self._run(), "link-fetcher")
        self._sleep.wake()

    def close(self) -> None:
        """Stop the loop."""
        self._is_closed = True
        if self._channel is not None:
            self._channel.close()
        self._sleep.wake()

    async def _run(self) -> None:
        clock, fetcher = self._runtime.clock, self.fetcher
        # All partitions of one round of the owner go into the first request.
        await sleep(self._runtime.scheduler, 0)
        while self._is_open():
            request = await done_in_turns(
                self._runtime.scheduler, fetcher.next_request(clock.monotonic_ms())
            )
            if not self._is_open():
                return
            if request is None:
                await self._sleep.until(fetcher.next_due_ms())
                continue
            try:
                channel = await self._ready_channel()
                is_wide = len(fetcher) > PARTITIONS_PER_TURN
                response = await (channel.send_in_turns if is_wide else channel.send)(request)
            except KctlError as error:
                fetcher.on_error(clock.monotonic_ms())
                await self._lost_leader(str(error))
                continue
            self._warnings.resolve(None)
            for action in fetcher.on_response(response, clock.monotonic_ms()):
                if action is None:
                    await next_turn(self._runtime.scheduler)
                else:
                    await self._carry_out(action)
                    await self._pace.spend(UNITS_PER_ACTION)

    async def _lost_leader(self, why: str) -> None:
        """Report all partitions, some in each turn of the loop, as they are not copied now."""
        for number, tp in enumerate(self.fetcher.partitions(), 1):
            if number % PARTITIONS_PER_TURN == 0:
                await next_turn(self._runtime.scheduler)
            if tp in self.fetcher and self._is_open():
                self._owner.failed(tp, why)
        if self._is_open():
            self._warnings.warn(None, f"A leader of the source cannot be asked: {why}")
            self._owner.find_leader(None, why)

    def _is_open(self) -> bool:
        return not self._is_closed

    async def _ready_channel(self) -> BrokerChannel:
        if self._channel is None or not self._channel.is_usable:
            channel = await self._connect()
            if self._is_closed:
                channel.close()
            self._channel = channel
        return self._channel

    # --- actions -----------------------------------------------------------------------------

    async def _carry_out(self, action: Action) -> None:
        tp = action.topic_partition
        if isinstance(action, FindLeader):
            # The fetcher does not have the partition any longer.
            self._owner.find_leader(tp, ErrorCode(action.error_code).name)
            return
        partition = self._replicas.partitions.get(tp)
        log = None if partition is None else partition.log
        if partition is None or log is None or not self._is_copied(partition, log):
            self.fetcher.remove(tp)
            return
        try:
            await self._apply(action, partition, log)
        except StorageError as error:
            self.fetcher.remove(tp)
            self._replicas.handle_storage_failure(partition, error)
        except (ApiError, CorruptDataError) as error:
            self._failed(tp, f"cannot append what the source sent: {error}")
            self.fetcher.delay(tp, self._runtime.clock.monotonic_ms())

    async def _apply(self, action: Action, partition: Partition, log: UnifiedLog) -> None:
        tp = action.topic_partition
        match action:
            case Append():
                await self._append(action, partition, log)
            case Truncate():
                await self._truncate(action.offset, partition, log)
            case Compare():
                self._compare(action, log)
            case StartAt():
                log.truncate_fully_and_start_at(action.offset)
                self._replicas.log_manager.futures.current_restarted(tp, action.offset)
            case Failed():
                self._failed(tp, f"the source reports {ErrorCode(action.error_code).name}")
            case Stop():
                self._stop(tp, action.why)

    def _is_copied(self, partition: Partition, log: UnifiedLog) -> bool:
        """Return whether the partition is still a copy that this broker leads, with this log."""
        return (
            not self._is_closed
            and partition.topic_partition in self.fetcher
            and partition.role is Role.LEADER
            and partition.read_only is not None
            and partition.log is log
            and not log.is_closed
        )

    def _failed(self, tp: TopicPartition, why: str) -> None:
        self._warnings.warn(tp, f"{tp}: {why}")
        self._owner.failed(tp, why)

    def _stop(self, tp: TopicPartition, why: str) -> None:
        self.fetcher.remove(tp)
        self._owner.stop(tp, why)

    async def _append(self, action: Append, partition: Partition, log: UnifiedLog) -> None:
        """Append the batches, some in each turn of the loop."""
        tp, scheduler = action.topic_partition, self._runtime.scheduler
        for records in parts_of(action.records):
            if records is not None and records[MAGIC_OFFSET] < CURRENT_MAGIC:
                self._stop(tp, OLD_FORMAT)
                return
            now_ms = self._runtime.clock.wall_ms()
            if partition.append_from_source(records, action.log_start_offset, now_ms):
                self._replicas.wake(tp)
            elif records is not None:
                # Followers wait for what is not committed yet.
                self._replicas.wake_fetches(tp)
            if records is not None and log.is_write_through:
                self._replicas.flush_soon(partition)
            if scheduler.is_turn_spent():
                await sleep(scheduler, 0)
                if not self._is_copied(partition, log):
                    return
        if log.log_end_offset > log.log_start_offset and log.latest_epoch == NO_EPOCH:
            self._stop(tp, OLD_FORMAT)
        self._warnings.resolve(tp)
        self._owner.fetched(tp, action.high_watermark)

    async def _truncate(self, offset: int, partition: Partition, log: UnifiedLog) -> None:
        tp, end = partition.topic_partition, log.log_end_offset
        if await truncated(
            self._runtime.scheduler, self._replicas, log, offset,
            lambda: self._is_copied(partition, log),
        ):  # fmt: skip
            partition.forget_progress(self._runtime.clock.wall_ms())
            self._replicas.wake(tp)
            self._owner.was_truncated(tp, end, log.log_end_offset)

    def _compare(self, action: Compare, log: UnifiedLog) -> None:
        tp = action.topic_partition
        own = last_batch(log)
        if memoryview(action.records)[: len(own)] == own:
            self.fetcher.agreed(tp)
        else:
            self._stop(
                tp,
                f"the last batch of the copy, before offset {log.log_end_offset}, is not the one "
                "that the source has there: its topic was created again, or is another one",
            )


def last_batch(log: UnifiedLog) -> Buffer:
    """Return the bytes of the last batch of a log that has records."""
    found = log.read(log.log_end_offset - 1, 1, isolation=FetchIsolation.LOG_END).records
    assert isinstance(found, FileSlice)
    return found.file.pread(found.length, found.position)
