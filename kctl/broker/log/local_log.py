"""LocalLog: segments in one directory, appended to at the end, read anywhere.

Knows offsets and bytes, and nothing of producers, epochs or replicas. It rolls, truncates and
drops segments; files on their way out are renamed to `.deleted` and handed to `remove_files`.

Durability: a write is in the system's hands at once and durable after a flush. A flush fsyncs the
segments from the recovery point on, the indexes of those no longer active, and the directory if
names changed; it is prepared here, may run elsewhere, and is completed here.

Invariants: the active segment is the last one and its base offset is at most `log_end_offset`;
`recovery_point` is at most `log_end_offset`, and all below it is durable: a rise of the log start
offset does not move it, as Kafka's does, for what lies below may still be unwritten on the disk.

Truncation below a recovery point that a checkpoint may say is announced before it is done, by a
file in the directory: otherwise what a crash leaves of the truncation, or of the next appends,
would look like rot. Once a later checkpoint is on the disk the announcement is withdrawn. The
same holds for the cleaned offset: what is appended in the place of cleaned records is dirty.

Kafka 2.7: kafka.log.Log; trunk's LocalLog
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_segment import RELATIVE_OFFSET_MAX, LogSegment, SegmentOptions
from kctl.broker.log.log_segments import LogSegments
from kctl.broker.log.open_segments import OpenSegments
from kctl.runtime.disk import Buffer, Disk, DiskFile
from kctl.runtime.entropy import Entropy
from kctl.storage.layout import SWAP_SUFFIX, TRUNCATION_SUFFIX, file_name

# Takes the paths of renamed files, and after how many milliseconds they may be removed.
RemoveFiles = Callable[[Sequence[str], int], object]


class LogOffsetMetadata(NamedTuple):
    """An offset and where it is, so that a reader need not look it up."""

    offset: int
    segment_base_offset: int = -1
    relative_position: int = -1


@dataclass(slots=True)
class FlushJob:
    """What makes a log durable up to `offset`; `run` touches no state of the log."""

    disk: Disk
    offset: int
    # The active segment when the job was made: its indexes are not covered.
    active: LogSegment
    # How often the log was truncated before; another count makes the job worthless.
    truncations: int
    # Segments' .log files; indexes, snapshots and epochs.
    logs: list[DiskFile]
    others: list[DiskFile]
    # Those whose names changed; the log's own one if there are `others`, which may be new.
    directories: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Fsync everything; StorageError is final, never to be retried."""
        for file in self.logs:
            file.fsync()
        for file in self.others:
            file.fsync()
        for directory in self.directories:
            self.disk.fsync_directory(directory)


def segment_options(config: LogConfig) -> SegmentOptions:
    """What a topic's settings say about its segments."""
    return SegmentOptions(
        config.index_interval_bytes,
        config.segment_index_bytes,
        config.segment_bytes if config.preallocate else 0,
    )


