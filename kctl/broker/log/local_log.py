"""LocalLog: the segments in one directory, appended to at the end and readable anywhere.

It deals with offsets and bytes, not with producers, epochs or replicas. It rolls, truncates and
deletes segments; files to delete are renamed to `.deleted` and passed to `remove_files`.

Durability: a write reaches the operating system at once and is durable after a flush. A flush
fsyncs the segments from the recovery point on, the indexes of inactive ones, and the directory if
names changed. It is prepared here, may run elsewhere, and is completed here.

Invariants: the active segment is the last one and its base offset is at most `log_end_offset`;
`recovery_point` is at most `log_end_offset`, and everything below it is durable. Unlike in Kafka a
rise of the log start offset does not move it, because records below may still be unwritten.
Truncation below a recovery point that a checkpoint may contain is announced first, by a file in the
directory: otherwise the state after a crash during the truncation, or the next appends, would look
like corruption. Once a later checkpoint is on disk the announcement is withdrawn. The same holds
for the cleaned offset: records appended in place of cleaned records are dirty.

Kafka 2.7: kafka.log.Log; trunk's LocalLog
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_segment import LogSegment, SegmentOptions
from kctl.broker.log.log_segments import LogSegments
from kctl.broker.log.open_segments import OpenSegments
from kctl.lazy_dataclass import dataclass
from kctl.protocol.primitives import Buffer
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.runtime.disk import Disk, DiskFile
from kctl.runtime.entropy import Entropy
from kctl.storage.file_records import FileBatch
from kctl.storage.layout import SWAP_SUFFIX, TRUNCATION_SUFFIX, file_name
from kctl.storage.time_index import TimestampOffset

# More than any log has.
ALL_SEGMENTS: Final = 1 << 40
# Takes the paths of renamed files, and the delay in milliseconds before their removal.
RemoveFiles = Callable[[Sequence[str], int], object]


class LogOffsetMetadata(NamedTuple):
    """An offset and its position, so that a reader need not look it up."""

    offset: int
    segment_base_offset: int = -1
    relative_position: int = -1


@dataclass(slots=True)
class FlushJob:
    """Makes a log durable up to `offset`; `run` touches no state of the log."""

    disk: Disk
    offset: int
    # The active segment when the job was made: its indexes are not covered. None: the job ends with
    # an older segment, and more jobs are needed.
    active: LogSegment | None
    # The log's number of truncations; if it has changed since, the job has no effect.
    truncations: int
    # The .log files of segments; then indexes, snapshots and epochs.
    logs: list[DiskFile]
    others: list[DiskFile]
    # Directories whose names changed; the log's own one if there are `others`, which may be new.
    directories: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Fsync everything; a StorageError is final and must not be retried."""
        for file in self.logs:
            file.fsync()
        for file in self.others:
            file.fsync()
        for directory in self.directories:
            self.disk.fsync_directory(directory)


def segment_options(config: LogConfig) -> SegmentOptions:
    """Return the topic's configs that apply to segments."""
    return SegmentOptions(
        config.index_entry_bytes,
        config.segment_index_bytes,
        config.segment_bytes if config.preallocate else 0,
    )


