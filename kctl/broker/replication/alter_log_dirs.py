"""ReplicaAlterLogDirsManager: moves replicas between the log directories of this broker.

A move begins with a future log in the directory where the replica is to lie (`FutureLogs`). What
the current log has is copied to it, a slice at a time: read in the background, appended on the
loop, as a follower would, no faster than replica.alter.log.dirs.io.max.bytes.per.second. The
replica is served from the current log meanwhile.

When the future log has caught up, it is made durable in the background, and then again, for the
little that came in meanwhile. What came in since that is copied in one go, and the future log is
the replica's log from then on. One replica moves at a time, the others wait for their turn.

Whatever happens to the replica at any moment (another leader, a cut, deletion, a failed directory,
a stop of the broker) is looked at after each wait; a future log that is still there goes on
growing when the controller gives the replica its role again.

Kafka 2.7: kafka.server.{ReplicaAlterLogDirsManager, ReplicaAlterLogDirsThread}, ReplicaManager
(`alterReplicaLogDirs`); KIP-113.
"""

from collections.abc import Callable, Sequence
from functools import partial

from kctl.broker.log.unified_log import FetchIsolation, UnifiedLog
from kctl.broker.quotas import ReplicationQuota
from kctl.broker.replication.leadership import RoleChange
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.errors import CorruptDataError, StorageError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.runtime.disk import FileSlice
from kctl.runtime.future import Task, sleep
from kctl.runtime.runtime import Runtime
from kctl.storage.layout import NAME_MAX, future_directory_name

# What of the log comes in during one flush is what the next has to do.
FLUSHES_BEFORE_ARRIVAL = 2
# How long a throttled move rests before the rate is looked at again.
THROTTLED_PAUSE_MS = 100
# A compacted log may end with offsets that no record has: only a new record goes beyond them.
NOTHING_TO_COPY_PAUSE_MS = 1000

# Gets a partition whose log was replaced.
LogListener = Callable[[Partition], object]