class LocalLog:
    """See the module."""

    __slots__ = (
        "_announced", "_claimed", "_disk", "_entropy", "_flushes_under_way", "_is_closed",
        "_names_changed", "_open_segments", "_remove_files", "cleaned_offset", "config",
        "directory",
        "log_end_offset", "recovery_point", "segments", "truncations",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        entropy: Entropy,
        open_segments: OpenSegments,
        directory: str,
        config: LogConfig,
        segments: LogSegments,
        *,
        log_end_offset: int,
        recovery_point: int,
        remove_files: RemoveFiles,
        is_durable: bool,
        claimed: int = 0,
        announced: Sequence[int] = (),
        cleaned_offset: int = 0,
    ) -> None:
        """`is_durable`: names and indexes are on the disk as they were loaded. `claimed`: the
        recovery point of the checkpoint, or its cleaned offset if that is higher; `announced`:
        truncations whose files were found; `cleaned_offset`: what the cleaner's checkpoint says.
        """
        self._disk = disk
        self._entropy = entropy
        self._open_segments = open_segments
        self._remove_files = remove_files
        self.directory = directory
        self.config = config
        self.segments = segments
        self.log_end_offset = log_end_offset
        self.recovery_point = min(recovery_point, log_end_offset)
        # Files or the directory itself are new since the last flush.
        self._names_changed = not is_durable
        self.truncations = 0
        self._announced = list(announced)
        # The highest recovery point or cleaned offset that a checkpoint may say.
        self._claimed = claimed
        # Up to here the cleaner has been.
        self.cleaned_offset = min([cleaned_offset, log_end_offset, *announced])
        self._is_closed = False
        self._flushes_under_way: list[FlushJob] = []

    # --- append ------------------------------------------------------------------------------

    def segment_for(
        self, length: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> LogSegment | None:
        """The active segment if these records fit into it; None: roll first."""
        config = self.config
        active = self.segments.active
        if active.should_roll(
            length, last_offset, max_timestamp, now_ms, config.segment_bytes, config.segment_ms_max
        ):
            return None
        return active

    def append(
        self,
        segment: LogSegment,
        parts: Sequence[Buffer],
        length: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> int:
        """Append to the active segment; the position of the first byte."""
        position = segment.append(
            parts, length, last_offset, max_timestamp, offset_of_max_timestamp
        )
        self.log_end_offset = last_offset + 1
        return position

    def roll(self, now_ms: int, expected_offset: int = 0) -> LogSegment:
        """Begin a new segment at the log's end, or at `expected_offset` if that is beyond."""
        active = self.segments.active
        base_offset = max(expected_offset, self.log_end_offset)
        if active.base_offset == base_offset and not active.size:
            return active
        active.become_inactive()
        # Recovery must look at the old segment until its indexes are durable, too.
        self.recovery_point = min(self.recovery_point, self.log_end_offset - 1)
        segment = self._new_segment(base_offset, now_ms)
        self.segments.add(segment)
        # An inactive segment at the tail of memory is read less and less.
        active.forget_tail()
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        config = self.config
        jitter_max = min(config.segment_jitter_ms, config.segment_ms_max)
        self._names_changed = True
        return LogSegment.create(
            self._disk,
            self._open_segments,
            self.directory,
            base_offset,
            segment_options(config),
            now_ms=now_ms,
            roll_jitter_ms=self._entropy.random_below(jitter_max) if jitter_max else 0,
        )

    # --- where offsets are -------------------------------------------------------------------

    def locate(self, offset: int) -> LogOffsetMetadata:
        """Where the batch that holds `offset` begins; the end of the log for offsets beyond."""
        segments = self.segments
        active = segments.active
        if offset >= self.log_end_offset:
            return LogOffsetMetadata(offset, active.base_offset, active.size)
        for segment in segments.since(offset):
            found = segment.find(offset)
            if found is not None:
                return LogOffsetMetadata(offset, segment.base_offset, found[0])
        return LogOffsetMetadata(offset, active.base_offset, active.size)

    # --- flush -------------------------------------------------------------------------------

    def prepare_flush(self, others: list[DiskFile], *, is_closing: bool = False) -> FlushJob:
        """What is to be made durable now, with saved indexes and open files; `others` belong to
        the log, too."""
        segments = self.segments
        logs: list[DiskFile] = []
        if self.log_end_offset > self.recovery_point:
            for segment in segments.since(self.recovery_point):
                logs.append(segment.records.file)
                if is_closing or segment is not segments.active:
                    others += segment.index_files_to_flush()
        elif is_closing:
            others += segments.active.index_files_to_flush()
        directories = []
        if self._names_changed:
            directories = [self.directory, self.directory.rpartition("/")[0] or "."]
            self._names_changed = False
        elif others:
            directories.append(self.directory)
        for earlier in self._flushes_under_way:
            # It may still wait for its turn when this one is done.
            others += earlier.others
            directories += [it for it in earlier.directories if it not in directories]
        job = FlushJob(
            self._disk, self.log_end_offset, segments.active, self.truncations, logs, others,
            directories,
        )  # fmt: skip
        self._flushes_under_way.append(job)
        return job

    def claim_recovery_point(self) -> int:
        """What a checkpoint is to say: a point inside the segment up to whose end all is durable
        but the indexes, so that recovery looks at that segment even if it is rolled next."""
        point, active = self.recovery_point, self.segments.active
        if point == self.log_end_offset and active.size and not self._is_closed:
            point = max(point - 1, active.base_offset)
        self._claimed = max(self._claimed, point)
        return point

    @property
    def claimed(self) -> int:
        """The highest offset that a checkpoint may say."""
        return self._claimed

    def claim_cleaned_offset(self) -> int:
        """What the cleaner's checkpoint is to say."""
        self._claimed = max(self._claimed, self.cleaned_offset)
        return self.cleaned_offset

    def complete_flush(self, job: FlushJob) -> None:
        """The job ran: what it covered is durable, unless the log was cut meanwhile."""
        self._flushes_under_way.remove(job)
        offset = job.offset
        if job.active is not self.segments.active:
            # Rolled meanwhile: recovery must look at the old segment until its indexes are
            # durable, too.
            offset -= 1
        if job.truncations == self.truncations and offset > self.recovery_point:
            self.recovery_point = offset

    # --- truncation and deletion -------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cut off all records from `offset` on, durably; it is at or above the first segment."""
        # Truncation in the middle of a batch takes the whole batch.
        first_gone = self.end_before(offset)
        # Like a checkpoint, it leaves no segment out whose indexes may change yet.
        holder = self.segments.floor(first_gone)
        base_offset = holder.base_offset if holder is not None else 0
        self._announce_truncation(max(base_offset, first_gone - 1))
        gone = [segment for segment in self.segments.all if segment.base_offset > offset]
        self.segments.remove(gone)
        self._delete(gone)
        self.segments.active.truncate_to(offset, now_ms)
        self._truncated(offset)
        self.recovery_point = min(self.recovery_point, first_gone)
        self.cleaned_offset = min(self.cleaned_offset, first_gone)

    def batch_start(self, offset: int) -> int:
        """`offset`, or where the batch begins that it lies inside."""
        holder = self.segments.floor(offset)
        if holder is None:
            return offset
        start = holder.offset_index.lookup(offset).position
        for header in holder.records.headers(start):
            if header.last_offset >= offset:
                return min(header.base_offset, offset)
        return offset

    def end_before(self, offset: int) -> int:
        """Where the last batch ends that lies below `offset`: in a compacted log offsets may be
        missing between that and the next, and recovery sees no more than where batches end."""
        holder = self.segments.floor(offset)
        if holder is None:
            return offset
        end = holder.base_offset
        start = holder.offset_index.lookup(offset - 1).position if offset > end else 0
        for header in holder.records.headers(start):
            if header.last_offset >= offset:
                break
            end = header.last_offset + 1
        return end

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop all records; the next one gets `offset`."""
        self._announce_truncation(offset)
        gone = self.segments.all
        self._delete(gone)
        segment = self._new_segment(offset, now_ms)
        self.segments = LogSegments([segment])
        self._truncated(offset)

    def _announce_truncation(self, recovery_point: int) -> None:
        self.truncations += 1
        if recovery_point < self._claimed:
            self.announce(recovery_point)

    def announce(self, offset: int) -> None:
        """Say durably that neither recovery point nor log start are beyond `offset`, whatever the
        checkpoints say."""
        self._disk.open(self._announcement(offset), create=True).close()
        self._disk.fsync_directory(self.directory)
        self._announced.append(offset)

    @property
    def has_announced(self) -> bool:
        """Whether the next checkpoint says what a file had to say."""
        return bool(self._announced)

    def withdraw(self) -> None:
        """A checkpoint made after the last truncation is on the disk."""
        for offset in self._announced:
            self._disk.remove(self._announcement(offset))
        self._announced.clear()

    def _announcement(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, TRUNCATION_SUFFIX)}"

    def _truncated(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.cleaned_offset = min(self.cleaned_offset, offset)
        # Segments that came back after a power loss would contradict what is appended now.
        self._disk.fsync_directory(self.directory)

    def delete_segments(self, gone: Sequence[LogSegment]) -> None:
        """Drop segments; at least one stays."""
        self.segments.remove(gone)
        self._delete(gone)

    def _delete(self, gone: Sequence[LogSegment]) -> None:
        paths = [path for segment in gone for path in segment.mark_deleted()]
        if paths:
            self._remove_files(paths, self.config.file_delete_delay_ms)
            self._names_changed = True

    def replace_segments(
        self, cleaned: LogSegment, sources: Sequence[LogSegment], now_ms: int
    ) -> None:
        """Put a `.cleaned` segment, closed and durable, in the place of `sources`, at once.

        From the `.swap` name on a start would complete this; so nothing else may happen to the
        log before all is done.
        """
        cleaned.rename_suffix(SWAP_SUFFIX)
        self._disk.fsync_directory(self.directory)
        paths = [path for segment in sources for path in segment.mark_deleted()]
        self._disk.fsync_directory(self.directory)
        cleaned.rename_suffix("")
        self.segments.replace(sources, self._open_segment_of(cleaned, now_ms))
        self._remove_files(paths, self.config.file_delete_delay_ms)
        self._names_changed = True

    def _open_segment_of(self, cleaned: LogSegment, now_ms: int) -> LogSegment:
        """The same files, among the log's open ones."""
        return LogSegment(
            self._disk, self._open_segments, self.directory, cleaned.base_offset,
            segment_options(self.config), size=cleaned.size, now_ms=now_ms,
            has_transaction_index=bool(cleaned.transaction_index.entries()),
        )  # fmt: skip

    def complete_indexes(self) -> None:
        """Add the time index entry that ends a segment."""
        self.segments.active.become_inactive()

    def close(self) -> None:
        """Save the indexes and close all files; the caller has made them durable."""
        self._is_closed = True
        for segment in self.segments.all:
            segment.close()

    def abandon(self) -> None:
        """Forget the open files without writing anything: the directory failed or goes away."""
        for segment in self.segments.all:
            segment.abandon()


__all__ = ["RELATIVE_OFFSET_MAX", "FlushJob", "LocalLog", "LogOffsetMetadata", "segment_options"]
