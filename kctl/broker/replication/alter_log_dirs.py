"""ReplicaAlterLogDirsManager: moves replicas between the log directories of this broker.

A move begins with a future log in the target directory (`FutureLogs`). The current log is copied to
it a slice at a time: read in the background, appended on the loop as by a follower, at most at
replica.alter.log.dirs.io.max.bytes.per.second. The replica is served from the current log
meanwhile.

When the future log has caught up, it is made durable in the background, and then again for the
records that arrived meanwhile. The rest is copied in one step, and the future log becomes the
replica's log. One replica moves at a time, the others wait.

The replica may change at any time (another leader, truncation, deletion, a failed directory,
shutdown), so its state is checked after each wait. A future log that still exists continues to grow
when the controller assigns the replica its role again.

A failed read takes the directory of the current log offline, a failed write that of the future log.
Damaged or rejected records only end the move.

Kafka 2.7: kafka.server.{ReplicaAlterLogDirsManager, ReplicaAlterLogDirsThread}, ReplicaManager
(`alterReplicaLogDirs`); KIP-113.
"""

from collections import OrderedDict
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

# The second flush only covers the records that arrived during the first one.
FLUSHES_BEFORE_SWITCH = 2
# How long a throttled move pauses before the rate is checked again.
THROTTLED_PAUSE_MS = 100
# A compacted log may end with offsets without records: then only a new record makes progress.
NOTHING_TO_COPY_PAUSE_MS = 1000

# Takes a partition whose log was replaced.
LogListener = Callable[[Partition], object]


