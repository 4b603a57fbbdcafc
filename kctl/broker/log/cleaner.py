"""Cleaner: cleans one partition once: which records stay, written into new segments.

Two walks over the log:
1. The dirty part, from the first dirty to the first uncleanable offset: the last offset of each
   key goes into the offset map. If that is full the rest is left for the next time. Aborted
   records and markers stay out of it (KAFKA-14055).
2. All up to where the map ends, in groups of segments that fit into one: of each group one
   `.cleaned` segment is made.

A record stays if it is the last of its key; a tombstone, and a marker whose transaction has no data
any more, only until its batch's delete horizon. The horizon is set when the cleaner first meets
the tombstone or the needless marker: `delete.retention.ms` from then. (Kafka 2.7 takes the age of
the segment's file, which merging makes young again, so tombstones may stay for ever: KAFKA-8522.
v0 and v1 have no place for a horizon; for them it is done Kafka 2.7's way.)
Batches that lose nothing are copied byte for byte. An emptied one stays as long as it is its
producer's last (else its duplicates would be taken), or if a segment would not tell where it ends.

Records without a key go, as do aborted ones. Nothing at or beyond the map's end goes.

A walk is a generator that yields how many bytes it has worked through, so whoever drives it stops
it where he likes. It opens the segments' files by itself and touches no memory of the log: it may
run on another thread while the log is appended to. Nothing else does: `CleaningPlan` is taken
before, by the log's thread.

Kafka 2.7: kafka.log.Cleaner; KIP-98, KIP-534, KAFKA-5315, KAFKA-8335
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kctl.broker.log.cleaned_transactions import CleanedTransactions
from kctl.broker.log.cleaner_output import CleanedSegment
from kctl.broker.log.log_segment import RELATIVE_OFFSET_MAX, SegmentOptions
from kctl.broker.log.offset_map import OffsetMap
from kctl.errors import CorruptDataError
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
from kctl.storage.transaction_index import AbortedTransaction

# Slots of the offset map are not more than one to so many bytes of the dirty part.
BYTES_PER_KEY_MIN = 4


class SourceSegment(NamedTuple):
    """A segment to be cleaned; its files do not change any more."""

    base_offset: int
    size: int


class LastRecord(NamedTuple):
    """What of an active producer must not be lost."""

    # Where its last batch of data ends; None if the log has none.
    last_data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What a log is cleaned by; see `cleaner_manager`."""

    directory: str
    # From the log's first segment to the last with records below `first_uncleanable_offset`.
    segments: tuple[SourceSegment, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    # Of the whole log.
    aborted: tuple[AbortedTransaction, ...]
    segment_bytes: int
    options: SegmentOptions
    delete_retention_ms: int
    now_ms: int
    dedupe_buffer_bytes: int
    load_factor: float


class Cleaner:
    """See the module; used once: `build_map`, then `clean` for each of `groups`."""

    def __init__(self, disk: Disk, plan: CleaningPlan) -> None:
        self._disk = disk
        self._plan = plan
        # Where the map ends; cleaned up to here once all groups are.
        self.end_offset = plan.first_dirty_offset
        self._map = OffsetMap(0)
        self._transactions = CleanedTransactions(plan.aborted)
        # The last batch that was not written; it may have to tell where the segment ends.
        self._dropped_last: RecordBatch | None = None

    # --- the first walk ----------------------------------------------------------------------

    def build_map(self) -> Iterator[int]:
        """Fill the offset map; yields bytes."""
        plan = self._plan
        dirty = [
            segment
            for segment, following in zip(plan.segments, [*plan.segments[1:], None], strict=True)
            if following is None or following.base_offset > plan.first_dirty_offset
        ]
        dirty_bytes = sum(segment.size for segment in dirty)
        memory = min(plan.dedupe_buffer_bytes, dirty_bytes // BYTES_PER_KEY_MIN * 24)
        self._map = OffsetMap(memory, plan.load_factor)
        transactions = CleanedTransactions(plan.aborted)
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
        # Where records are missing at the end, too: the next walk must not begin here again
        # (KAFKA-8764).
        self.end_offset = plan.first_uncleanable_offset

    def _note(self, batch: Batch, transactions: CleanedTransactions) -> int | None:
        """Put the batch's keys; where the map was full, if it was."""
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
        """Runs of segments that become one each, below where the map ends."""
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
        """Write what stays of the group, the first or next one, to `target`, durably; yields
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
        if self._dropped_last is not None:
            target.append(placeholder_batch(self._dropped_last))
            self._dropped_last = None
        yield from target.finish(modified_ms)

    def _legacy_horizon_ms(self) -> int:
        """Tombstones of v0 and v1 go from segments that did not change since."""
        plan = self._plan
        clean = [it for it in plan.segments if it.base_offset < plan.first_dirty_offset]
        if not clean or not self._disk.exists(self._path(clean[-1], LOG_SUFFIX)):
            return 0
        newest_ms = self._disk.modified_ms(self._path(clean[-1], LOG_SUFFIX))
        return newest_ms - plan.delete_retention_ms

    def _clean_batch(
        self, batch: RecordBatch, target: CleanedSegment, last_records: Mapping[int, LastRecord]
    ) -> bytes | bytearray | None:
        """What stays of a v2 batch; None: nothing."""
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
            if self._stays(
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

    def _stays(self, key: bytes | None, offset: int, *, is_kept_kind: bool) -> bool:
        if offset >= self.end_offset:
            return True
        return key is not None and is_kept_kind and offset >= self._map.get(key)

    def _clean_legacy(
        self, batch: LegacyBatch, *, keeps_tombstones: bool
    ) -> bytes | bytearray | None:
        """What stays of a v0 or v1 message, or of those in a wrapper."""
        records = list(batch.records())
        kept = [
            it
            for it in records
            if self._stays(it.key, it.offset, is_kept_kind=keeps_tombstones or it.value is not None)
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
        """Every batch of a segment; CorruptDataError if not all of it is whole and valid."""
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
    """Of a wrapper the last: its first is not asked for."""
    return batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset


def _keys(batch: Batch) -> Iterator[tuple[bytes | None, int]]:
    """(key, offset) of every record."""
    if isinstance(batch, LegacyBatch):
        for record in batch.records():
            yield record.key, record.offset
        return
    plain = decompress(batch.compression_type, batch.body())
    base_offset = batch.base_offset
    for span in record_spans(plain, batch.count):
        yield span.key, base_offset + span.offset_delta


def _is_last_of_producer(batch: RecordBatch, last_records: Mapping[int, LastRecord]) -> bool:
    """Whether duplicates of the producer's next batch are told by this one (KAFKA-8335)."""
    last = last_records.get(batch.producer_id) if batch.has_producer_id else None
    if last is None:
        return False
    if last.last_data_offset is None:
        return batch.is_control and batch.producer_epoch == last.producer_epoch
    return batch.last_offset == last.last_data_offset
