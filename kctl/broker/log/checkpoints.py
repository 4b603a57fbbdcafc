"""Checkpoints: what the files of recovery points, log start offsets, high watermarks and cleaned
offsets say.

They are written each minute, after a log was deleted, and at the end; in `scheduler.background`,
for that takes fsyncs. So they are always somewhat old. That does no harm while what they speak of
only grows: recovery then looks at more than it must. Where it shrinks the log itself says so in
its directory (`LocalLog.announce`), until a checkpoint made after that is on the disk.

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
    CLEANER_OFFSET_CHECKPOINT,
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
        logs: Callable[[], Iterable[UnifiedLog]],
        damaged: Mapping[TopicPartition, tuple[str, str]],
        offline: Mapping[str, str],
        on_failure: Callable[[str, str], object],
    ) -> None:
        """The mappings are LogManager's, as they change; `logs` tells all logs there are;
        `on_failure` gets the log directory that failed, and why."""
        self._scheduler = scheduler
        self._directories = directories
        self._logs = logs
        self._damaged = damaged
        self._offline = offline
        self._on_failure = on_failure
        # Log directory -> partitions deleted since the checkpoints on the disk were made.
        self._deleted: dict[str, dict[TopicPartition, None]] = {path: {} for path in directories}
        self._is_rewriting = False

    # --- when --------------------------------------------------------------------------------

    def write_all(self) -> None:
        """Write what changed; then drop what no recovery will ask for."""
        for path in self._directories:
            self.write(path)

    def write_high_watermarks(self) -> None:
        """Write the high watermarks that changed."""
        for path in self._directories:
            if path not in self._offline:
                marks = {log.topic_partition: log.high_watermark for log in self._logs_in(path)}
                self._submit(path, {HIGH_WATERMARK_CHECKPOINT: marks}, lambda: None)

    def log_deleted(self, log: UnifiedLog) -> None:
        """The log is gone: soon the checkpoints must not speak of it any more."""
        self._deleted[log.log_directory][log.topic_partition] = None
        if not self._is_rewriting:
            self._is_rewriting = True
            self._scheduler.call_soon(self._rewrite)

    def may_speak_of(self, path: str, topic_partition: TopicPartition) -> bool:
        """Whether the checkpoints of a directory may still speak of a deleted log of that name."""
        return topic_partition in self._deleted[path]

    def write_last(self, directory: LogDirectory) -> None:
        """All logs are closed and nothing is under way: write what changed now."""
        job = directory.checkpoint(self._offsets_of(directory))
        if job is not None:
            job()
        for log in self._logs_in(directory.path):
            log.recovery_point_saved(log.truncations)

    # --- how ---------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        self._is_rewriting = False
        for path, deleted in self._deleted.items():
            if deleted:
                self.write(path)

    def write(self, path: str) -> Future[None]:
        """Write what changed in one directory; the Future fails with StorageError."""
        if path in self._offline:
            return self._scheduler.background(lambda: None)
        logs = [(log, log.truncations) for log in self._logs_in(path)]
        deleted = list(self._deleted[path])

        def written() -> None:
            for topic_partition in deleted:
                self._deleted[path].pop(topic_partition, None)
            for log, truncations in logs:
                if not log.is_closed:
                    log.recovery_point_saved(truncations)

        return self._submit(path, self._offsets_of(self._directories[path]), written)

    def _logs_in(self, path: str) -> list[UnifiedLog]:
        return [log for log in self._logs() if log.log_directory == path]

    def _offsets_of(self, directory: LogDirectory) -> dict[str, Offsets]:
        """What a directory's checkpoints should say; of damaged logs, what they said."""
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
        for log in self._logs_in(directory.path):
            tp = log.topic_partition
            recovery_points[tp] = log.claim_recovery_point()
            marks[tp] = log.high_watermark
            if offset := log.local.claim_cleaned_offset():
                cleaned[tp] = offset
            if log.log_start_offset > log.segments[0].base_offset:
                starts[tp] = log.log_start_offset
        return {
            RECOVERY_POINT_CHECKPOINT: recovery_points,
            LOG_START_OFFSET_CHECKPOINT: starts,
            HIGH_WATERMARK_CHECKPOINT: marks,
            CLEANER_OFFSET_CHECKPOINT: cleaned,
        }

    def _submit(
        self, path: str, offsets: Mapping[str, Offsets], written: Callable[[], object]
    ) -> Future[None]:
        """Write what changed in the background, then call `written`."""
        # With nothing to write, what is on its way to the disk still has to get there.
        job = self._directories[path].checkpoint(offsets) or (lambda: None)

        def done(future: Future[None]) -> None:
            error = future.error()
            if isinstance(error, StorageError):
                self._on_failure(path, str(error))
            elif error is None:
                self._note(path, written)

        submitted = self._scheduler.background(job)
        submitted.add_done_callback(done)
        return submitted

    def _note(self, path: str, written: Callable[[], object]) -> None:
        """What is on the disk now makes older files needless: they are removed."""
        try:
            written()
        except StorageError as error:
            self._on_failure(path, str(error))
