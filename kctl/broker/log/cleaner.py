"""Cleaner: cleans one partition once, by copying the records to keep into new segments.

It walks the log twice:

1. The dirty part, from the first dirty to the first uncleanable offset: the last offset of each
   key goes into the offset map. If that is full, the rest is left for the next cleaning. Aborted
   records and markers are left out (KAFKA-14055).
2. Everything up to the end of the map, in groups of segments that fit into one: each group
   becomes one `.cleaned` segment.

A record is kept if it is the last of its key. A tombstone, and a marker whose transaction has no
data left, are kept only until their batch's delete horizon. The horizon is set when the cleaner
first sees the tombstone or the unneeded marker: `delete.retention.ms` from then. (Kafka 2.7 uses
the age of the segment's file, which merging resets, so tombstones may stay forever: KAFKA-8522. v0
and v1 have no field for a horizon; they are handled as in Kafka 2.7.)

Batches that lose no record are copied byte for byte. An emptied batch is kept while it is its
producer's last (else duplicates would be accepted), or as the last one of all that is cleaned,
whose end offset would be lost (KAFKA-17076: a follower would never reach it). Elsewhere nothing
is left of it: some clients cannot read past a batch without records.
Records without a key and aborted records are removed. Nothing at or beyond the end of the map is
removed.

A walk is a generator that yields the number of bytes processed, so that its caller can stop it at
any point. It opens the segments' files itself and touches no memory of the log: it may run on
another thread while the log is appended to. The `CleaningPlan` is taken before, on the log's
thread.

Kafka 2.7: kafka.log.Cleaner; KIP-98, KIP-534, KAFKA-5315, KAFKA-8335
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from kctl.broker.log.cleaned_transactions import CleanedTransactions
from kctl.broker.log.cleaner_output import CleanedSegment
from kctl.broker.log.log_segment import SegmentOptions
from kctl.broker.log.offset_map import ENTRY_BYTES, OffsetMap
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.batch_filter import (
    RecordSpan,
    delete_horizon_ms,
    filtered_batch,
    placeholder_batch,
    record_spans,
)
from kctl.records.builder import empty_batch
from kctl.records.compression import decompress
from kctl.records.legacy import LegacyBatch
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import Batch
from kctl.records.record_batch import CREATE_TIME, RecordBatch
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_name
from kctl.storage.offset_index import RELATIVE_OFFSET_MAX
from kctl.storage.transaction_index import AbortedTransaction, IndexContent

# The offset map has at most one slot per this many bytes of the dirty part.
BYTES_PER_KEY_MIN = 4


class SourceSegment(NamedTuple):
    """A segment to clean; its files no longer change."""

    base_offset: int
    size: int


class LastRecord(NamedTuple):
    """The state of an active producer that cleaning must preserve."""

    # Last offset of its last batch of data; None if the log has none.
    last_data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """The input of one cleaning; `log_cleaner` builds it."""

    directory: str
    # From the log's first segment to the last one below `first_uncleanable_offset`.
    segments: tuple[SourceSegment, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    # Of the whole log.
    transaction_indexes: tuple[IndexContent, ...]
    segment_bytes: int
    options: SegmentOptions
    delete_retention_ms: int
    now_ms: int
    dedupe_buffer_bytes: int
    load_factor: float


class Cleaner:
    """Cleans a log once: `build_map`, then `clean` for each of `groups`."""

    def __init__(self, disk: Disk, plan: CleaningPlan) -> None:
        self._disk = disk
        self._plan = plan
        # End of the map; the log is clean up to here once all groups are done.
        self.end_offset = plan.first_dirty_offset
        self._map = OffsetMap(0)
        # Those that the second walk meets; the first walk has read them.
        self._transactions = CleanedTransactions(())
        # The last batch that was not written; it may be needed to record the segment's end offset.
        self._dropped_last: RecordBatch | None = None

    @property
    def buffer_share(self) -> float:
        """Return the share (0 to 1) of the dedupe buffer that the keys take."""
        return self._map.count * ENTRY_BYTES / max(self._plan.dedupe_buffer_bytes, 1)

    # --- the first walk ----------------------------------------------------------------------

    def build_map(self) -> Iterator[int]:
        """Fill the offset map; yield the number of bytes processed."""
        plan = self._plan
        dirty = [
            segment
            for segment, following in zip(plan.segments, [*plan.segments[1:], None], strict=True)
            if following is None or following.base_offset > plan.first_dirty_offset
        ]
        dirty_bytes = sum(segment.size for segment in dirty)
        memory = min(plan.dedupe_buffer_bytes, dirty_bytes // BYTES_PER_KEY_MIN * ENTRY_BYTES)
        self._map = OffsetMap(memory, plan.load_factor)
        aborted: list[AbortedTransaction] = []
        for index in plan.transaction_indexes:
            aborted += index.entries()
            yield len(index.data)
        transactions, self._transactions = (
            CleanedTransactions(aborted),
            CleanedTransactions(aborted),
        )
        for segment in dirty:
            for batch in self._batches(segment):
                if batch.last_offset >= plan.first_dirty_offset:
                    if _first_offset(batch) >= plan.first_uncleanable_offset:
                        break
                    full_at = self._note(batch, transactions)
                    if full_at is not None:
                        self.end_offset = full_at
                        return
                yield batch.size
        # Also if the last records are missing: the next walk must not begin here again
        # (KAFKA-8764).
        self.end_offset = plan.first_uncleanable_offset

    def _note(self, batch: Batch, transactions: CleanedTransactions) -> int | None:
        """Add the batch's keys; return the offset at which the map was full, or None."""
        if isinstance(batch, RecordBatch):
            if batch.is_control:
                transactions.end(batch)
                return None
            if transactions.is_aborted(batch):
                return None
        first, end = self._plan.first_dirty_offset, self._plan.first_uncleanable_offset
        offsets = self._map
        for key, offset in _keys(batch):
            if key is None or not first <= offset < end:
                continue
            if offsets.is_full and offsets.get(key) < 0:
                return offset
            offsets.put(key, offset)
        return None

    # --- the second walk ---------------------------------------------------------------------

    def groups(self) -> list[tuple[SourceSegment, ...]]:
        """Return the runs of segments, below the end of the map, that become one segment each."""
        plan = self._plan
        wanted = [it for it in plan.segments if it.base_offset < self.end_offset]
        ends = [it.base_offset for it in plan.segments[1:]] + [plan.first_uncleanable_offset]
        groups: list[tuple[SourceSegment, ...]] = []
        group: list[SourceSegment] = []
        totals = (0, 0, 0)
        for segment, end in zip(wanted, ends, strict=False):
            sizes = (
                segment.size,
                self._size(segment, INDEX_SUFFIX),
                self._size(segment, TIME_INDEX_SUFFIX),
            )
            sums = tuple(map(sum, zip(totals, sizes, strict=True)))
            if group and (
                sums[0] > plan.segment_bytes
                or max(sums[1:]) > plan.options.index_bytes_max
                or end - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX
            ):
                groups.append(tuple(group))
                group, sums = [], sizes
            group.append(segment)
            totals = (sums[0], sums[1], sums[2])
        if group:
            groups.append(tuple(group))
        return groups

    def _size(self, segment: SourceSegment, suffix: str) -> int:
        path = self._path(segment, suffix)
        return self._disk.size(path) if self._disk.exists(path) else 0

    def clean(
        self,
        group: Sequence[SourceSegment],
        target: CleanedSegment,
        last_records: Mapping[int, LastRecord],
    ) -> Iterator[int]:
        """Write the records to keep of the first or next group to `target`, durably; yield
        bytes."""
        horizon_ms = self._legacy_horizon_ms()
        modified_ms = 0
        for segment in group:
            modified_ms = self._disk.modified_ms(self._path(segment, LOG_SUFFIX))
            keeps_tombstones = modified_ms > horizon_ms
            for batch in self._batches(segment):
                if isinstance(batch, LegacyBatch):
                    self._dropped_last = None
                    data = self._clean_legacy(batch, keeps_tombstones=keeps_tombstones)
                else:
                    data = self._clean_batch(batch, target, last_records)
                    self._dropped_last = batch if data is None else None
                if data is not None:
                    target.append(data)
                yield batch.size
        if self._dropped_last is not None and self._is_last(group):
            target.append(placeholder_batch(self._dropped_last))
        self._dropped_last = None
        yield from target.finish(modified_ms)

    def _is_last(self, group: Sequence[SourceSegment]) -> bool:
        """Return whether no segment after `group` is cleaned."""
        return not any(
            group[-1].base_offset < it.base_offset < self.end_offset for it in self._plan.segments
        )

    def _legacy_horizon_ms(self) -> int:
        """Return the file time below which tombstones of v0 and v1 are removed."""
        plan = self._plan
        clean = [it for it in plan.segments if it.base_offset < plan.first_dirty_offset]
        if not clean or not self._disk.exists(self._path(clean[-1], LOG_SUFFIX)):
            return 0
        newest_ms = self._disk.modified_ms(self._path(clean[-1], LOG_SUFFIX))
        return newest_ms - plan.delete_retention_ms

    def _clean_batch(
        self, batch: RecordBatch, target: CleanedSegment, last_records: Mapping[int, LastRecord]
    ) -> bytes | bytearray | None:
        """Return the remainder of a v2 batch, or None if nothing is left."""
        if batch.is_control:
            is_needless, aborted = self._transactions.end(batch)
            if aborted is not None:
                target.transaction_index.append(aborted)
            data = self._clean_marker(batch, is_needless=is_needless)
        else:
            is_aborted = self._transactions.is_aborted(batch)
            if batch.base_offset >= self.end_offset:
                return batch.to_bytes()
            data = None if is_aborted else self._clean_data(batch)
        if data is None and _is_last_of_producer(batch, last_records):
            return empty_batch(batch)
        return data

    def _clean_marker(self, batch: RecordBatch, *, is_needless: bool) -> bytes | bytearray | None:
        if batch.count == 0 and batch.base_offset < self.end_offset:
            return None
        if not is_needless or batch.base_offset >= self.end_offset:
            return batch.to_bytes()
        horizon_ms = delete_horizon_ms(batch)
        if horizon_ms is None:
            plain = decompress(batch.compression_type, batch.body())
            spans = list(record_spans(plain, batch.count))
            return filtered_batch(batch, plain, spans, self._new_horizon_ms)
        return None if horizon_ms <= self._plan.now_ms else batch.to_bytes()

    @property
    def _new_horizon_ms(self) -> int:
        return self._plan.now_ms + self._plan.delete_retention_ms

    def _clean_data(self, batch: RecordBatch) -> bytes | bytearray | None:
        if not batch.count:
            return None
        plain = decompress(batch.compression_type, batch.body())
        horizon_ms = delete_horizon_ms(batch)
        keeps_tombstones = horizon_ms is None or horizon_ms > self._plan.now_ms
        base_offset = batch.base_offset
        kept: list[RecordSpan] = []
        has_tombstone = False
        for span in record_spans(plain, batch.count):
            offset = base_offset + span.offset_delta
            if self._is_kept(
                span.key, offset, is_kept_kind=keeps_tombstones or not span.is_tombstone
            ):
                kept.append(span)
                has_tombstone |= span.is_tombstone and offset < self.end_offset
        needs_horizon = has_tombstone and horizon_ms is None
        if len(kept) == batch.count and not needs_horizon:
            return batch.to_bytes()
        if not kept:
            return None
        return filtered_batch(batch, plain, kept, self._new_horizon_ms if needs_horizon else None)

    def _is_kept(self, key: bytes | None, offset: int, *, is_kept_kind: bool) -> bool:
        if offset >= self.end_offset:
            return True
        return key is not None and is_kept_kind and offset >= self._map.get(key)

    def _clean_legacy(
        self, batch: LegacyBatch, *, keeps_tombstones: bool
    ) -> bytes | bytearray | None:
        """Return the remainder of a v0 or v1 message or wrapper, or None if nothing is left."""
        records = list(batch.records())
        kept = [
            it
            for it in records
            if self._is_kept(
                it.key, it.offset, is_kept_kind=keeps_tombstones or it.value is not None
            )
        ]
        if len(kept) == len(records):
            return batch.to_bytes()
        if not kept:
            return None
        builder = MessageSetBuilder(
            magic=batch.magic,
            base_offset=kept[0].offset,
            compression_type=batch.compression_type,
            timestamp_type=max(CREATE_TIME, batch.timestamp_type),
            append_timestamp=batch.timestamp,
        )
        for it in kept:
            builder.append(timestamp=it.timestamp, key=it.key, value=it.value, offset=it.offset)
        return builder.build()

    # --- both --------------------------------------------------------------------------------

    def _batches(self, segment: SourceSegment) -> Iterator[Batch]:
        """Yield every batch of a segment; raise CorruptDataError unless all of it is valid."""
        path = self._path(segment, LOG_SUFFIX)
        file = self._disk.open(path, read_only=True)
        try:
            end = 0
            for position, batch in FileRecords(file, segment.size).batches():
                try:
                    batch.ensure_valid()
                    end = position + batch.size
                    yield batch
                except CorruptDataError as error:
                    raise CorruptDataError(f"{path}: at position {position}: {error}") from None
            if end != segment.size:
                raise CorruptDataError(f"{path}: no whole batch at position {end}")
        finally:
            file.close()

    def _path(self, segment: SourceSegment, suffix: str) -> str:
        return f"{self._plan.directory}/{file_name(segment.base_offset, suffix)}"


def _first_offset(batch: Batch) -> int:
    """Return the first offset of a v2 batch; of a wrapper the last one, as its first is not
    needed."""
    return batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset


def _keys(batch: Batch) -> Iterator[tuple[bytes | None, int]]:
    """Yield (key, offset) of every record."""
    if isinstance(batch, LegacyBatch):
        for record in batch.records():
            yield record.key, record.offset
        return
    plain = decompress(batch.compression_type, batch.body())
    base_offset = batch.base_offset
    for span in record_spans(plain, batch.count):
        yield span.key, base_offset + span.offset_delta


def _is_last_of_producer(batch: RecordBatch, last_records: Mapping[int, LastRecord]) -> bool:
    """Return whether the batch is needed to detect duplicates of its producer (KAFKA-8335)."""
    last = last_records.get(batch.producer_id) if batch.has_producer_id else None
    if last is None:
        return False
    if last.last_data_offset is None:
        return batch.is_control and batch.producer_epoch == last.producer_epoch
    return batch.last_offset == last.last_data_offset