class LocalLog:
    """One log's segments and offsets; the module docstring gives the invariants."""

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
        """Create a log from loaded segments.

        `is_durable`: names and indexes are on disk as loaded. `claimed`: the recovery point of the
        checkpoint, or its cleaned offset if that is higher. `announced`: truncations whose files
        were found. `cleaned_offset`: the offset in the cleaner's checkpoint.
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
        # Files, or the directory itself, are new since the last flush.
        self._names_changed = not is_durable
        self.truncations = 0
        self._announced = list(announced)
        # The highest recovery point or cleaned offset that a checkpoint may contain.
        self._claimed = claimed
        # The log is compacted up to this offset.
        self.cleaned_offset = min([cleaned_offset, log_end_offset, *announced])
        self._is_closed = False
        self._flushes_under_way: list[FlushJob] = []

    # --- append ------------------------------------------------------------------------------

    def segment_for(
        self, length: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> LogSegment | None:
        """Return the active segment if these records fit into it, or None if the log must roll
        first."""
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
        """Append to the active segment; return the position of the first byte."""
        position = segment.append(
            parts, length, last_offset, max_timestamp, offset_of_max_timestamp
        )
        self.log_end_offset = last_offset + 1
        return position

    def roll(self, now_ms: int, expected_offset: int = 0) -> LogSegment:
        """Start a new segment at the log's end, or at `expected_offset` if that is larger."""
        active = self.segments.active
        base_offset = max(expected_offset, self.log_end_offset)
        if active.base_offset == base_offset and not active.size:
            return active
        active.become_inactive()
        # Recovery must examine the old segment until its indexes are durable, too.
        self.recovery_point = min(self.recovery_point, self.log_end_offset - 1)
        segment = self._new_segment(base_offset, now_ms)
        self.segments.add(segment)
        # An inactive segment is rarely read at its tail.
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
        """Return where the batch that holds `offset` begins; for larger offsets the end of the
        log."""
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

    @property
    def unflushed_segments(self) -> int:
        """Return the number of segments that a flush looks at."""
        return len(self.segments.since(self.recovery_point))

    def flush_end(self, segments_max: int) -> int:
        """Return the end offset of a flush of at most `segments_max` segments."""
        suspects = self.segments.since(self.recovery_point)
        if len(suspects) <= segments_max:
            return self.log_end_offset
        return suspects[segments_max].base_offset

    def prepare_flush(
        self, others: list[DiskFile], end: int, *, is_closing: bool = False
    ) -> FlushJob:
        """Return a job that makes everything below `end` durable, with saved indexes and open
        files.

        `end` is the log end offset or the start of a segment. `others` are further files of the
        log.
        """
        segments = self.segments
        is_whole = end == self.log_end_offset
        logs: list[DiskFile] = []
        if self.log_end_offset > self.recovery_point:
            for segment in segments.since(self.recovery_point):
                if segment.base_offset >= end and not is_whole:
                    break
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
            # An earlier job may still be queued when this one completes.
            others += earlier.others
            directories += [it for it in earlier.directories if it not in directories]
        job = FlushJob(
            self._disk, end, segments.active if is_whole else None, self.truncations, logs,
            others, directories,
        )  # fmt: skip
        self._flushes_under_way.append(job)
        return job

    @property
    def oldest_recovery_start(self) -> int:
        """Return the first offset of the oldest segment that a recovery may begin with."""
        segments = self.segments
        before_active = segments.lower(segments.active.base_offset) or segments.active
        before_recovery = segments.lower(self.recovery_point)
        needed = [it.base_offset for it in (before_active, before_recovery) if it is not None]
        return min(needed)

    def claim_recovery_point(self) -> int:
        """Return the recovery point for a checkpoint.

        It lies inside the last segment whose records are durable, so that recovery examines that
        segment, whose indexes are not, even if it is rolled next.
        """
        point, active = self.recovery_point, self.segments.active
        if point == self.log_end_offset and active.size and not self._is_closed:
            point = max(point - 1, active.base_offset)
        self._claimed = max(self._claimed, point)
        return point

    @property
    def claimed(self) -> int:
        """Return the highest offset that a checkpoint may contain."""
        return self._claimed

    def claim_cleaned_offset(self) -> int:
        """Return the cleaned offset for the cleaner's checkpoint."""
        self._claimed = max(self._claimed, self.cleaned_offset)
        return self.cleaned_offset

    def complete_flush(self, job: FlushJob) -> None:
        """Record that what the job covered is durable, unless the log was truncated meanwhile."""
        self._flushes_under_way.remove(job)
        offset = job.offset
        if job.active is not None and job.active is not self.segments.active:
            # Rolled meanwhile: recovery must examine the old segment until its indexes are durable,
            # too.
            offset -= 1
        if job.truncations == self.truncations and offset > self.recovery_point:
            self.recovery_point = offset

    # --- truncation and deletion -------------------------------------------------------------

    def truncate_to(
        self, offset: int, now_ms: int, max_timestamp: TimestampOffset | None = None
    ) -> None:
        """Remove all records from `offset` on, durably; `offset` is not below the first segment.
        `max_timestamp` is the largest that remains in the last segment, if it is known."""
        # Truncation in the middle of a batch removes the whole batch.
        first_gone = self.end_before(offset)
        # As in a checkpoint: segments whose indexes may still change are not skipped.
        holder = self.segments.floor(first_gone)
        base_offset = holder.base_offset if holder is not None else 0
        self._announce_truncation(max(base_offset, first_gone - 1))
        gone = [segment for segment in self.segments.all if segment.base_offset > offset]
        self.segments.remove(gone)
        self._delete(gone)
        self.segments.active.truncate_to(offset, now_ms, max_timestamp)
        self._truncated(offset)
        self.recovery_point = min(self.recovery_point, first_gone)
        self.cleaned_offset = min(self.cleaned_offset, first_gone)

    def batch_start(self, offset: int) -> int:
        """Return `offset`, or the start of the batch that it lies inside."""
        holder = self.segments.floor(offset)
        if holder is None:
            return offset
        start = holder.offset_index.lookup(offset).position
        for header in holder.records.headers(start):
            if header.last_offset >= offset:
                return self._batch_start(holder, header, offset)
        return offset

    def _batch_start(self, holder: LogSegment, header: FileBatch, offset: int) -> int:
        if header.magic == CURRENT_MAGIC:
            return min(header.base_offset, offset)
        lowest = self.end_before(offset)
        # Most truncations are between batches, where no wrapper has to be decompressed.
        if lowest == offset:
            return offset
        # A follower's first wrapper may begin before its segment.
        first = max(lowest, holder.records.first_offset(header, lowest))
        return min(first, offset)

    def end_before(self, offset: int) -> int:
        """Return the end of the last batch that lies below `offset`.

        In a compacted log, offsets between that end and the next batch may be missing, and recovery
        only sees where batches end.
        """
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
        """Delete all records; the next one gets `offset`."""
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
        """Record durably that recovery point and log start are at most `offset`, whatever the
        checkpoints contain."""
        self._disk.open(self._announcement(offset), create=True).close()
        self._disk.fsync_directory(self.directory)
        self._announced.append(offset)

    @property
    def announced(self) -> Sequence[int]:
        """Return the offsets that files announce, which the next checkpoint contains."""
        return self._announced

    def withdraw(self) -> None:
        """Remove the announcements, because a checkpoint made after the last truncation is on
        disk."""
        for offset in self._announced:
            self._disk.remove(self._announcement(offset))
        self._announced.clear()

    def _announcement(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, TRUNCATION_SUFFIX)}"

    def _truncated(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.cleaned_offset = min(self.cleaned_offset, offset)
        # Segments that reappeared after a power loss would contradict later appends.
        self._disk.fsync_directory(self.directory)

    def delete_segments(self, gone: Sequence[LogSegment]) -> None:
        """Delete segments; at least one remains."""
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
        """Replace `sources` with a `.cleaned` segment, closed and durable, in one step.

        Once it has the `.swap` name, the next start would complete this; so nothing else may happen
        to the log before it is done.
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
        """Return a segment of the log for the files of `cleaned`."""
        return LogSegment(
            self._disk, self._open_segments, self.directory, cleaned.base_offset,
            segment_options(self.config), size=cleaned.size, now_ms=now_ms,
            has_transaction_index=not cleaned.transaction_index.is_empty(),
        )  # fmt: skip

    def complete_indexes(self) -> None:
        """Add the final time index entry of the active segment."""
        self.segments.active.become_inactive()

    def close(self) -> None:
        """Save the indexes and close all files; the caller has completed and made them durable."""
        self._is_closed = True
        for segment in self.segments.all:
            segment.close()

    def abandon(self) -> None:
        """Close the files without writing, because the directory failed or is deleted."""
        for segment in self.segments.all:
            segment.abandon()


__all__ = ["FlushJob", "LocalLog", "LogOffsetMetadata", "segment_options"]
