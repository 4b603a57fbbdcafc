"""LogSegment: the records from one base offset on, with their indexes.

A segment has a .log file that only grows (except for truncation), an offset index and a time index
with an entry about every `index.interval.bytes`, and a transaction index if transactions were
aborted in it. The file is open only while it is used (`OpenSegments`); an index is in memory only
after a look-up or an append.

The positions of the last appends are remembered (the tail), so that a consumer that keeps up is
served without reading index or file. Anything but an append of v2 batches clears the tail.

Invariants: `size` is the position of the next batch; an index entry has the last offset of an
append and the append's first position; timestamps in the time index never decrease.

Kafka 2.7: kafka.log.LogSegment
"""

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kctl.broker.log.open_segments import OpenSegments
from kctl.errors import CorruptDataError, StorageError
from kctl.protocol.primitives import Buffer
from kctl.records.record_batch import NO_TIMESTAMP
from kctl.records.record_stream import timestamp_steps
from kctl.runtime.disk import Disk, DiskFile, FileSlice
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from kctl.storage.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from kctl.storage.time_index import TimeIndex, TimestampOffset
from kctl.storage.transaction_index import TransactionIndex
from kctl.work import Claim, ClaimingWork, Work, at_once

# Batch headers that a search reads in one step.
HEADERS_PER_STEP: Final = 1_000
# Minimum number of batches remembered in the tail; the maximum is twice that.
TAIL_BATCHES: Final = 512
_UNKNOWN: Final = -2


class SegmentOptions(NamedTuple):
    """The topic's configs that are fixed when a segment is created or opened."""

    index_interval_bytes: int
    index_bytes_max: int
    # Bytes to reserve for a new .log; 0: none.
    preallocated_bytes: int = 0


class FoundRecords(NamedTuple):
    """The result of a read."""

    position: int
    records: FileSlice
    is_first_entry_incomplete: bool


