"""Checkpoints: what the files of recovery points, log start offsets and high watermarks say.

They are written when a minute has passed, when they lend a log what is no longer true of it
(records were truncated, the log was deleted), and at the end. Writing takes fsyncs, so it is done
in `scheduler.background`; where the next append must not come before, it is done at once.

Invariant: a recovery point on disk is never beyond what was durable; one beyond the log's end
would make the next torn write look like rot.

Kafka 2.7: kafka.log.LogManager (`checkpointRecoveryOffsetsAndCleanSnapshotsInDir`),
kafka.server.ReplicaManager (`checkpointHighWatermarks`)
"""

from collections.abc import Callable, Iterable, Mapping

from kctl.broker.log.log_directory import LogDirectory, Offsets
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import StorageError
from kctl.model import TopicPartition
from kctl.runtime.future import Future
from kctl.runtime.scheduler import Scheduler
from kctl.storage.layout import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)


class Checkpoints:
    """The checkpoints of all log directories; see the module."""

    def __init__(
        self,
        scheduler: Scheduler,
        directories: Mapping[str, LogDirectory],
        logs: Mapping[TopicPartition, UnifiedLog],
        damaged: Mapping[TopicPartition, tuple[str, str]],
        offline: Mapping[str, str],
        on_failure: Callable[[str, str], object],
    ) -> None:
        """The mappings are LogManager's, as they change; `on_failure` gets the log directory
        that failed, and why."""
        self._scheduler = scheduler
        self._directories = directories
        self._logs = logs
        self._damaged = damaged
        self._offline = offline
        self._on_failure = on_failure
        # Directories whose checkpoints still speak of a log that was deleted.
        self._stale: dict[str, None] = {}
        self._under_way = dict.fromkeys(directories, 0)

    # --- when --------------------------------------------------------------------------------

    def write_all(self) -> None:
        """Write what changed, then drop snapshots that no recovery will ask for."""
        self._write(self._directories)

    def write_high_watermarks(self) -> None:
        """Write the high watermarks that changed."""
        for path in self._directories:
            if path not in self._offline:
                marks = {log.topic_partition: log.high_watermark for log in self.logs_in(path)}
                self._submit(path, {HIGH_WATERMARK_CHECKPOINT: marks})

    def log_truncated(self, log: UnifiedLog) -> None:
        """A recovery point beyond the log's new end must not meet the next append."""
        self._write([log.log_directory], is_urgent=True)

    def log_deleted(self, log: UnifiedLog) -> None:
        """What the checkpoints say of it must not be lent to the next log of its name."""
        if not self._stale:
            self._scheduler.call_soon(self._write_stale)
        self._stale[log.log_directory] = None

    def before_creation(self, path: str) -> None:
        """A log is about to be made in the log directory, perhaps one of a former log's name."""
        if path in self._stale:
            self._write([path], is_urgent=True)

    def write_last(self, directory: LogDirectory) -> None:
        """All logs are closed and nothing is under way: write what changed now."""
        job = directory.checkpoint(self._offsets_of(directory))
        if job is not None:
            job()
        self._drop_snapshots(directory.path)

    # --- how ---------------------------------------------------------------------------------

    def logs_in(self, path: str) -> list[UnifiedLog]:
        """The logs in one log directory."""
        return [log for log in self._logs.values() if log.log_directory == path]

    def _write_stale(self) -> None:
        self._write(list(self._stale))

    def _write(self, paths: Iterable[str], *, is_urgent: bool = False) -> None:
        for path in paths:
            self._stale.pop(path, None)
            if path not in self._offline:
                offsets = self._offsets_of(self._directories[path])
                self._submit(path, offsets, then=self._drop_snapshots, is_urgent=is_urgent)

    def _offsets_of(self, directory: LogDirectory) -> dict[str, Offsets]:
        """What a directory's checkpoints should say; of damaged logs, what they said."""
        recovery_points: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        marks: dict[TopicPartition, int] = {}
        for tp, (log_dir, _) in self._damaged.items():
            if log_dir == directory.path:
                recovery_points[tp] = directory.recovery_points.get(tp, 0)
                marks[tp] = directory.high_watermarks.get(tp, 0)
                if tp in directory.log_start_offsets:
                    starts[tp] = directory.log_start_offsets[tp]
        for log in self.logs_in(directory.path):
            tp = log.topic_partition
            recovery_points[tp] = log.checkpoint_recovery_point
            marks[tp] = log.high_watermark
            if log.log_start_offset > log.segments[0].base_offset:
                starts[tp] = log.log_start_offset
        return {
            RECOVERY_POINT_CHECKPOINT: recovery_points,
            LOG_START_OFFSET_CHECKPOINT: starts,
            HIGH_WATERMARK_CHECKPOINT: marks,
        }

    def _submit(
        self,
        path: str,
        offsets: Mapping[str, Offsets],
        then: Callable[[str], object] | None = None,
        *,
        is_urgent: bool = False,
    ) -> None:
        """Write in the background; what is urgent is written at once, unless older checkpoints
        are just being written."""
        job = self._directories[path].checkpoint(offsets)
        if job is None:
            return
        if is_urgent and not self._under_way[path]:
            job()
            return

        def done(future: Future[None]) -> None:
            self._under_way[path] -= 1
            try:
                future.result()
                if then is not None:
                    then(path)
            except StorageError as error:
                self._on_failure(path, str(error))

        self._under_way[path] += 1
        self._scheduler.background(job).add_done_callback(done)

    def _drop_snapshots(self, path: str) -> None:
        for log in self.logs_in(path):
            log.delete_old_snapshots()