class ReplicaAlterLogDirsManager:
    """Moves replicas between log directories, one at a time."""

    def __init__(
        self,
        runtime: Runtime,
        replica_manager: ReplicaManager,
        find_partition: Callable[[TopicPartition], object | None],
        quota: ReplicationQuota | None = None,
    ) -> None:
        """Create a manager.

        `find_partition` returns the metadata of a partition, or None if it is unknown; `quota`
        limits the total rate of all moves.
        """
        self.quota = quota
        self._runtime = runtime
        self._replicas = replica_manager
        self._logs = replica_manager.log_manager
        self._find_partition = find_partition
        self._slice_bytes_max = replica_manager.config.replica_fetch_max_bytes
        self._listeners: list[LogListener] = []
        # Growing future logs, in the order in which they are processed.
        self._moving: OrderedDict[TopicPartition, UnifiedLog] = OrderedDict()
        self._runner: Task[None] | None = None

    def on_log_replaced(self, listener: LogListener) -> None:
        """Call `listener` with each partition whose move is complete."""
        self._listeners.append(listener)

    def shutdown(self) -> None:
        """Stop copying; unfinished moves continue after the next start."""
        self._moving.clear()

    # --- requests ----------------------------------------------------------------------------

    def alter(self, tp: TopicPartition, log_dir: str) -> int:
        """Move the replica to `log_dir`; return NONE if it is there or on its way, else an error
        code.

        For a replica that does not exist yet the directory is remembered.
        """
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
            # One of them may already have a future log.
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            self._start(tp, self._logs.begin_move(tp, log_dir))
        except StorageError as error:
            self._logs.handle_log_dir_failure(log_dir, str(error))
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def on_role_change(self, changes: Sequence[RoleChange]) -> None:
        """Continue moves that a shutdown interrupted (a listener of Leadership)."""
        for change in changes:
            tp = change.topic_partition
            future = self._logs.futures.get(tp)
            if change.role in (Role.NONE, Role.OFFLINE):
                self._moving.pop(tp, None)
            elif future is not None:
                self._start(tp, future)

    # --- the queue of moves ------------------------------------------------------------------

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
                    self._move_to_end(tp)
                    continue
            except _SourceError as error:
                self._source_failed(tp, future, str(error))
            except StorageError as error:
                self._target_failed(tp, future, str(error))
            except (ApiError, CorruptDataError) as error:
                self._give_up(tp, future, str(error))
            if self._moving.get(tp) is future:
                del self._moving[tp]

    def _move_to_end(self, tp: TopicPartition) -> None:
        future = self._moving.pop(tp, None)
        if future is not None:
            self._moving[tp] = future

    def _source_failed(self, tp: TopicPartition, future: UnifiedLog, reason: str) -> None:
        current = self._current(tp, future)
        if current is not None:
            self._logs.handle_log_dir_failure(current.log_directory, reason)

    def _target_failed(self, tp: TopicPartition, future: UnifiedLog, reason: str) -> None:
        if self._current(tp, future) is not None:
            self._logs.handle_log_dir_failure(future.log_directory, reason)

    def _give_up(self, tp: TopicPartition, future: UnifiedLog, reason: str) -> None:
        """End a move whose records are damaged or rejected: both directories work. Without its
        copy, the log is compacted again, and the next request begins another move."""
        if self._current(tp, future) is not None:
            self._runtime.trace.warning(
                f"{tp} cannot be moved to {future.log_directory}, its copy is removed: {reason}"
            )
            self._logs.futures.delete(tp)

    def _current(self, tp: TopicPartition, future: UnifiedLog) -> UnifiedLog | None:
        """Return the log to copy, or None if the move no longer exists."""
        partition = self._replicas.partitions.get(tp)
        is_wanted = self._moving.get(tp) is future and self._logs.futures.get(tp) is future
        return partition.log if partition is not None and is_wanted else None

    async def _move(self, tp: TopicPartition, future: UnifiedLog) -> bool:
        """Copy and switch; return False if the future log cannot catch up now."""
        for _ in range(FLUSHES_BEFORE_SWITCH):
            await self._catch_up(tp, future)
            if self._current(tp, future) is not None:
                await self._logs.flush_soon(future)
            if self._current(tp, future) is not None:
                # The checkpoints of its directory must include it before it becomes the only copy.
                await self._logs.checkpoint_move(future)
        current = self._current(tp, future)
        if current is None:
            return True
        if not self._catch_up_now(current, future):
            return False
        self._complete(tp, future)
        return True

    async def _catch_up(self, tp: TopicPartition, future: UnifiedLog) -> None:
        """Copy until the future log has everything that the current log had a moment ago."""
        scheduler = self._runtime.scheduler
        while (current := self._current(tp, future)) is not None:
            if self.quota and self.quota.is_exceeded(self._runtime.clock.monotonic_ms()):
                await sleep(scheduler, THROTTLED_PAUSE_MS)
                continue
            records = self._next_slice(current, future)
            if records is None:
                return
            start, end = future.log_end_offset, current.log_end_offset
            is_same = partial(self._is_same, tp, future, current, current.truncations)
            try:
                data = await scheduler.background(partial(_read, records))
            except _SourceError:
                if is_same():
                    raise
                # The file is gone with the log, or with the records that were truncated.
                continue
            if is_same() and future.log_end_offset == start:
                self._append(current, future, data)
                if future.log_end_offset >= end:
                    return

    def _is_same(
        self, tp: TopicPartition, future: UnifiedLog, current: UnifiedLog, truncations: int
    ) -> bool:
        """Return whether the log to copy is still `current`, truncated so many times."""
        return self._current(tp, future) is current and current.truncations == truncations

    def _catch_up_now(self, current: UnifiedLog, future: UnifiedLog) -> bool:
        """Copy the rest in one step; return whether the future log is complete."""
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
        try:
            found = current.read(
                future.log_end_offset, self._slice_bytes_max, isolation=FetchIsolation.LOG_END
            )
        except StorageError as error:
            raise _SourceError(str(error)) from error
        return found.records

    def _append(self, current: UnifiedLog, future: UnifiedLog, data: bytes) -> None:
        future.append_as_follower(data)
        future.maybe_increment_high_watermark(current.high_watermark)
        start_offset = min(current.log_start_offset, future.high_watermark)
        future.maybe_increment_log_start_offset(start_offset)
        if self.quota:
            self.quota.record(len(data), self._runtime.clock.monotonic_ms())

    def _complete(self, tp: TopicPartition, future: UnifiedLog) -> None:
        partition = self._replicas.partitions[tp]
        left = partition.log
        assert left is not None
        partition.log = self._logs.complete_move(tp)
        del self._moving[tp]
        self._runtime.trace.info(f"{tp}: moved from {left.log_directory} to {future.log_directory}")
        for listener in self._listeners:
            listener(partition)
        # Everything in it is durable now, which an append may have been waiting for.
        partition.maybe_increment_high_watermark(self._runtime.clock.wall_ms())
        self._replicas.wake(tp)


class _SourceError(Exception):
    """A file of the current log cannot be read."""


def _read(records: FileSlice) -> bytes:
    try:
        return records.file.pread(records.length, records.position)
    except StorageError as error:
        raise _SourceError(str(error)) from error
