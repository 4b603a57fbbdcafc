"""LogManager: all logs of a broker, in all its log directories.

At startup it claims the directories and loads every log; at shutdown it closes them, writes the
checkpoints and then the clean-shutdown marker. In between it creates logs in the directory with the
fewest, flushes, deletes segments beyond retention, has compacted logs cleaned (`LogCleaner`), and
writes checkpoints of recovery points, log start offsets, high watermarks and cleaned offsets.

Slow work (fsync, removing files, checkpoints) runs in `scheduler.background`, in order; flushes
requested while one runs are served together by the next.

Failures: a StorageError takes its directory offline, with all its logs. A log whose durable records
are damaged is not served; its files stay unchanged and the reason is kept (`damaged`).

Kafka 2.7: kafka.log.LogManager; KIP-112, KIP-113, KAFKA-10471
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from kctl.broker.log.checkpoints import LOGS_PER_TURN, Checkpoints
from kctl.broker.log.future_logs import FutureLogs, longer_of
from kctl.broker.log.group_commit import SEGMENTS_PER_LOG_MAX, GroupCommit, flush_together
from kctl.broker.log.index_files import IndexFileMaker
from kctl.broker.log.log_cleaner import CleanerSettings, LogCleaner
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_dir_failure_channel import LogDirFailureChannel
from kctl.broker.log.log_directory import LogDirectory
from kctl.broker.log.log_factory import LogFactory
from kctl.broker.log.log_removal import LogRemoval
from kctl.broker.log.open_segments import DEFAULT_OPEN_SEGMENTS_MAX
from kctl.broker.log.producer_state_manager import DEFAULT_EXPIRATION_MS, PRODUCERS_PER_STEP
from kctl.broker.log.retention import DELETED_AT_ONCE
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import CorruptDataError, LockedError, StorageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import alone_in_turns
from kctl.storage.layout import directory_name, parse_directory_name
from kctl.work import Work, parts

# Future replicas with a chosen directory; the oldest choices are dropped.
PREFERRED_DIRS_MAX = 100_000
# Logs whose configs are computed in one turn, within 5 ms.
CONFIGS_PER_TURN = 100
# Logs that are prepared for their end, or closed, in one turn, within 5 ms.
LOGS_CLOSED_PER_TURN = 64


@dataclass(frozen=True, slots=True)
class LogManagerOptions:
    """The broker's settings for all logs; the defaults are Kafka's."""

    # log.retention.check.interval.ms
    retention_check_interval_ms: int = 300_000
    # log.flush.offset.checkpoint.interval.ms, log.flush.start.offset.checkpoint.interval.ms
    checkpoint_interval_ms: int = 60_000
    # replica.high.watermark.checkpoint.interval.ms
    high_watermark_interval_ms: int = 5_000
    # How often flush.ms is checked.
    flush_check_interval_ms: int = 1_000
    # transactional.id.expiration.ms
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS
    producer_expiration_check_ms: int = 600_000
    open_segments_max: int = DEFAULT_OPEN_SEGMENTS_MAX
    # Called for every log that is cleaned.
    cleaner: Callable[[], CleanerSettings] = CleanerSettings


class LogManager:
    """The logs of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        log_dirs: Sequence[str],
        default_config: LogConfig,
        *,
        broker_id: int,
        cluster_id: str,
        topic_config: Callable[[str], LogConfig] | None = None,
        options: LogManagerOptions | None = None,
        failure_channel: LogDirFailureChannel | None = None,
    ) -> None:
        """Create a manager; `topic_config` returns the configs of a topic found on disk."""
        self._runtime = runtime
        self._disk = runtime.disk
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._default_config = default_config
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._topic_config = topic_config
        self._options = options or LogManagerOptions()
        self.failure_channel = failure_channel or LogDirFailureChannel()
        self.removal = LogRemoval(runtime, self.handle_log_dir_failure)
        self._factory = LogFactory(
            runtime,
            self.removal.remove_later,
            self._rolled,
            open_segments_max=self._options.open_segments_max,
            producer_expiration_ms=self._options.producer_expiration_ms,
        )
        self._directories = {
            path: LogDirectory(runtime.disk, runtime.trace, path) for path in log_dirs
        }
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        # The same by topic.
        self._logs_of_topic: dict[str, dict[TopicPartition, UnifiedLog]] = {}
        self._log_counts = dict.fromkeys(log_dirs, 0)
        # Replicas that move to another directory.
        self.futures = FutureLogs(
            runtime, self._logs, self._directories, self._factory, self._retire,
            self.handle_log_dir_failure,
        )  # fmt: skip
        # The directories chosen for replicas that do not exist yet.
        self._preferred_dirs: OrderedDict[TopicPartition, str] = OrderedDict()
        self._index_files = IndexFileMaker(self._scheduler, runtime.disk)
        # Partitions whose logs cannot be served -> (directory, reason).
        self.damaged: dict[TopicPartition, tuple[str, str]] = {}
        self._timers: dict[str, Timer] = {}
        self._group_commit = GroupCommit(
            self._scheduler, self._is_deleted, self.handle_log_dir_failure
        )
        self._checkpoints = Checkpoints(
            self._scheduler,
            self._directories,
            lambda: [*self._logs.values(), *self.futures.all()],
            self.damaged,
            self.failure_channel.offline,
            self.handle_log_dir_failure,
        )
        self.cleaner = LogCleaner(
            runtime,
            self._logs,
            self._options.cleaner,
            self.flush_soon,
            self.handle_log_dir_failure,
            is_held=self.futures.__contains__,
        )

    # --- directories -------------------------------------------------------------------------

    @property
    def live_log_dirs(self) -> list[str]:
        """Return the directories in use, in the order given."""
        return [path for path in self._directories if path not in self.failure_channel.offline]

    @property
    def offline_log_dirs(self) -> list[str]:
        """Return the directories that failed."""
        return [path for path in self._directories if path in self.failure_channel.offline]

    def handle_log_dir_failure(self, log_dir: str, reason: str = "I/O error") -> None:
        """Take a directory offline and discard its logs, without further writes to it."""
        is_news = self.failure_channel.report(log_dir, reason)
        gone = [log for log in self._logs.values() if log.log_directory == log_dir]
        for log in gone:
            self._unregister(log)
        work = self._abandoning([*gone, *self.futures.log_dir_failed(log_dir)])
        alone_in_turns(self._scheduler, work)
        if is_news:
            self._trace.warning(f"log directory {log_dir} is offline: {reason}")
            self._trace.event("log_dir_failure", log_dir=log_dir, logs=len(gone))

    def _abandoning(self, logs: Sequence[UnifiedLog]) -> Work[None]:
        """Close `logs` now, and their files in turns, LOGS_CLOSED_PER_TURN in each."""
        for log in logs:
            log.is_closed = True
        for number, part in enumerate(parts(logs, LOGS_CLOSED_PER_TURN)):
            if number:
                yield
            for log in part:
                log.abandon()

    # --- start -------------------------------------------------------------------------------

    def start(self) -> None:
        """Claim the directories, load their logs, start the periodic work.

        Raise UsageError for a directory of another broker or cluster, and StorageError if a
        directory is in use or none can be used.
        """
        for directory in self._directories.values():
            self._open(directory)
        for path in self.live_log_dirs:
            try:
                self._load_all(self._directories[path])
            except StorageError as error:
                self.handle_log_dir_failure(path, str(error))
        self.futures.reconcile_with_current()
        self._promote_futures()
        if not self.live_log_dirs:
            raise self.failure_channel.error("none of the log directories can be used")
        self._checkpoints.logs_loaded()
        # From now on a missing checkpoint indicates a copied directory, not a new one.
        self.checkpoint()
        options = self._options
        self._every("retention", options.retention_check_interval_ms, self.delete_old_segments)
        self._every("checkpoint", options.checkpoint_interval_ms, self.checkpoint)
        self._every(
            "hw", options.high_watermark_interval_ms, self._checkpoints.write_high_watermarks
        )
        self._every("flush", options.flush_check_interval_ms, self._flush_by_time)
        self._every("producers", options.producer_expiration_check_ms, self._expire_producers)
        self.cleaner.start()

    def _open(self, directory: LogDirectory) -> None:
        try:
            directory.open(self._broker_id, self._cluster_id, self._clock.wall_ms())
        except CorruptDataError as error:
            self.handle_log_dir_failure(directory.path, str(error))
        except LockedError:
            for other in self._directories.values():
                other.release()
            raise
        except StorageError as error:
            self.handle_log_dir_failure(directory.path, str(error))

    def _load_all(self, directory: LogDirectory) -> None:
        for name in self._disk.list(directory.path):
            parsed = parse_directory_name(name)
            path = f"{directory.path}/{name}"
            if parsed is None or not self._disk.is_directory(path):
                continue
            if parsed.is_delete:
                self.removal.remove_later([path], self._default_config.file_delete_delay_ms)
            elif parsed.is_future:
                tp = parsed.topic_partition
                self.futures.load(directory, tp, path, self._config_of(tp.topic))
            else:
                self._load(directory, parsed.topic_partition, path)

    def _config_of(self, topic: str) -> LogConfig:
        return self._topic_config(topic) if self._topic_config else self._default_config

    def _load(self, directory: LogDirectory, tp: TopicPartition, path: str) -> None:
        try:
            log = self._factory.load(directory, tp, path, self._config_of(tp.topic))
        except CorruptDataError as error:
            self.damaged[tp] = (directory.path, str(error))
            self._trace.warning(f"{tp} is not served: {error}")
            self._trace.event("log_damaged", partition=tp, message=str(error))
            return
        # The checkpoint may be of records that were truncated, or of a deleted log.
        mark = directory.high_watermarks.get(tp, 0)
        log.update_high_watermark(min([mark, *log.local.announced]))
        twin = self._logs.get(tp)
        if twin is None:
            self._register(log)
        else:
            self._keep_longer(twin, log)

    def _keep_longer(self, one: UnifiedLog, other: UnifiedLog) -> None:
        """Keep the longer of two logs of a partition, left by a crash during a move."""
        longer = longer_of(one, other)
        if longer is None:
            other.abandon()
            raise StorageError(
                f"{one.topic_partition} is in two log directories, and each has records that the "
                f"other lacks: {one.directory} and {other.directory}",
                hint="remove one of them",
            )
        shorter = other if longer is one else one
        self._trace.warning(
            f"{shorter.directory} is removed: {longer.directory} contains all its records"
        )
        if longer is other:
            self._unregister(one)
            self._register(other)
        self._remove_replaced(shorter)

    def _promote_futures(self) -> None:
        """Promote future logs whose current log was lost in a crash, if all directories are
        available."""
        for tp in self.futures.orphans():
            if not self.offline_log_dirs and tp not in self.damaged:
                log = self.futures.promote(tp, self._config_of(tp.topic))
                self._trace.warning(f"{log.directory} is used: no other log of {tp} is left")
                self._register(log)

    def _register(self, log: UnifiedLog) -> None:
        tp = log.topic_partition
        self._logs[tp] = self._logs_of_topic.setdefault(tp.topic, {})[tp] = log
        self._log_counts[log.log_directory] += 1

    def _unregister(self, log: UnifiedLog) -> None:
        tp = log.topic_partition
        del self._logs[tp]
        del self._logs_of_topic[tp.topic][tp]
        if not self._logs_of_topic[tp.topic]:
            del self._logs_of_topic[tp.topic]
        self._log_counts[log.log_directory] -= 1

    # --- logs --------------------------------------------------------------------------------

    def all_logs(self) -> list[UnifiedLog]:
        """Return every log in a live directory."""
        return list(self._logs.values())

    def get_log(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """Return the log, or None."""
        return self._logs.get(topic_partition)

    def get_or_create_log(
        self,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
    ) -> UnifiedLog:
        """Return the log; create it in the directory with the fewest logs if there is none.

        Raise StorageError if the log is damaged, if no directory can take it, or if it is not new
        and may be in a directory that is offline: an empty log must not replace it.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if config is not None and config != log.config:
                log.config = config
            return log
        if topic_partition in self.damaged:
            raise StorageError(self.damaged[topic_partition][1])
        if not is_new and self.offline_log_dirs:
            raise StorageError(
                f"{topic_partition} may be in a log directory that is offline: "
                f"{', '.join(self.offline_log_dirs)}"
            )
        while live := self.live_log_dirs:
            preferred = self._preferred_dirs.pop(topic_partition, None)
            directory = self._directories[preferred if preferred in live else self._emptiest(live)]
            try:
                return self._create(directory, topic_partition, config or self._default_config)
            except StorageError as error:
                self.handle_log_dir_failure(directory.path, str(error))
        raise StorageError(f"no log directory is left for {topic_partition}")

    def _emptiest(self, live: Sequence[str]) -> str:
        return min(live, key=lambda path: self._log_counts[path] + self.futures.count_in(path))

    def _create(self, directory: LogDirectory, tp: TopicPartition, config: LogConfig) -> UnifiedLog:
        path = f"{directory.path}/{directory_name(tp)}"
        log = self._factory.create(directory, tp, path, config)
        self._register(log)
        if self._checkpoints.may_mention(directory.path, tp):
            # The checkpoints may still mention a deleted log of the partition.
            log.local.announce(0)
        self._index_files.make_soon(log.segments[-1].index_paths)
        return log

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply changed configs of the topic to its logs."""
        for log in self._logs_of_topic.get(topic, {}).values():
            log.config = config

    def refresh_configs(self, topic: str | None) -> None:
        """Apply the current configs of `topic`, or of all topics, to their logs, in turns."""
        logs = self._logs if topic is None else self._logs_of_topic.get(topic, {})
        alone_in_turns(self._scheduler, self._refreshing(list(logs.values())))

    def _refreshing(self, logs: Sequence[UnifiedLog]) -> Work[None]:
        """Apply the current configs to `logs`, with a `yield` after every CONFIGS_PER_TURN."""
        for part in parts(logs, CONFIGS_PER_TURN):
            if part[0] is not logs[0]:
                yield
            # The configs of a topic may change again before the next turn.
            configs: dict[str, LogConfig] = {}
            for log in part:
                topic = log.topic_partition.topic
                if topic not in configs:
                    configs[topic] = self._config_of(topic)
                log.config = configs[topic]

    def delete_log(self, topic_partition: TopicPartition, because: str = "") -> None:
        """Take the log, if any, out of use and remove its files after `file.delete.delay.ms`.

        Raise StorageError if the directory cannot be renamed. `because` is the reason to log for a
        deletion that was not requested.
        """
        self._preferred_dirs.pop(topic_partition, None)
        self.futures.delete(topic_partition)
        log = self._logs.get(topic_partition)
        if log is None:
            self._delete_damaged(topic_partition)
            return
        if because:
            delay_s = log.config.file_delete_delay_ms // 1000
            self._trace.warning(f"{log.directory} is removed in {delay_s} s: {because}")
        self._unregister(log)
        self._retire(log)

    def _retire(self, log: UnifiedLog) -> None:
        """Close a log that is no longer used and schedule the removal of its files."""
        log.abandon()
        delay_ms = log.config.file_delete_delay_ms
        self.removal.remove_later(
            [self.removal.rename_away(log.topic_partition, log.directory)], delay_ms
        )
        self._checkpoints.log_deleted(log.log_directory, log.topic_partition)

    # --- moves between directories -----------------------------------------------------------

    def prefer_directory(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Choose the directory for a log that may be created later."""
        preferred = self._preferred_dirs
        preferred.pop(topic_partition, None)
        while len(preferred) >= PREFERRED_DIRS_MAX:
            del preferred[next(iter(preferred))]
        preferred[topic_partition] = log_dir

    def begin_move(self, topic_partition: TopicPartition, log_dir: str) -> UnifiedLog:
        """Create the future log of a partition that moves to `log_dir`. Raise StorageError."""
        may_be_known = self._checkpoints.may_mention(log_dir, topic_partition)
        return self.futures.create(topic_partition, log_dir, may_be_known=may_be_known)

    def checkpoint_move(self, future: UnifiedLog) -> Future[None]:
        """Write the checkpoints of a future log's directory; the Future fails with StorageError."""
        self.futures.take_cleaned_offset(future.topic_partition)
        return self._checkpoints.write(future.log_directory)

    def complete_move(self, topic_partition: TopicPartition) -> UnifiedLog:
        """Replace the current log with the future log; return the new log.

        Raise StorageError if the target directory failed.
        """
        before = self._logs[topic_partition]
        log = self.futures.replace_current(topic_partition)
        self._unregister(before)
        self._register(log)
        self._remove_replaced(before)
        return log

    def _remove_replaced(self, log: UnifiedLog) -> None:
        """Remove a log that another one has replaced, durably: a power loss must not restore it
        once the other has changed. A failure affects only its directory."""
        try:
            self._retire(log)
            self._disk.fsync_directory(log.log_directory)
        except StorageError as error:
            self.handle_log_dir_failure(log.log_directory, str(error))

    def _delete_damaged(self, topic_partition: TopicPartition) -> None:
        found = self.damaged.pop(topic_partition, None)
        if found is not None:
            path = f"{found[0]}/{directory_name(topic_partition)}"
            renamed = self.removal.rename_away(topic_partition, path)
            self.removal.remove_later([renamed], self._default_config.file_delete_delay_ms)
            self._checkpoints.log_deleted(found[0], topic_partition)

    # --- flush -------------------------------------------------------------------------------

    def measure_flushes(
        self, clock: Callable[[], float], observe: Callable[[float], object]
    ) -> None:
        """Call `observe` with the seconds of each fsync that appends wait for."""
        self._group_commit.measure(clock, observe)

    def flush_soon(self, log: UnifiedLog) -> Future[None]:
        """Make everything in `log` durable, together with other logs that wait for a flush.

        The Future fails with StorageError, and the directory is then offline.
        """
        return self._group_commit.flush_soon(log)

    def _is_deleted(self, log: UnifiedLog) -> bool:
        is_offline = log.log_directory in self.failure_channel.offline
        tp = log.topic_partition
        is_used = self._logs.get(tp) is log or self.futures.get(tp) is log
        return not is_used and not is_offline

    def _rolled(self, log: UnifiedLog) -> None:
        self._index_files.make_soon(log.segments[-1].index_paths)
        self.flush_soon(log)

    def _flush_by_time(self) -> Work[None]:
        now_ms = self._clock.wall_ms()

        def visit(log: UnifiedLog) -> None:
            is_due = now_ms - log.last_flush_ms >= log.config.flush_ms
            if is_due and log.log_end_offset > log.recovery_point:
                self.flush_soon(log)

        return self._visit_all(visit)

    # --- periodic work -----------------------------------------------------------------------

    def _every(self, name: str, interval_ms: int, begin: Callable[[], Work[object] | None]) -> None:
        def run() -> None:
            self._timers[name] = self._scheduler.call_later(interval_ms, run)
            work = begin()
            if work is not None:
                alone_in_turns(self._scheduler, work)

        self._timers[name] = self._scheduler.call_later(interval_ms, run)

    def _visit_all(self, visit: Callable[[UnifiedLog], object]) -> Work[None]:
        """Call `visit` for every log, with a `yield` after LOGS_PER_TURN of them."""
        for number, part in enumerate(parts(self.all_logs(), LOGS_PER_TURN)):
            if number:
                yield
            for log in part:
                if not log.is_closed:
                    visit(log)

    def delete_old_segments(self) -> Work[int]:
        """Delete segments beyond retention in every log; return how many."""
        now_ms = self._clock.wall_ms()
        count = units = 0
        logs = deque(self.all_logs())
        while logs:
            if units >= LOGS_PER_TURN:
                yield
                units = 0
            log = logs.popleft()
            deleted = self._delete_old_segments_of(log, now_ms)
            if deleted >= DELETED_AT_ONCE:
                logs.append(log)
            count += deleted
            # A turn has LOGS_PER_TURN logs, or DELETED_AT_ONCE deleted segments.
            units += 1 + deleted * LOGS_PER_TURN // DELETED_AT_ONCE
        return count

    def _delete_old_segments_of(self, log: UnifiedLog, now_ms: int) -> int:
        # Cleaning would have to start over.
        if log.is_closed or self.cleaner.is_cleaning(log):
            return 0
        try:
            return log.delete_old_segments(now_ms)
        except StorageError as error:
            self.handle_log_dir_failure(log.log_directory, str(error))
            return 0

    def _expire_producers(self) -> Work[None]:
        now_ms = self._clock.wall_ms()
        looked = 0
        for log in self.all_logs():
            if looked >= PRODUCERS_PER_STEP:
                yield
                looked = 0
            if not log.is_closed:
                # A log without producers is looked at, too.
                looked += 1 + (yield from log.remove_expired_producers(now_ms))

    def checkpoint(self) -> None:
        """Write all checkpoints that changed, then remove snapshots that no recovery needs."""
        self._checkpoints.write_all()

    # --- end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all logs, write the checkpoints, and finally mark the shutdown as clean."""
        for timer in self._timers.values():
            timer.cancel()
        await self.cleaner.stop()
        await self._checkpoints.all_submitted()
        # Jobs run in order: after this one only removals of what is out of use may run.
        await self._scheduler.background(lambda: None)
        logs = [log for log in (*self.all_logs(), *self.futures.all()) if not log.is_closed]
        await self._flush_long(logs)
        for part in parts(logs, LOGS_CLOSED_PER_TURN):
            await self._close_logs(part)
        for path, directory in self._directories.items():
            if path in self.live_log_dirs:
                self._close_directory(directory)
            directory.release()

    async def _flush_long(self, logs: Sequence[UnifiedLog]) -> None:
        """Flush the logs that have to keep many files open for it, part by part."""
        for log in logs:
            if log.local.unflushed_segments > SEGMENTS_PER_LOG_MAX:
                # A failure takes the directory offline.
                with suppress(StorageError):
                    await self.flush_soon(log)

    async def _close_logs(self, logs: Sequence[UnifiedLog]) -> None:
        live = [log for log in logs if log.log_directory in self.live_log_dirs]
        flushed = await flush_together(self._scheduler, live, UnifiedLog.prepare_close)
        for log, error in flushed.failed:
            self.handle_log_dir_failure(log.log_directory, str(error))
        for log, job in flushed.jobs:
            if log.log_directory in self.live_log_dirs:
                log.complete_close(job)

    def _close_directory(self, directory: LogDirectory) -> None:
        try:
            self._checkpoints.write_last(directory)
            # With the marker the next start would trust a damaged log.
            if all(log_dir != directory.path for log_dir, _ in self.damaged.values()):
                directory.mark_clean()
        except StorageError as error:
            self.handle_log_dir_failure(directory.path, str(error))
