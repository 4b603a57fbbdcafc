"""Checkpoints: writes the files of recovery points, log start offsets, high watermarks and cleaned
offsets.

They are written every minute, after a log was deleted, and at shutdown. The logs are examined in
parts, with turns of the loop for others, and the files written in `scheduler.background`, because
that needs fsyncs. A checkpoint is therefore always somewhat out of date. This is harmless
while its offsets only grow: recovery then examines more than necessary. Where an offset shrinks,
the log records this in its own directory (`LocalLog.announce`) until a checkpoint made after that
is on disk.

Kafka 2.7: kafka.log.LogManager (`checkpointRecoveryOffsetsAndCleanSnapshotsInDir`),
kafka.server.ReplicaManager (`checkpointHighWatermarks`)
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from kctl.broker.log.log_directory import LogDirectory, Offsets
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import StorageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler
from kctl.runtime.turns import in_turns
from kctl.storage.layout import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kctl.work import Work, at_once, parts, while_wanted

# Delay from the first deletion of a log to new checkpoints: a rewrite examines every log, and one
# serves the thousands of deletions of a topic.
REWRITE_DELAY_MS = 1_000
# Logs examined between two turns of the loop, which takes about a millisecond.
LOGS_PER_TURN = 200
# The key of a write of all checkpoints of a directory.
_ALL = "all"


class Checkpoints:
    """The checkpoints of all log directories."""

    def __init__(
        self,
        scheduler: Scheduler,
        directories: Mapping[str, LogDirectory],
        logs: Callable[[], Iterable[UnifiedLog]],
        damaged: Mapping[TopicPartition, tuple[str, str]],
        offline: Mapping[str, str],
        on_failure: Callable[[str, str], object],
    ) -> None:
        """Create the checkpoints of a LogManager.

        The mappings are LogManager's, as they change; `logs` returns all logs; `on_failure` takes
        the log directory that failed and the reason.
        """
        self._scheduler = scheduler
        self._directories = directories
        self._logs = logs
        self._damaged = damaged
        self._offline = offline
        self._on_failure = on_failure
        # Log directory -> partitions deleted since the checkpoints on disk were made, each with
        # its last deletion.
        self._deleted: dict[str, dict[TopicPartition, _Deletion]] = {
            path: {} for path in directories
        }
        self._is_rewriting = False
        # (directory, what) -> a write that has not begun, and its result. Their order matters: a
        # file must not end with older offsets than it had.
        self._waiting: OrderedDict[tuple[str, str], tuple[Work[None], Future[None]]] = OrderedDict()
        self._is_walking = False
        self._awaiting_end: list[Future[None]] = []

    # --- when --------------------------------------------------------------------------------

    def write_all(self) -> None:
        """Write the checkpoints that changed, then remove files that no recovery needs."""
        for path in self._directories:
            self.write(path)

    def write(self, path: str) -> Future[None]:
        """Write what changed in one directory; the Future fails with StorageError."""
        return self._queue((path, _ALL), self._write_all_of)

    def write_high_watermarks(self) -> None:
        """Write the high watermarks that changed."""
        for path in self._directories:
            self._queue((path, HIGH_WATERMARK_CHECKPOINT), self._write_marks_of)

    def all_submitted(self) -> Future[None]:
        """Return a Future that is done when all writes are submitted to the background."""
        future: Future[None] = self._scheduler.future()
        if self._is_walking:
            self._awaiting_end.append(future)
        else:
            future.set_result(None)
        return future

    def logs_loaded(self) -> None:
        """Record which partitions the checkpoints mention that have no log, after all logs were
        loaded: a crash may follow a deletion before the checkpoints are rewritten."""
        for path, directory in self._directories.items():
            present = {log.topic_partition for log in self._logs_in(path)}
            present |= {tp for tp, (log_dir, _) in self._damaged.items() if log_dir == path}
            for topic_partition in directory.mentioned() - present:
                self._deleted[path][topic_partition] = _Deletion()

    def log_deleted(self, path: str, topic_partition: TopicPartition) -> None:
        """Record that the partition's log in log directory `path` is deleted; the checkpoints are
        rewritten after REWRITE_DELAY_MS."""
        self._deleted[path][topic_partition] = _Deletion()
        if not self._is_rewriting:
            self._is_rewriting = True
            self._scheduler.call_later(REWRITE_DELAY_MS, self._rewrite)

    def may_mention(self, path: str, topic_partition: TopicPartition) -> bool:
        """Return whether the directory's checkpoints may still mention a deleted log of that
        partition."""
        return topic_partition in self._deleted[path]

    def write_last(self, directory: LogDirectory) -> None:
        """Write what changed, after all logs are closed and no job is running."""
        examined = at_once(self._examine(directory))
        job = at_once(directory.checkpoint(examined.offsets))
        if job is not None:
            job()
        for log, truncations in examined.logs:
            at_once(log.recovery_point_saved(truncations))

    # --- how ---------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        self._is_rewriting = False
        for path, deleted in self._deleted.items():
            if deleted:
                self.write(path)

    def _queue(
        self, key: tuple[str, str], walk: Callable[[str, Future[None]], Work[None]]
    ) -> Future[None]:
        """Write after the earlier writes, or together with an equal one that has not begun."""
        waiting = self._waiting.get(key)
        if waiting is None:
            written: Future[None] = self._scheduler.future()
            waiting = self._waiting[key] = (walk(key[0], written), written)
            if not self._is_walking:
                self._walk()
        return waiting[1]

    def _walk(self, _: None = None) -> None:
        """Begin the first of the writes that wait."""
        self._is_walking = bool(self._waiting)
        if self._is_walking:
            work, written = self._waiting.pop(next(iter(self._waiting)))
            try:
                in_turns(self._scheduler, work, self._walk, partial(self._walk_failed, written))
            except Exception:
                # The next write begins the others that wait.
                self._is_walking = False
                raise
            return
        waiting, self._awaiting_end = self._awaiting_end, []
        for future in waiting:
            future.set_result(None)

    def _walk_failed(self, written: Future[None], error: Exception) -> None:
        written.set_error(error)
        self._walk()
        raise error

    def _write_all_of(self, path: str, written: Future[None]) -> Work[None]:
        deleted = dict(self._deleted[path])
        examined = yield from self._examine(self._directories[path])
        notes = self._note(path, deleted, examined.logs)
        yield from self._submit(path, examined.offsets, notes, written)

    def _write_marks_of(self, path: str, written: Future[None]) -> Work[None]:
        marks: dict[TopicPartition, int] = {}
        for part in parts(self._logs_in(path), LOGS_PER_TURN):
            if marks:
                yield
            marks |= {log.topic_partition: log.high_watermark for log in part}
        yield from self._submit(
            path, {HIGH_WATERMARK_CHECKPOINT: marks}, self._note(path, {}, []), written
        )

    def _logs_in(self, path: str) -> list[UnifiedLog]:
        return [log for log in self._logs() if log.log_directory == path]

    def _examine(self, directory: LogDirectory) -> Work["_Examined"]:
        """Return the offsets for a directory's checkpoints; damaged logs keep their previous
        ones."""
        recovery_points: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        marks: dict[TopicPartition, int] = {}
        cleaned: dict[TopicPartition, int] = {}
        for tp, (log_dir, _) in self._damaged.items():
            if log_dir == directory.path:
                recovery_points[tp] = directory.recovery_points.get(tp, 0)
                marks[tp] = directory.high_watermarks.get(tp, 0)
                if tp in directory.cleaned_offsets:
                    cleaned[tp] = directory.cleaned_offsets[tp]
                if tp in directory.log_start_offsets:
                    starts[tp] = directory.log_start_offsets[tp]
        logs: list[tuple[UnifiedLog, int]] = []
        for part in parts(self._logs_in(directory.path), LOGS_PER_TURN):
            if logs:
                yield
            for log in part:
                tp = log.topic_partition
                # Together with the offsets: a truncation that follows is not covered.
                logs.append((log, log.truncations))
                recovery_points[tp] = log.claim_recovery_point()
                marks[tp] = log.high_watermark
                if offset := log.local.claim_cleaned_offset():
                    cleaned[tp] = offset
                if log.log_start_offset > log.segments[0].base_offset:
                    starts[tp] = log.log_start_offset
        offsets = {
            RECOVERY_POINT_CHECKPOINT: recovery_points,
            LOG_START_OFFSET_CHECKPOINT: starts,
            HIGH_WATERMARK_CHECKPOINT: marks,
            CLEANER_OFFSET_CHECKPOINT: cleaned,
        }
        return _Examined(offsets, logs)

    def _submit(
        self,
        path: str,
        offsets: Mapping[str, Offsets],
        notes: Work[None],
        written: Future[None],
    ) -> Work[None]:
        """Write what changed in the background, then make the `notes` and set `written`."""
        job = yield from self._directories[path].checkpoint(offsets)
        if path in self._offline:
            job = None

        def done(future: Future[None]) -> None:
            error = future.error()
            if error is None:
                in_turns(self._scheduler, notes, written.set_result, written.set_error)
                return
            if isinstance(error, StorageError):
                self._on_failure(path, str(error))
            written.set_error(error)

        # With nothing to write, the job still waits for earlier writes to reach the disk.
        self._scheduler.background(job or (lambda: None)).add_done_callback(done)

    def _note(
        self,
        path: str,
        deleted: Mapping[TopicPartition, "_Deletion"],
        logs: Sequence[tuple[UnifiedLog, int]],
    ) -> Work[None]:
        """Remove files that the checkpoints now on disk make unnecessary."""
        for topic_partition, deletion in deleted.items():
            # A later log of the partition may have been deleted since; the files may mention it.
            if self._deleted[path].get(topic_partition) is deletion:
                del self._deleted[path][topic_partition]
        for number, (log, truncations) in enumerate(logs, 1):
            if number % LOGS_PER_TURN == 0:
                yield
            if log.is_closed:
                continue
            try:
                saved = log.recovery_point_saved(truncations)
                yield from while_wanted(saved, partial(_is_as_examined, log, truncations))
            except StorageError as error:
                self._on_failure(path, str(error))
                return


def _is_as_examined(log: UnifiedLog, truncations: int) -> bool:
    return not log.is_closed and log.truncations == truncations


class _Deletion:
    """The identity of one deletion of a log."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Examined:
    """The offsets for checkpoints, by name, and the logs with their numbers of truncations."""

    offsets: Mapping[str, Offsets]
    logs: list[tuple[UnifiedLog, int]]
