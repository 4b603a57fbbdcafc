"""LogManager: all logs of a broker, in all its log directories.

At the start it claims the directories and loads every log; at the end it closes them, writes the
checkpoints and then the clean-shutdown marker. In between it makes logs where there are fewest,
flushes, deletes what is beyond retention, has compacted logs cleaned (`LogCleaner`), and writes
checkpoints of recovery points, log start offsets, high watermarks and cleaned offsets.

What takes time (fsync, removing files, checkpoints) runs in `scheduler.background`, in order;
flushes asked for while one runs are served together by the next.

Failures: a StorageError takes its directory offline, with all its logs. A log whose durable records
are damaged is not served; its files are left alone and the reason is kept (`damaged`).

Kafka 2.7: kafka.log.LogManager; KIP-112, KIP-113, KAFKA-10471
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kctl.broker.log.checkpoints import Checkpoints
from kctl.broker.log.future_logs import FutureLogs, longer_of
from kctl.broker.log.group_commit import LOGS_PER_FLUSH_MAX, GroupCommit, flush_together
from kctl.broker.log.log_cleaner import CleanerSettings, LogCleaner
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_dir_failure_channel import LogDirFailureChannel
from kctl.broker.log.log_directory import LogDirectory
from kctl.broker.log.log_factory import LogFactory
from kctl.broker.log.open_segments import DEFAULT_OPEN_SEGMENTS_MAX
from kctl.broker.log.producer_state_manager import DEFAULT_EXPIRATION_MS
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import CorruptDataError, StorageError
from kctl.model import TopicPartition
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.storage.layout import (
    LOG_SUFFIX,
    delete_directory_name,
    directory_name,
    parse_directory_name,
)

# Replicas to come for which somebody chose a directory; the oldest choices are forgotten.
PREFERRED_DIRS_MAX = 100_000
# Index files made by one background job, so that a flush need not wait long.
_FILES_PER_JOB = 32


@dataclass(frozen=True, slots=True)
class LogManagerOptions:
    """The broker's settings for all logs; defaults are Kafka's."""

    # log.retention.check.interval.ms
    retention_check_interval_ms: int = 300_000
    # log.flush.offset.checkpoint.interval.ms, log.flush.start.offset.checkpoint.interval.ms
    checkpoint_interval_ms: int = 60_000
    # replica.high.watermark.checkpoint.interval.ms
    high_watermark_interval_ms: int = 5_000
    # How often flush.ms is looked at.
    flush_check_interval_ms: int = 1_000
    # transactional.id.expiration.ms
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS
    producer_expiration_check_ms: int = 600_000
    open_segments_max: int = DEFAULT_OPEN_SEGMENTS_MAX
    # Asked anew for every log that is cleaned.
    cleaner: Callable[[], CleanerSettings] = CleanerSettings


class LogManager:
    """See the module."""

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
        """`topic_config` tells the settings of the topics found on disk."""
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
        self._factory = LogFactory(
            runtime,
            self._remove_later,
            self._rolled,
            open_segments_max=self._options.open_segments_max,
            producer_expiration_ms=self._options.producer_expiration_ms,
        )
        self._directories = {
            path: LogDirectory(runtime.disk, runtime.trace, path) for path in log_dirs
        }
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._log_counts = dict.fromkeys(log_dirs, 0)
        # Replicas that move to another directory.
        self.futures = FutureLogs(
            runtime, self._logs, self._directories, self._factory, self._retire,
            self.handle_log_dir_failure,
        )  # fmt: skip
        # Where replicas are to lie that are not here yet.
        self._preferred_dirs: dict[TopicPartition, str] = {}
        # Index files of new segments that are still to be made.
        self._index_files: list[str] = []
        # Partitions whose logs cannot be served, by directory, with the reason.
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
        """Directories in use, in the order given."""
        return [path for path in self._directories if path not in self.failure_channel.offline]

    @property
    def offline_log_dirs(self) -> list[str]:
        """Directories that failed."""
        return [path for path in self._directories if path in self.failure_channel.offline]

    def handle_log_dir_failure(self, log_dir: str, reason: str = "I/O error") -> None:
        """Take a directory offline and forget its logs, writing nothing more to it."""
        is_news = self.failure_channel.report(log_dir, reason)
        gone = [log for log in self._logs.values() if log.log_directory == log_dir]
        for log in gone:
            self._forget(log)
            log.abandon()
        self.futures.log_dir_failed(log_dir)
        if is_news:
            self._trace.warning(f"log directory {log_dir} is offline: {reason}")
            self._trace.event("log_dir_failure", log_dir=log_dir, logs=len(gone))

    # --- start -------------------------------------------------------------------------------

    def start(self) -> None:
        """Claim the directories, load their logs, start the periodic work.

        UsageError for a directory of another broker or cluster; StorageError if a directory is
        in use or none can be used.
        """
        for directory in self._directories.values():
            self._open(directory)
        for path in self.live_log_dirs:
            try:
                self._load_all(self._directories[path])
            except StorageError as error:
                self.handle_log_dir_failure(path, str(error))
        self.futures.agree_with_current()
        self._promote_futures()
        if not self.live_log_dirs:
            reasons = "; ".join(self.failure_channel.offline.values())
            raise StorageError(f"none of the log directories can be used: {reasons}")
        # From now on a missing checkpoint means a copied directory, not a young one.
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
        except StorageError as error:
            if "locked by another" in str(error):
                for other in self._directories.values():
                    other.release()
                raise
            self.handle_log_dir_failure(directory.path, str(error))

    def _load_all(self, directory: LogDirectory) -> None:
        for name in self._disk.list(directory.path):
            parsed = parse_directory_name(name)
            path = f"{directory.path}/{name}"
            if parsed is None or not self._disk.is_directory(path):
                continue
            if parsed.is_delete:
                self._remove_later([path], self._default_config.file_delete_delay_ms)
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
        log.update_high_watermark(directory.high_watermarks.get(tp, 0))
        twin = self._logs.get(tp)
        if twin is None:
            self._take(log)
        else:
            self._keep_longer(twin, log)

    def _keep_longer(self, one: UnifiedLog, other: UnifiedLog) -> None:
        """A crash while a log moved between directories leaves two of its name."""
        longer = longer_of(one, other)
        if longer is None:
            other.abandon()
            raise StorageError(
                f"{one.topic_partition} is in two log directories, and each has records that the "
                f"other has not: {one.directory} and {other.directory}",
                hint="remove one of them",
            )
        shorter = other if longer is one else one
        self._trace.warning(
            f"{shorter.directory} is removed: {longer.directory} has all that it has"
        )
        if longer is other:
            self._forget(one)
            self._take(other)
        self._give_up(shorter)

    def _promote_futures(self) -> None:
        """With all directories there, what moves without being anywhere has lost its current log
        to a crash."""
        for tp in self.futures.orphans():
            if not self.offline_log_dirs and tp not in self.damaged:
                log = self.futures.promote(tp, self._config_of(tp.topic))
                self._trace.warning(f"{log.directory} is used: no other log of {tp} is left")
                self._take(log)

    def _take(self, log: UnifiedLog) -> None:
        self._logs[log.topic_partition] = log
        self._log_counts[log.log_directory] += 1

    def _forget(self, log: UnifiedLog) -> None:
        del self._logs[log.topic_partition]
        self._log_counts[log.log_directory] -= 1

    # --- logs --------------------------------------------------------------------------------

    def all_logs(self) -> list[UnifiedLog]:
        """Every log in a live directory."""
        return list(self._logs.values())

    def get_log(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """The log, if there is one."""
        return self._logs.get(topic_partition)

    def get_or_create_log(
        self,
        topic_partition: TopicPartition,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
    ) -> UnifiedLog:
        """The log, made in the directory with the fewest logs if there is none.

        StorageError if it is damaged, if no directory can take it, or if it is not new and may
        lie in a directory that is offline: a second, empty one must not take its place.
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
        self._take(log)
        if self._checkpoints.may_speak_of(directory.path, tp):
            # They may still speak of a deleted log of its name.
            log.local.announce(0)
        self._make_index_files(log)
        return log

    def _make_index_files(self, log: UnifiedLog) -> None:
        """Make the index files of a new segment in the background, a few at a time: on a busy
        disk each costs a millisecond, and nothing needs them before the segment is closed."""
        if not self._index_files:
            self._scheduler.call_soon(self._make_some_files)
        self._index_files += log.segments[-1].index_paths

    def _make_some_files(self) -> None:
        paths = self._index_files[:_FILES_PER_JOB]

        def make() -> None:
            for path in paths:
                # The log may have been deleted meanwhile.
                if self._disk.exists(path.rpartition(".")[0] + LOG_SUFFIX):
                    self._disk.open(path, create=True).close()

        def done(_: Future[None]) -> None:
            # A failure here shows again, and is dealt with, when the index is saved.
            del self._index_files[: len(paths)]
            if self._index_files:
                self._make_some_files()

        self._scheduler.background(make).add_done_callback(done)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """The topic's settings changed."""
        for tp, log in self._logs.items():
            if tp.topic == topic:
                log.config = config

    def delete_log(self, topic_partition: TopicPartition, because: str = "") -> None:
        """Take the log out of use at once and remove its files after `file.delete.delay.ms`;
        fine if there is none. StorageError if the directory cannot be renamed. `because` is told
        where nobody asked for it."""
        self._preferred_dirs.pop(topic_partition, None)
        self.futures.delete(topic_partition)
        log = self._logs.get(topic_partition)
        if log is None:
            self._delete_damaged(topic_partition)
            return
        if because:
            delay_s = log.config.file_delete_delay_ms // 1000
            self._trace.warning(f"{log.directory} is removed in {delay_s} s: {because}")
        self._forget(log)
        self._retire(log)

    def _retire(self, log: UnifiedLog) -> None:
        """Nobody uses the log any more: its files go."""
        log.abandon()
        delay_ms = log.config.file_delete_delay_ms
        self._remove_later([self._rename_away(log.topic_partition, log.directory)], delay_ms)
        self._checkpoints.log_deleted(log)

    # --- moves between directories -----------------------------------------------------------

    def prefer_directory(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Where the log is to be made, should it come."""
        preferred = self._preferred_dirs
        preferred.pop(topic_partition, None)
        while len(preferred) >= PREFERRED_DIRS_MAX:
            del preferred[next(iter(preferred))]
        preferred[topic_partition] = log_dir

    def begin_move(self, topic_partition: TopicPartition, log_dir: str) -> UnifiedLog:
        """The future log of a partition that is to lie in `log_dir`. StorageError."""
        may_be_known = self._checkpoints.may_speak_of(log_dir, topic_partition)
        return self.futures.create(topic_partition, log_dir, may_be_known=may_be_known)

    def checkpoint_move(self, future: UnifiedLog) -> Future[None]:
        """Have the checkpoints of its directory say how far a future log is durable and
        compacted; the Future fails with StorageError."""
        self.futures.take_cleaned_offset(future.topic_partition)
        return self._checkpoints.write(future.log_directory)

    def complete_move(self, topic_partition: TopicPartition) -> UnifiedLog:
        """The future log takes the current one's place; the log from now on. StorageError if the
        directory where it is to lie failed."""
        before = self._logs[topic_partition]
        log = self.futures.take_place(topic_partition)
        self._forget(before)
        self._take(log)
        self._give_up(before)
        return log

    def _give_up(self, log: UnifiedLog) -> None:
        """Another log has taken its place, durably: a power loss must not bring it back once that
        one has changed. Its directory fails alone."""
        try:
            self._retire(log)
            self._disk.fsync_directory(log.log_directory)
        except StorageError as error:
            self.handle_log_dir_failure(log.log_directory, str(error))

    def _delete_damaged(self, topic_partition: TopicPartition) -> None:
        found = self.damaged.pop(topic_partition, None)
        if found is not None:
            path = f"{found[0]}/{directory_name(topic_partition)}"
            renamed = self._rename_away(topic_partition, path)
            self._remove_later([renamed], self._default_config.file_delete_delay_ms)

    def _rename_away(self, topic_partition: TopicPartition, path: str) -> str:
        uuid_hex = self._runtime.entropy.random_bytes(16).hex()
        parent = path.rpartition("/")[0]
        renamed = f"{parent}/{delete_directory_name(topic_partition, uuid_hex)}"
        self._disk.rename(path, renamed)
        return renamed

    def _remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove files or directories in the background; a failure is only worth a line."""

        def remove() -> None:
            for path in paths:
                if self._disk.is_directory(path):
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove(path)

        def run() -> None:
            self._scheduler.background(remove).add_done_callback(report)

        def report(done: Future[None]) -> None:
            error = done.error()
            if error is not None:
                self._trace.warning(f"cannot remove {paths[0]}: {error}")

        self._scheduler.call_later(delay_ms, run)

    # --- flush -------------------------------------------------------------------------------

    def flush_soon(self, log: UnifiedLog) -> Future[None]:
        """Make all that `log` has now durable, together with whatever else waits for that.

        The Future fails with StorageError, and the directory is then offline.
        """
        return self._group_commit.flush_soon(log)

    def _is_deleted(self, log: UnifiedLog) -> bool:
        is_offline = log.log_directory in self.failure_channel.offline
        tp = log.topic_partition
        is_used = self._logs.get(tp) is log or self.futures.get(tp) is log
        return not is_used and not is_offline

    def _rolled(self, log: UnifiedLog) -> None:
        self._make_index_files(log)
        self.flush_soon(log)

    def _flush_by_time(self) -> None:
        now_ms = self._clock.wall_ms()
        for log in self._logs.values():
            is_due = now_ms - log.last_flush_ms >= log.config.flush_ms
            if is_due and log.log_end_offset > log.recovery_point:
                self.flush_soon(log)

    # --- periodic work -----------------------------------------------------------------------

    def _every(self, name: str, interval_ms: int, work: Callable[[], object]) -> None:
        def run() -> None:
            self._timers[name] = self._scheduler.call_later(interval_ms, run)
            work()

        self._timers[name] = self._scheduler.call_later(interval_ms, run)

    def delete_old_segments(self) -> int:
        """Drop what is beyond retention in every log; how many segments went."""
        now_ms = self._clock.wall_ms()
        count = 0
        for log in self.all_logs():
            if self.cleaner.is_cleaning(log):
                # It would have to begin anew.
                continue
            try:
                count += log.delete_old_segments(now_ms)
            except StorageError as error:
                self.handle_log_dir_failure(log.log_directory, str(error))
        return count

    def _expire_producers(self) -> None:
        now_ms = self._clock.wall_ms()
        for log in self._logs.values():
            log.remove_expired_producers(now_ms)

    def checkpoint(self) -> None:
        """Write all checkpoints that changed; then drop snapshots that no recovery asks for."""
        self._checkpoints.write_all()

    # --- end ---------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close all logs, write the checkpoints, and last of all mark the stop as clean."""
        for timer in self._timers.values():
            timer.cancel()
        await self.cleaner.stop()
        # Jobs run in order: after this one nothing is under way.
        await self._scheduler.background(lambda: None)
        logs = [log for log in (*self.all_logs(), *self.futures.all()) if not log.is_closed]
        for start in range(0, len(logs), LOGS_PER_FLUSH_MAX):
            await self._close_logs(logs[start : start + LOGS_PER_FLUSH_MAX])
        for path, directory in self._directories.items():
            if path in self.live_log_dirs:
                self._close_directory(directory)
            directory.release()

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
