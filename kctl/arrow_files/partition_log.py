"""PartitionLog: the segment files of a partition, on any file system, and the offsets they hold.

It reads names, sizes, indexes and a few batch headers, never all records, so that planning an
export of 100,000 segments takes seconds. Nothing is locked or changed: the broker of the log may be
running or gone.

Kafka 2.7: kafka.log.Log, kafka.log.TransactionIndex
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import field
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from kctl.arrow_files.files import FileFacts, Files
from kctl.errors import CorruptDataError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import Position, PositionKind, TopicPartition
from kctl.records.columnar import decode_chunks
from kctl.records.columnar_batches import BatchColumns, Mask, scan_batches
from kctl.records.record_batch import LOG_APPEND_TIME
from kctl.records.transactions import AbortedRange, TransactionScan
from kctl.storage.layout import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OLD_LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from kctl.storage.producer_snapshot import decode_snapshot
from kctl.storage.segments07 import parse_segment_name
from kctl.storage.transaction_index import decode_entries
from kctl.storage.walk07 import ViewFile, end_of_intact

# Files that are looked for in a listing. Other indexes are looked for when they are used.
LISTED_SUFFIXES = (LOG_SUFFIX, OLD_LOG_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_STEM_DIGITS = 20
_LOG = LOG_SUFFIX.removeprefix(".")
# Suffixes of the other files that are used, without the dot.
_BESIDE = frozenset(it.removeprefix(".") for it in (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX))
_BASE_OFFSET = attrgetter("base_offset")


class Segment(NamedTuple):
    """A .log file, or a .kafka file of Kafka 0.7."""

    path: str
    base_offset: int
    size: int

    @property
    def is_old(self) -> bool:
        """Return whether Kafka 0.7 wrote it: its offsets are positions, without timestamps."""
        return is_old_segment(self.path)


def is_old_segment(path: str) -> bool:
    """Return whether `path` names a segment of Kafka 0.7."""
    return path.endswith(OLD_LOG_SUFFIX)


@dataclass(slots=True)
class PartitionLog:
    """The segments of a partition, by offset, and the directory's other files that were listed
    (path to size)."""

    files: Files
    topic_partition: TopicPartition
    segments: list[Segment]
    beside: dict[str, int] = field(default_factory=dict)
    # Records before it were deleted, although their segment still exists.
    log_start_offset: int = 0
    # The end offset, and the position in the last segment after its last whole batch.
    _end: tuple[int, int] | None = None

    @property
    def start_offset(self) -> int:
        """Return the first offset that consumers can read."""
        return max(self.segments[0].base_offset, self.log_start_offset)

    @property
    def end_offset(self) -> int:
        """Return the offset of the next record, from the batch headers at the end of the last
        segment."""
        return max(self._found_end()[0], self.log_start_offset)

    @property
    def has_whole_batch_in_last_segment(self) -> bool:
        """Return whether the last segment, one of Kafka 0.8 or later, ends with a whole batch."""
        return self._found_end()[1] > 0

    def leave_torn_end(self) -> None:
        """Ignore what follows the last whole batch of the last segment: a broker may be writing
        it."""
        last = self.segments[-1]
        if not last.is_old:
            self.segments[-1] = last._replace(size=self._found_end()[1])

    def _found_end(self) -> tuple[int, int]:
        if self._end is None:
            last = self.segments[-1]
            end, position = last.base_offset, 0
            # What a broker has appended since the listing belongs to the next run.
            if last.size and last.is_old:
                end += end_of_intact(ViewFile(self.files.map(last.path)[: last.size]))
            elif last.size:
                entries = self.index_entries(last)
                tail = int(entries[-1, 1]) if len(entries) else 0
                end, position = self._end_of_batches(last, tail)
                if tail and not position:
                    # What the index points to is damaged.
                    end, position = self._end_of_batches(last, 0)
            self._end = end, position
        return self._end

    def _end_of_batches(self, segment: Segment, start: int) -> tuple[int, int]:
        """Return the offset and the position after the whole batches from position `start` on;
        the segment's base offset and 0 if there are none."""
        end, position = segment.base_offset, 0
        view = self.files.map(segment.path, start)[: segment.size]
        for step in scan_batches(view, start, check_crc=False):
            if len(step.batches):
                end = max(end, int(step.batches.last_offsets.max()) + 1)
                position = max(position, int(step.batches.ends.max()))
        return end, position

    def index_entries(self, segment: Segment) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
        """Return the (relative offset, position) pairs of the segment's .index; empty if it is not
        valid."""
        path = segment.path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
        size = self._size_beside(path)
        none = np.zeros((0, 2), np.int64)
        if size < 8:
            return none
        raw = np.frombuffer(self.files.read(path)[: size // 8 * 8], ">i4").reshape(-1, 2)
        entries = raw.astype(np.int64)
        # A file that was not closed has preallocated zeros after its entries.
        entries = entries[: int(np.flatnonzero(entries[:, 1]).max(initial=-1)) + 1]
        is_rising = bool((np.diff(entries[:, 1]) > 0).all()) if len(entries) else True
        is_inside = not len(entries) or 0 <= entries[0, 1] <= entries[-1, 1] < segment.size
        return entries if is_rising and is_inside else none

    def _size_beside(self, path: str) -> int:
        """Return the size of an index; 0 if there is none."""
        if path not in self.beside:
            facts = self.files.find(path)
            self.beside[path] = facts.size if facts is not None else 0
        return self.beside[path]

    def segment_of(self, offset: int) -> int:
        """Return the number of the segment that holds `offset`, or that would hold it."""
        bases = [segment.base_offset for segment in self.segments]
        return max(0, bisect_right(bases, offset) - 1)

    def resolve(self, position: Position) -> int:
        """Return the offset that `position` denotes in this log."""
        if position.kind is PositionKind.EARLIEST:
            return self.start_offset
        if position.kind is PositionKind.LATEST:
            return self.end_offset
        if position.kind is PositionKind.TAIL:
            return max(self.start_offset, self.end_offset - position.value)
        if position.kind is PositionKind.TIME:
            return self.offset_for_time(position.value)
        return position.value

    def offset_for_time(self, timestamp: int) -> int:
        """Return the offset of the first record at or after `timestamp` (ms); the end if there is
        none.

        UsageError for a log of Kafka 0.7, whose messages have no timestamps.
        """
        if self.segments[0].is_old:
            raise UsageError(
                f"{self.topic_partition}: messages of Kafka 0.7 have no timestamps",
                hint="select by offsets, which are positions in bytes",
            )
        for segment in self.segments:
            if not segment.size or self._is_older(segment, timestamp):
                continue
            view = self.files.map(segment.path)
            for step in scan_batches(view, check_crc=False):
                # A v0 wrapper message has no timestamp, so its batch is skipped.
                for number in np.flatnonzero(step.batches.max_timestamps >= timestamp).tolist():
                    batch = step.batches.take(slice(number, number + 1))
                    found = self._first_at(view, int(batch.positions[0]), int(batch.ends[0]),
                                           timestamp)  # fmt: skip
                    if found is not None and found >= self.start_offset:
                        return found
        return self.end_offset

    def end_before_time(self, timestamp: int) -> int:
        """Return the offset from which on the batches' headers prove every record to be at or after
        `timestamp` (ms); the end if they prove none.

        They do for LogAppendTime, where all records of a batch have its time, and for a batch of
        one record. A producer's times may be in any order, and the header has only the latest.
        """
        end = self.end_offset
        for segment in reversed(self.segments):
            if not segment.size:
                continue
            proven = None if segment.is_old else self._proven_from(segment, timestamp)
            if proven is None:
                return end
            end = proven
            if end > segment.base_offset:
                return end
        return max(end, self.start_offset)

    def _proven_from(self, segment: Segment, timestamp: int) -> int | None:
        """Return the first offset of the batches at the segment's end that are proven to be at or
        after `timestamp`; None if the last one is not."""
        entries = self.index_entries(segment)
        tail = int(entries[-1, 1]) if len(entries) else 0
        found = segment.base_offset
        # The last batches first: where they prove nothing, the others need not be read.
        for start in (tail, 0) if tail else (0,):
            found, is_proven = segment.base_offset, False
            view = self.files.map(segment.path, start)[: segment.size]
            for step in scan_batches(view, start, check_crc=False):
                if step.damages:
                    return None
                later = _proven_later(step.batches, timestamp)
                earlier = np.flatnonzero(~later)
                if len(earlier):
                    found = int(step.batches.last_offsets[earlier[-1]]) + 1
                if len(later):
                    is_proven = bool(later[-1])
            if not is_proven:
                return None
        return found

    def _is_older(self, segment: Segment, timestamp: int) -> bool:
        """Return whether the .timeindex shows that all records are older; the last segment's is
        incomplete."""
        path = segment.path.removesuffix(LOG_SUFFIX) + TIME_INDEX_SUFFIX
        size = self._size_beside(path)
        if size < 12 or segment is self.segments[-1]:
            return False
        raw = np.frombuffer(self.files.read(path)[: size // 12 * 12], ">i8,>i4")
        return 0 < int(raw["f0"].max()) < timestamp

    def _first_at(self, view: memoryview, position: int, end: int, timestamp: int) -> int | None:
        for columns in decode_chunks(view, position=position, end=end):
            late = np.flatnonzero(columns.timestamps >= timestamp)
            if len(late):
                return int(columns.offsets[late[0]])
        return None

    def transactions(self) -> tuple[list[AbortedRange], int | None]:
        """Return the aborted transactions and the first offset of an open transaction, or None.

        They come from .txnindex and .snapshot files. If there are none, or one cannot be read, all
        segments are scanned for markers.
        """
        snapshots = [path for path in self.beside if path.endswith(SNAPSHOT_SUFFIX)]
        indexes = [path for path in self.beside if path.endswith(TXN_INDEX_SUFFIX)]
        if not snapshots and not indexes:
            return self._scan_transactions(self.segments, {})
        try:
            aborted = list(self._indexed_aborts(indexes))
            opened, position = self._snapshot(snapshots)
        except CorruptDataError:
            return self._scan_transactions(self.segments, {})
        rest = self.segments[self.segment_of(position) :] if snapshots else self.segments
        _, first_unstable = self._scan_transactions(rest, opened, position)
        return aborted, first_unstable

    def _indexed_aborts(self, paths: Iterable[str]) -> Iterator[AbortedRange]:
        for path in sorted(paths):
            if not self._size_beside(path):
                continue
            for entry in decode_entries(self.files.read(path), path, 0):
                yield AbortedRange(entry.producer_id, entry.first_offset, entry.last_offset)

    def _snapshot(self, paths: list[str]) -> tuple[dict[int, int], int]:
        """Return the open transactions in the newest snapshot (producer id to first offset), and
        its offset."""
        if not paths:
            return {}, 0
        newest = max(paths)
        offset = int(newest.rsplit("/", 1)[-1].removesuffix(SNAPSHOT_SUFFIX))
        entries = decode_snapshot(self.files.read(newest), newest)
        opened = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in entries
            if entry.current_txn_first_offset >= 0
        }
        return opened, offset

    def _scan_transactions(
        self, segments: list[Segment], opened: dict[int, int], position: int = 0
    ) -> tuple[list[AbortedRange], int | None]:
        scan = TransactionScan(opened.items())
        for segment in segments:
            if not segment.size or segment.is_old:
                continue
            view = self.files.map(segment.path)
            for step in scan_batches(view, check_crc=False):
                scan.add(step.batches.take(step.batches.base_offsets >= position), view)
        return scan.aborted, scan.first_unstable_offset


def _proven_later(batches: BatchColumns, timestamp: int) -> Mask:
    """Return which batches have no record before `timestamp`, as far as their headers prove it."""
    is_exact = (batches.timestamp_types == LOG_APPEND_TIME) | (batches.record_counts == 1)
    later: Mask = batches.is_control | (is_exact & (batches.max_timestamps >= timestamp))
    return later


def partition_log(
    files: Files, topic_partition: TopicPartition, listing: Iterable[FileFacts]
) -> PartitionLog | None:
    """Return the log that consists of the files in `listing`; None if they include no segment.

    UsageError if some are of Kafka 0.7 and others are not: the same offsets mean different things.
    """
    segments: list[Segment] = []
    old_segments: list[Segment] = []
    beside: dict[str, int] = {}
    for path, size, is_directory, _modified_ns in listing:
        name = path[path.rfind("/") + 1 :]
        stem, _dot, suffix = name.partition(".")
        if is_directory:
            continue
        if not (len(stem) == _STEM_DIGITS and stem.isdecimal()):
            suffix = ""
        if suffix == _LOG:
            segments.append(Segment(path, int(stem), size))
        elif suffix in _BESIDE:
            beside[path] = size
        elif name.endswith(OLD_LOG_SUFFIX) and (start := parse_segment_name(name)) is not None:
            old_segments.append(Segment(path, start, size))
    if segments and old_segments:
        raise UsageError(
            f"{topic_partition}: files of Kafka 0.7 and of later versions are in one directory",
            hint="name the files one by one, or move those of one version elsewhere",
        )
    segments += old_segments
    segments.sort(key=_BASE_OFFSET)
    return PartitionLog(files, topic_partition, segments, beside) if segments else None