class LogSegment:
    """One segment. Not thread-safe: it belongs to its log."""

    __slots__ = (
        "_bytes_since_index_entry", "_directory", "_disk", "_index_interval_bytes",
        "_max_timestamp", "_may_lack_indexes", "_offset_of_max_timestamp", "_open_segments",
        "_records", "_suffix", "_tail_lasts", "_tail_positions", "_tail_start", "base_offset",
        "created_ms", "is_index_full", "is_recently_used", "offset_index", "roll_jitter_ms",
        "rolling_timestamp", "size", "time_index", "transaction_index",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        open_segments: OpenSegments,
        directory: str,
        base_offset: int,
        options: SegmentOptions,
        *,
        size: int,
        now_ms: int,
        suffix: str = "",
        roll_jitter_ms: int = 0,
        stored_index_bytes: int | None = None,
        has_transaction_index: bool = True,
    ) -> None:
        """Open a segment whose files exist; `create` makes a new one. All files have `suffix`."""
        self._disk = disk
        self._open_segments = open_segments
        self._directory = directory
        self._suffix = suffix
        self.base_offset = base_offset
        self.size = size
        self.created_ms = now_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.is_recently_used = False
        self._index_interval_bytes = options.index_interval_bytes
        self._bytes_since_index_entry = 0
        self._records: FileRecords | None = None
        self.offset_index = OffsetIndex(
            disk, self.path(INDEX_SUFFIX), base_offset,
            bytes_max=options.index_bytes_max, stored_bytes=stored_index_bytes,
        )  # fmt: skip
        self.time_index = TimeIndex(
            disk, self.path(TIME_INDEX_SUFFIX), base_offset,
            bytes_max=options.index_bytes_max, stored_bytes=stored_index_bytes,
        )  # fmt: skip
        self.transaction_index = TransactionIndex(
            disk, self.path(TXN_INDEX_SUFFIX), base_offset, exists=has_transaction_index
        )
        # Created by this process, and perhaps without entries to save.
        self._may_lack_indexes = False
        # Whether the next append needs another segment; None: not checked yet.
        self.is_index_full: bool | None = None
        # Largest timestamp of the first append, from which `segment.ms` counts; -1: none.
        self.rolling_timestamp = _UNKNOWN if size else NO_TIMESTAMP
        self._max_timestamp = _UNKNOWN if size else NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        # Last offset and position of the last batches; base offset of the first of them.
        self._tail_lasts: list[int] = []
        self._tail_positions: list[int] = []
        self._tail_start = 0

    @classmethod
    def create(
        cls,
        disk: Disk,
        open_segments: OpenSegments,
        directory: str,
        base_offset: int,
        options: SegmentOptions,
        *,
        now_ms: int,
        suffix: str = "",
        roll_jitter_ms: int = 0,
        is_directory_new: bool = False,
    ) -> "LogSegment":
        """Create an empty segment; existing files of its names are emptied, for which the disk is
        not asked if `is_directory_new`.

        Only the .log is created here, because creating files is the most expensive part. The index
        files are created with their first entries, by `close`, or by the caller from `index_paths`.
        """
        segment = cls(
            disk, open_segments, directory, base_offset, options,
            size=0, now_ms=now_ms, suffix=suffix, roll_jitter_ms=roll_jitter_ms,
            stored_index_bytes=0, has_transaction_index=False,
        )  # fmt: skip
        file = disk.open(segment.path(LOG_SUFFIX), create=True)
        if file.size() != options.preallocated_bytes:
            file.truncate(0)
            file.truncate(options.preallocated_bytes)
        segment._adopt(FileRecords(file, 0))
        segment._may_lack_indexes = True
        if not is_directory_new:
            for index in (segment.offset_index, segment.time_index, segment.transaction_index):
                if disk.exists(index.path):
                    index.reset()
        return segment

    @property
    def index_paths(self) -> tuple[str, str]:
        """Return the files that every segment has beside its .log, even if empty."""
        return self.offset_index.path, self.time_index.path

    def path(self, kind: str) -> str:
        """Return the path of the file of one kind, e.g. LOG_SUFFIX."""
        return f"{self._directory}/{file_name(self.base_offset, kind)}{self._suffix}"

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of all its files, whether they exist or not."""
        kinds = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        return tuple(self.path(kind) for kind in kinds)

    # --- the open file -----------------------------------------------------------------------

    @property
    def records(self) -> FileRecords:
        """Return the .log, opened if necessary."""
        self.is_recently_used = True
        records = self._records
        if records is None:
            file = self._disk.open(self.path(LOG_SUFFIX))
            records = FileRecords(file, self.size)
            self._adopt(records)
        return records

    def _adopt(self, records: FileRecords) -> None:
        self._records = records
        self.is_recently_used = True
        self._open_segments.opened(self)

    def release(self) -> None:
        """Close the file and drop the cached indexes; slices in use stay readable.

        An index that cannot be saved stays in memory. The caller opens a file of some other log, so
        the error is left to this log's next flush, which is answered for this log's directory.
        """
        self._close_file()
        for index in (self.offset_index, self.time_index):
            with suppress(StorageError):
                index.release()

    def _close_file(self) -> None:
        if self._records is not None:
            self._records.close()
            self._records = None

    # --- append ------------------------------------------------------------------------------

    def append(
        self,
        parts: Sequence[Buffer],
        length: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> int:
        """Append whole batches of `length` bytes in one write; return the position of the first.

        The caller has checked that they belong here; `remember` makes look-ups faster.
        """
        records = self._records
        if records is None:
            records = self.records
        self.is_recently_used = True
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        position = self.size
        records.append(parts, length)
        self.size = position + length
        if position == 0:
            self.rolling_timestamp = max_timestamp
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = offset_of_max_timestamp
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._add_index_entry(last_offset, position)
        self._bytes_since_index_entry += length
        return position

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)
        self._bytes_since_index_entry = 0
        self._look_at_indexes()

    def _look_at_indexes(self) -> bool:
        # Loading the entries excludes padding after them.
        self.offset_index.raw()
        self.time_index.raw()
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full
        return self.is_index_full

    def remember(self, first_offset: int, last_offset: int, position: int) -> None:
        """Remember a batch that was just appended; batches come in order, without gaps in the
        file."""
        lasts = self._tail_lasts
        if not lasts:
            self._tail_start = first_offset
        lasts.append(last_offset)
        self._tail_positions.append(position)
        if len(lasts) > 2 * TAIL_BATCHES:
            self._tail_start = lasts[TAIL_BATCHES - 1] + 1
            del lasts[:TAIL_BATCHES]
            del self._tail_positions[:TAIL_BATCHES]

    def forget_tail(self) -> None:
        """Clear the remembered batches, because the following ones are not remembered."""
        self._tail_lasts.clear()
        self._tail_positions.clear()

    def should_roll(
        self,
        length: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        segment_bytes: int,
        segment_ms: int,
    ) -> bool:
        """Return whether these records belong into a new segment."""
        size = self.size
        if size > segment_bytes - length or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not size:
            return False
        first = self.first_timestamp
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        is_full = self.is_index_full
        if is_full is None:
            is_full = self._look_at_indexes()
        return is_full or waited > segment_ms - self.roll_jitter_ms

    def become_inactive(self) -> None:
        """Complete the time index, because another segment becomes active."""
        self._close_time_index()
        if self._records is not None and self._records.file.size() > self.size:
            # Release reserved space that was not used.
            self._records.file.truncate(self.size)

    def _close_time_index(self) -> None:
        if self._max_timestamp != _UNKNOWN:
            self.time_index.maybe_append(self._max_timestamp, self._offset_of_max_timestamp)

    # --- read --------------------------------------------------------------------------------

    def find(self, offset: int, position: int = 0) -> tuple[int, int] | None:
        """Return (position, size) of the first batch whose last offset is at or above `offset`, or
        None."""
        lasts = self._tail_lasts
        if lasts and offset >= self._tail_start:
            slot = bisect_left(lasts, offset)
            if slot == len(lasts):
                return None
            positions = self._tail_positions
            start = positions[slot]
            end = positions[slot + 1] if slot + 1 < len(positions) else self.size
            return start, end - start
        start = max(self.offset_index.lookup(offset).position, position)
        return self.records.search_for_offset(offset, start)

    def read(
        self, start_offset: int, max_bytes: int, max_position: int, *, min_one_message: bool
    ) -> FoundRecords | None:
        """Return records from the batch that holds `start_offset` on, up to `max_position`.

        Return None if all records of the segment are older.
        """
        found = self.find(start_offset)
        if found is None:
            return None
        position, size = found
        limit = max(max_bytes, size) if min_one_message else max_bytes
        length = min(max_position - position, limit)
        # A read of zero bytes does not count as incomplete.
        is_incomplete = 0 < limit < size
        return FoundRecords(position, self.records.slice(position, length), is_incomplete)

    def upper_bound_offset(self, position: int, length: int) -> int | None:
        """Return an offset at or beyond the end of the `length` bytes at `position`, or None if
        only the segment's end is known."""
        return self.offset_index.upper_bound_offset(position + length)

    def read_next_offset(self) -> int:
        """Return the offset after the last record; raise CorruptDataError if the file does not end
        with a whole batch."""
        next_offset, position = self.base_offset, 0
        if self.size:
            position = self.offset_index.last().position
            if position >= self.size:
                raise CorruptDataError(f"{self.offset_index.path} points beyond the end of the log")
            for batch in self.records.headers(position):
                next_offset, position = batch.last_offset + 1, batch.end
        if position != self.size:
            raise CorruptDataError(
                f"{self.path(LOG_SUFFIX)}: no whole batch at position {position}"
            )
        return next_offset

    # --- timestamps --------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """Return the largest timestamp, or -1."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """Return the time used by retention: the largest timestamp, else the file's modification
        time."""
        if self.max_timestamp >= 0:
            return self._max_timestamp
        return self.modified_ms

    @property
    def modified_ms(self) -> int:
        """Return the modification time of the .log file."""
        return self._disk.modified_ms(self.path(LOG_SUFFIX))

    def set_max_timestamp(self, timestamp: int, offset: int) -> None:
        """Set the largest timestamp that a search found."""
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    def _load_max_timestamp(self) -> None:
        self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last()

    def max_timestamp_before(self, end_offset: int) -> Work[TimestampOffset]:
        """Return the largest timestamp of the batches below `end_offset`, from the last index entry
        and the batches after it, in steps."""
        latest = self.time_index.last_below(end_offset)
        position = self.offset_index.lookup(latest.offset).position
        # The file may be closed or removed between two steps; an open one stays readable.
        records = self.records
        for number, batch in enumerate(records.headers(position), 1):
            if batch.last_offset >= end_offset:
                break
            if batch.max_timestamp > latest.timestamp:
                latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            if number % HEADERS_PER_STEP == 0:
                yield
        return latest

    @property
    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, or -1."""
        first = self.rolling_timestamp
        return first if first != _UNKNOWN else self._load_rolling_timestamp()

    def _load_rolling_timestamp(self) -> int:
        first = self.records.header_at(0)
        self.rolling_timestamp = first.max_timestamp if first is not None else NO_TIMESTAMP
        return self.rolling_timestamp

    def find_by_timestamp(
        self, timestamp: int, start_offset: int
    ) -> ClaimingWork[tuple[int, int, int] | None]:
        """Return (timestamp, offset, leader epoch) of the first record at or above `start_offset`
        whose timestamp is at least `timestamp`, or None; in steps of bounded work."""
        indexed = self.time_index.lookup(timestamp)
        position = self.offset_index.lookup(max(indexed.offset, start_offset)).position
        # The file may be closed or removed between two steps; an open one stays readable.
        records = self.records
        for number, header in enumerate(records.headers(position), 1):
            if number % HEADERS_PER_STEP == 0:
                yield None
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for step in timestamp_steps(records.batch(header)):
                if isinstance(step, Claim):
                    yield step
                    continue
                for offset, found in step:
                    if found >= timestamp and offset >= start_offset:
                        return found, offset, header.partition_leader_epoch
                yield None
        return None

    # --- changes of the files ----------------------------------------------------------------

    def truncate_to(
        self, offset: int, now_ms: int, max_timestamp: TimestampOffset | None = None
    ) -> None:
        """Remove the batch that holds `offset` and everything after it, durably. `max_timestamp` is
        the result of `max_timestamp_before(offset)`."""
        if max_timestamp is None:
            max_timestamp = at_once(self.max_timestamp_before(offset))
        found = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.forget_tail()
        if found is not None:
            self.cut(found[0])
            self.records.flush()
        for file in self.index_files_to_flush():
            file.fsync()
        if not self.size:
            self.created_ms = now_ms
            self.rolling_timestamp = NO_TIMESTAMP
        self._bytes_since_index_entry = 0
        self.is_index_full = None
        self.set_max_timestamp(*max_timestamp)

    def cut(self, size: int) -> int:
        """Truncate the .log, but not the indexes, to `size` bytes; return how many bytes were
        removed."""
        removed = self.records.truncate_to(size)
        self.size = size
        return removed

    def index_files_to_flush(self) -> list[DiskFile]:
        """Save the indexes; return the open files whose fsync makes them durable."""
        files = []
        for index in (self.offset_index, self.time_index):
            index.save()
            if self._may_lack_indexes:
                index.create()
            if not index.is_durable:
                files.append(index.durable_file())
        self._may_lack_indexes = False
        if self.transaction_index.is_changed:
            files.append(self.transaction_index.durable_file())
        return files

    def moved_to(self, directory: str) -> None:
        """Note that the directory of this closed segment has a new name."""
        self._directory = directory
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.renamed(f"{directory}/{index.path.rpartition('/')[2]}")

    def close(self) -> None:
        """Save the indexes and close the file; `become_inactive` has completed them. Raise
        StorageError."""
        self._close_file()
        self._open_segments.closed(self)
        self.offset_index.release()
        self.time_index.release()

    def abandon(self) -> None:
        """Close the file without writing."""
        if self._records is not None:
            self._records = None
            self._open_segments.closed(self)

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`; return their new paths, for later removal."""
        self.abandon()
        renamed = []
        for path in self.paths:
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        return renamed

    def rename_suffix(self, suffix: str) -> None:
        """Give all files another suffix, the .log last: it decides whether the segment exists."""
        old = self.paths
        self._suffix = suffix
        self._rename(old)

    def _rename(self, old: Sequence[str]) -> None:
        for source, target in reversed(list(zip(old, self.paths, strict=True))):
            if self._disk.exists(source):
                self._disk.rename(source, target)
        self.offset_index.renamed(self.path(INDEX_SUFFIX))
        self.time_index.renamed(self.path(TIME_INDEX_SUFFIX))
        self.transaction_index.renamed(self.path(TXN_INDEX_SUFFIX))