class ReplicaAlterLogDirsManager:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        replica_manager: ReplicaManager,
        find_partition: Callable[[TopicPartition], object | None],
    ) -> None:
        """`find_partition` gives what the cluster knows of a partition, None if nothing."""
        # The rate of all moves together; None: as fast as can be.
        self.quota: ReplicationQuota | None = None
        self._runtime = runtime
        self._replicas = replica_manager
        self._logs = replica_manager.log_manager
        self._find_partition = find_partition
        self._slice_bytes_max = replica_manager.config.replica_fetch_max_bytes
        self._listeners: list[LogListener] = []
        # Future logs that grow, in the order in which they are seen to.
        self._moving: dict[TopicPartition, UnifiedLog] = {}
        self._runner: Task[None] | None = None

    def on_log_replaced(self, listener: LogListener) -> None:
        """Call `listener` with each partition that arrived in its new directory."""
        self._listeners.append(listener)

    def shutdown(self) -> None:
        """Copy no more; what is under way goes on after the next start."""
        self._moving.clear()

    # --- what is asked for -------------------------------------------------------------------

    def alter(self, tp: TopicPartition, log_dir: str) -> int:
        """Have the replica lie in `log_dir`; NONE if it is so, or is on its way, else the error
        code. Of a replica that is still to come the directory is remembered."""
        if len(future_directory_name(tp, "0" * 32)) > NAME_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if log_dir in self._logs.offline_log_dirs:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if log_dir not in self._logs.live_log_dirs:
            return ErrorCode.LOG_DIR_NOT_FOUND
        partition = self._replicas.partitions.get(tp)
        if partition is not None and partition.role is Role.OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if partition is None or partition.log is None:
            self._logs.prefer_directory(tp, log_dir)
            if partition is None and self._find_partition(tp) is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return self._alter(partition, partition.log, log_dir)

    def _alter(self, partition: Partition, current: UnifiedLog, log_dir: str) -> int:
        tp = partition.topic_partition
        future = self._logs.futures.get(tp)
        if future is not None and future.log_directory != log_dir:
            self._moving.pop(tp, None)
            self._logs.futures.delete(tp)
            future = None
        if current.log_directory == log_dir or future is not None:
            return ErrorCode.NONE
        if self._logs.offline_log_dirs:
            # One of them may have a future log already.
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            self._start(tp, self._logs.begin_move(tp, log_dir))
        except StorageError as error:
            self._logs.handle_log_dir_failure(log_dir, str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def on_role_change(self, changes: Sequence[RoleChange]) -> None:
        """Go on with what a stop of the broker interrupted (a listener of Leadership)."""
        for change in changes:
            tp = change.topic_partition
            future = self._logs.futures.get(tp)
            if change.role in (Role.NONE, Role.OFFLINE):
                self._moving.pop(tp, None)
            elif future is not None:
                self._start(tp, future)

    # --- one after the other -----------------------------------------------------------------

    def _start(self, tp: TopicPartition, future: UnifiedLog) -> None:
        self._moving[tp] = future
        if self._runner is None or self._runner.done:
            self._runner = self._runtime.scheduler.spawn(self._run(), "alter-log-dirs")

    async def _run(self) -> None:
        while self._moving:
            tp, future = next(iter(self._moving.items()))
            try:
                if not await self._move(tp, future):
                    await sleep(self._runtime.scheduler, NOTHING_TO_COPY_PAUSE_MS)
                    self._look_at_others(tp)
                    continue
            except (StorageError, CorruptDataError) as error:
                self._failed(tp, future, str(error))
            except ApiError as error:
                self._runtime.trace.warning(f"{tp} cannot be moved: {error}")
            if self._moving.get(tp) is future:
                del self._moving[tp]

    def _look_at_others(self, tp: TopicPartition) -> None:
        future = self._moving.pop(tp, None)
        if future is not None:
            self._moving[tp] = future

    def _failed(self, tp: TopicPartition, future: UnifiedLog, reason: str) -> None:
        """The directory where it is to lie; where it lies now fails by itself, when it is used."""
        if self._current(tp, future) is not None:
            self._logs.handle_log_dir_failure(future.log_directory, reason)

    def _current(self, tp: TopicPartition, future: UnifiedLog) -> UnifiedLog | None:
        """The log to copy; None once the move is no more."""
        partition = self._replicas.partitions.get(tp)
        is_wanted = self._moving.get(tp) is future and self._logs.futures.get(tp) is future
        return partition.log if partition is not None and is_wanted else None

    async def _move(self, tp: TopicPartition, future: UnifiedLog) -> bool:
        """Whether there is nothing left to do."""
        for _ in range(FLUSHES_BEFORE_ARRIVAL):
            await self._catch_up(tp, future)
            if self._current(tp, future) is not None:
                await self._logs.flush_soon(future)
            if self._current(tp, future) is not None:
                # Its directory's checkpoints must know of it before nobody else does.
                await self._logs.checkpoint_move(future)
        current = self._current(tp, future)
        if current is None:
            return True
        if not self._catch_up_now(current, future):
            return False
        self._arrive(tp, future)
        return True

    async def _catch_up(self, tp: TopicPartition, future: UnifiedLog) -> None:
        """Until the future log has all that the current one had a moment ago: there may always
        be more."""
        scheduler = self._runtime.scheduler
        while (current := self._current(tp, future)) is not None:
            if self.quota and self.quota.is_exceeded(self._runtime.clock.monotonic_ms()):
                await sleep(scheduler, THROTTLED_PAUSE_MS)
                continue
            records = self._next_slice(current, future)
            if records is None:
                return
            start, end = future.log_end_offset, current.log_end_offset
            truncations = current.truncations
            data = await scheduler.background(partial(_read, records))
            is_same = self._current(tp, future) is current and current.truncations == truncations
            if is_same and future.log_end_offset == start:
                self._append(current, future, data)
                if future.log_end_offset >= end:
                    return

    def _catch_up_now(self, current: UnifiedLog, future: UnifiedLog) -> bool:
        """Copy the last bit in one go; whether the future log has everything."""
        while future.log_end_offset < current.log_end_offset:
            records = self._next_slice(current, future)
            if records is None:
                return False
            self._append(current, future, _read(records))
        return future.log_end_offset == current.log_end_offset

    def _next_slice(self, current: UnifiedLog, future: UnifiedLog) -> FileSlice | None:
        if future.log_end_offset < current.log_start_offset:
            # Its records were deleted before they were copied.
            future.truncate_fully_and_start_at(current.log_start_offset)
        found = current.read(
            future.log_end_offset, self._slice_bytes_max, isolation=FetchIsolation.LOG_END
        )
        return found.records

    def _append(self, current: UnifiedLog, future: UnifiedLog, data: bytes) -> None:
        future.append_as_follower(data)
        future.maybe_increment_high_watermark(current.high_watermark)
        start_offset = min(current.log_start_offset, future.high_watermark)
        future.maybe_increment_log_start_offset(start_offset)
        if self.quota:
            self.quota.record(len(data), self._runtime.clock.monotonic_ms())

    def _arrive(self, tp: TopicPartition, future: UnifiedLog) -> None:
        partition = self._replicas.partitions[tp]
        left = partition.log
        assert left is not None
        partition.log = self._logs.complete_move(tp)
        del self._moving[tp]
        self._runtime.trace.info(f"{tp}: moved from {left.log_directory} to {future.log_directory}")
        for listener in self._listeners:
            listener(partition)
        # All that it has is durable now: somebody may have waited for just that.
        partition.maybe_increment_high_watermark(self._runtime.clock.wall_ms())
        self._replicas.wake(tp)


def _read(records: FileSlice) -> bytes:
    return records.file.pread(records.length, records.position)
