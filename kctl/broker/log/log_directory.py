"""LogDirectory: one log directory of a broker, with its lock, its owner and its checkpoints.

The clean-shutdown marker states that no operation in the directory was interrupted. It is written
last when the broker stops, and removed durably before the first log is loaded: a crash at any later
time is an unclean shutdown (KAFKA-10471).

Kafka 2.7: kafka.log.LogManager, kafka.server.BrokerMetadataCheckpoint; KIP-112
"""

from collections.abc import Callable, Mapping

from kctl.errors import CorruptDataError, UsageError
from kctl.model import TopicPartition
from kctl.runtime.disk import Disk, DiskLock, make_durably
from kctl.runtime.trace import Trace
from kctl.storage.checkpoint import decode_offsets, offsets_encoding
from kctl.storage.layout import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)
from kctl.storage.meta_properties import MetaProperties, decode_meta_properties
from kctl.work import Work

Offsets = Mapping[TopicPartition, int]


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """Return the owner of directory `path`, or None if it has none yet.

    Raise CorruptDataError or StorageError.
    """
    file = f"{path}/{META_PROPERTIES}"
    return decode_meta_properties(disk.read_file(file), file) if disk.exists(file) else None


class LogDirectory:
    """One log directory, opened by `open` and held until `release`."""

    def __init__(self, disk: Disk, trace: Trace, path: str) -> None:
        self._disk = disk
        self._trace = trace
        self.path = path
        self._lock: DiskLock | None = None
        self.had_clean_shutdown = False
        # As found when it was opened.
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        # The logs are compacted up to these offsets.
        self.cleaned_offsets: dict[TopicPartition, int] = {}
        # Checkpoint name -> the bytes last passed on for writing.
        self._written: dict[str, bytes] = {}

    def open(self, broker_id: int, cluster_id: str, now_ms: int) -> None:
        """Create, lock and check the directory, read the checkpoints and remove the marker.

        Raise UsageError if it belongs to another broker or cluster, and StorageError if it is in
        use or unusable.
        """
        make_durably(self._disk, self.path)
        self._disk.list(self.path)
        self._lock = self._disk.lock(f"{self.path}/{LOCK_FILE}")
        try:
            self._claim(MetaProperties(broker_id, cluster_id), now_ms)
        except UsageError:
            self.release()
            raise
        self.recovery_points = self._read(RECOVERY_POINT_CHECKPOINT, "every log is recovered")
        self.log_start_offsets = self._read(
            LOG_START_OFFSET_CHECKPOINT, "logs start at their first segment"
        )
        self.high_watermarks = self._read(HIGH_WATERMARK_CHECKPOINT, "they are rebuilt")
        self.cleaned_offsets = self._read(
            CLEANER_OFFSET_CHECKPOINT, "logs are compacted from their start"
        )
        marker = f"{self.path}/{CLEAN_SHUTDOWN_FILE}"
        self.had_clean_shutdown = self._disk.exists(marker)
        if self.had_clean_shutdown:
            self._disk.remove(marker)
            self._disk.fsync_directory(self.path)

    @property
    def has_recovery_points(self) -> bool:
        """Return whether a recovery-point checkpoint was read or written."""
        return RECOVERY_POINT_CHECKPOINT in self._written

    def mentioned(self) -> set[TopicPartition]:
        """Return the partitions in the checkpoints that were found when it was opened."""
        return {
            *self.recovery_points,
            *self.log_start_offsets,
            *self.high_watermarks,
            *self.cleaned_offsets,
        }

    def _claim(self, ours: MetaProperties, now_ms: int) -> None:
        found = read_meta_properties(self._disk, self.path)
        if found is not None and found.cluster_id not in (None, ours.cluster_id):
            raise UsageError(
                f"{self.path} belongs to cluster {found.cluster_id}, but this broker is in cluster "
                f"{ours.cluster_id}",
                hint=f"use another directory, or remove {self.path}/{META_PROPERTIES} if you are "
                "sure",
            )
        if found is not None and found.broker_id != ours.broker_id:
            raise UsageError(
                f"{self.path} belongs to broker {found.broker_id}, but this is broker "
                f"{ours.broker_id}",
                hint=f"set broker.id={found.broker_id}, or use another directory",
            )
        if found != ours:
            self._disk.write_file(f"{self.path}/{META_PROPERTIES}", ours.encode(now_ms))

    def _read(self, name: str, otherwise: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        if not self._disk.exists(path):
            return {}
        try:
            data = self._disk.read_file(path)
            offsets = decode_offsets(data, path)
        except CorruptDataError as error:
            self._trace.warning(f"{error}; {otherwise}")
            return {}
        self._written[name] = data
        return offsets

    def checkpoint(self, offsets: Mapping[str, Offsets]) -> Work[Callable[[], None] | None]:
        """Return a job that writes the checkpoints (by name) that changed, or None if none did."""
        changed = {}
        for name, values in offsets.items():
            data = yield from offsets_encoding(values)
            if self._written.get(name) != data:
                changed[name] = self._written[name] = data
        if not changed:
            return None

        def write() -> None:
            for name, data in changed.items():
                self._disk.write_file(f"{self.path}/{name}", data)

        return write

    def mark_clean(self) -> None:
        """Write the marker after which the next start may trust all files."""
        self._disk.write_file(f"{self.path}/{CLEAN_SHUTDOWN_FILE}", b"")

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
