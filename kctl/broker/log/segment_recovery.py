"""Recovery of one segment: keeps only valid batches and rebuilds everything else from them.

Batches are read in order: each must be whole, with a correct CRC and increasing offsets. At the
first one that is not, the damage is classified (`kctl.storage.damage`): a torn tail and a hole are
removed, as in Kafka; corruption is reported and nothing is removed. Indexes, producer state, leader
epochs and aborted transactions are rebuilt from the batches; index files are written only where
they differ.

Kafka 2.7: kafka.log.LogSegment.recover; KIP-101, KAFKA-10207
"""

from dataclasses import field

from kctl.broker.log.leader_epoch_file_cache import LeaderEpochFileCache
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.producer_replay import replay_batch
from kctl.broker.log.producer_state_manager import ProducerStateManager
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.memory_records import Batch
from kctl.records.record_batch import (
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    PREFIX,
    RECORD_BATCH_OVERHEAD,
    RecordBatch,
)
from kctl.storage.damage import Damage, DamageKind, classify_damage, has_lost_sector
from kctl.storage.layout import LOG_SUFFIX
from kctl.storage.offset_index import RELATIVE_OFFSET_MAX, OffsetPosition
from kctl.storage.time_index import TimestampOffset
from kctl.storage.transaction_index import AbortedTransaction, TransactionIndex

# The rest of a damaged segment is tested for being a single batch up to this size.
WHOLE_BATCH_BYTES_MAX = 64 * 1024 * 1024


class DurableCorruptionError(CorruptDataError):
    """Durable records are damaged: the log must be neither used nor truncated."""


@dataclass(slots=True)
class _Progress:
    """The state after the valid batches so far."""

    position: int
    # The lowest offset that the next batch may begin with.
    next_offset: int
    # The start of the next segment, or the limit of offsets in this one.
    end_offset_max: int
    last_index_entry: int = 0
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = 0
    complaint: str = ""
    aborted: list[AbortedTransaction] = field(default_factory=list)
    offset_entries: list[OffsetPosition] = field(default_factory=list)
    time_entries: list[TimestampOffset] = field(default_factory=list)

    def add_index_entry(self, last_offset: int, position: int) -> None:
        """Add the entry that an append at `position` would have added."""
        self.offset_entries.append(OffsetPosition(last_offset, position))
        self.add_time_entry()
        self.last_index_entry = position

    def add_time_entry(self) -> None:
        """Add the largest timestamp so far, if it exceeds the last entry."""
        last = self.time_entries[-1].timestamp if self.time_entries else NO_TIMESTAMP
        if self.max_timestamp > last:
            entry = TimestampOffset(self.max_timestamp, self.offset_of_max_timestamp)
            self.time_entries.append(entry)


def recover_segment(
    segment: LogSegment,
    producers: ProducerStateManager,
    epochs: LeaderEpochFileCache,
    index_interval_bytes: int,
    *,
    next_base_offset: int | None,
    trusted_end: int,
) -> tuple[int, int]:
    """Recover `segment`; return how many bytes were removed and the offset after its last batch.

    Raise DurableCorruptionError if removal would lose durable records: offsets below
    `trusted_end`, or a batch followed by valid ones. `next_base_offset` is the start of the
    following segment, or None for the last segment.
    """
    end_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX + 1
    if next_base_offset is not None:
        end_offset_max = min(end_offset_max, next_base_offset)
    progress = _Progress(0, segment.base_offset, end_offset_max)
    batches = segment.records.batches()
    while True:
        try:
            found = next(batches, None)
            if found is None:
                break
            position, batch = found
            _check(segment, batch, progress)
        except CorruptDataError as error:
            progress.complaint = str(error)
            break
        last_offset = batch.last_offset
        if batch.max_timestamp > progress.max_timestamp:
            progress.max_timestamp = batch.max_timestamp
            progress.offset_of_max_timestamp = last_offset
        if position - progress.last_index_entry > index_interval_bytes:
            progress.add_index_entry(last_offset, position)
        if isinstance(batch, RecordBatch):
            _note_epoch(epochs, batch)
            replay_batch(producers, batch, progress.aborted.append)
        producers.map_end_offset = max(producers.map_end_offset, last_offset + 1)
        progress.position = position + batch.size
        progress.next_offset = last_offset + 1
    is_last = next_base_offset is None
    cut = _cut(segment, progress, is_last=is_last, trusted_end=trusted_end)
    progress.add_time_entry()
    segment.offset_index.replace_entries(progress.offset_entries)
    segment.time_index.replace_entries(progress.time_entries)
    _replace_aborted(segment.transaction_index, progress.aborted)
    segment.set_max_timestamp(progress.max_timestamp, progress.offset_of_max_timestamp)
    producers.map_end_offset = max(producers.map_end_offset, progress.next_offset)
    return cut, progress.next_offset


def _check(segment: LogSegment, batch: Batch, progress: _Progress) -> None:
    """Raise CorruptDataError unless the batch belongs here."""
    place = f"{segment.path(LOG_SUFFIX)}: at position {progress.position}"
    if isinstance(batch, RecordBatch):
        batch.ensure_valid()
        first_offset = batch.base_offset
    else:
        if not batch.is_crc_valid():
            raise CorruptDataError(f"{place}: message is corrupt (crc)")
        first_offset = batch.last_offset
    if first_offset < progress.next_offset or batch.last_offset < first_offset:
        raise CorruptDataError(
            f"{place}: offset {first_offset} where {progress.next_offset} or more was expected"
        )
    if batch.last_offset >= progress.end_offset_max:
        raise CorruptDataError(f"{place}: offset {batch.last_offset} does not fit the segment")


def _note_epoch(epochs: LeaderEpochFileCache, batch: RecordBatch) -> None:
    """Assign the batch's epoch; the epoch file may be older than the log and mention truncated
    records."""
    epoch = batch.partition_leader_epoch
    if epoch > epochs.epoch_at(batch.base_offset):
        epochs.assign(epoch, batch.base_offset)


def _cut(segment: LogSegment, progress: _Progress, *, is_last: bool, trusted_end: int) -> int:
    """Remove invalid bytes at the end, if this is safe; return how many."""
    if progress.position == segment.size:
        return 0
    path = segment.path(LOG_SUFFIX)
    damage = classify_damage(segment.records, progress.position, progress.next_offset)
    is_corruption = damage.kind is DamageKind.CORRUPTION or progress.next_offset < trusted_end
    if damage.kind is DamageKind.TORN_TAIL and not is_corruption:
        if _has_wrong_length(segment, progress):
            progress.complaint = "the batch is complete, but its length is wrong"
            is_corruption = True
        elif not is_last:
            # A segment that was rolled ends with a whole batch, unless a crash tore it.
            is_corruption = not _is_torn(segment, progress)
    if is_corruption:
        raise DurableCorruptionError(
            f"{path} is damaged at position {progress.position} (offset {progress.next_offset}): "
            f"{progress.complaint or 'a batch is incomplete'}; {_what_follows(damage)}; no file "
            "was changed",
            hint="restore this replica from another one, or remove the damaged files yourself",
        )
    return segment.cut(progress.position)


def _has_wrong_length(segment: LogSegment, progress: _Progress) -> bool:
    """Return whether the rest is one batch with only its length field, which no checksum covers,
    wrong.

    A crash does not leave this state, unless the sector that ends after the length was lost.
    """
    position = progress.position
    left = segment.size - position
    if not RECORD_BATCH_OVERHEAD <= left <= WHOLE_BATCH_BYTES_MAX:
        return False
    data = bytearray(segment.records.file.pread(left, position))
    base_offset, length = PREFIX.unpack_from(data)
    PREFIX.pack_into(data, 0, base_offset, left - LOG_OVERHEAD)
    if length == left - LOG_OVERHEAD or not RecordBatch(data).is_crc_valid():
        return False
    return not has_lost_sector(segment.records, position, segment.size, progress.next_offset)


def _is_torn(segment: LogSegment, progress: _Progress) -> bool:
    """Return whether the file ends inside the invalid batch, or with sectors never written."""
    position = progress.position
    try:
        if segment.records.header_at(position) is None:
            return True
    except CorruptDataError:
        pass
    return has_lost_sector(segment.records, position, segment.size, progress.next_offset)


def _what_follows(damage: Damage) -> str:
    if damage.next_position is None:
        return "records after it were durable"
    return f"valid records follow at position {damage.next_position} (offset {damage.next_offset})"


def _replace_aborted(index: TransactionIndex, aborted: list[AbortedTransaction]) -> None:
    try:
        if index.entries() == aborted:
            return
    except CorruptDataError:
        pass
    index.reset()
    for entry in aborted:
        index.append(entry)
