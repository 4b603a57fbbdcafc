"""Copies the readable records of a partition into a new directory, optionally filtered and
recompressed.

The new log keeps the old offsets: records that are left out leave gaps, as with compaction. Batches
that are copied whole keep their bytes; others are rewritten with the producer's id and sequence,
and transaction markers are kept, so that readers of committed data see the same. The source is only
read.

Kafka 2.7 has no such tool; kafka.log.Cleaner writes filtered batches in the same way.
"""

from collections.abc import Iterator

from kctl.dump.filters import RecordFilter
from kctl.errors import CorruptDataError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.records.builder import build_batch
from kctl.records.memory_records import Batch, batch_at
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch
from kctl.repair.rebuild import Wanted, rebuild
from kctl.runtime.disk import Disk, DiskFile
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import LOG_SUFFIX, file_name
from kctl.storage.log_directory_locks import locked_log_directories
from kctl.storage.segment_files import segment_base_offsets
from kctl.storage.segments07 import has_old_files
from kctl.verify.segment_walk import DamagedStretch, Window, walk

SEGMENT_BYTES = 1024 * 1024 * 1024
_OFFSETS_MAX = 2**31 - 1


@dataclass(slots=True)
class Extracted:
    """What was copied, and what could not be read."""

    batches: int = 0
    records: int = 0
    size: int = 0
    damaged_places: int = 0
    first_offset: int | None = None
    last_offset: int | None = None


def extract(
    disk: Disk, source: str, target: str, wanted: RecordFilter, codec: int | None
) -> Extracted:
    """Copy the readable records of `source` that `wanted` selects to the new directory `target`.

    StorageError if `target` is in a log directory that a broker uses.
    """
    with locked_log_directories(disk, [target]):
        return _extract(disk, source, target, wanted, codec)


def _extract(
    disk: Disk, source: str, target: str, wanted: RecordFilter, codec: int | None
) -> Extracted:
    if has_old_files(disk, source):
        raise UsageError(
            f"{source}: --extract does not apply to files of Kafka 0.7",
            hint="kctl export writes their messages to a table",
        )
    if disk.exists(target) and disk.list(target):
        raise UsageError(f"{target}: exists already and is not empty")
    disk.make_directory(target)
    found = Extracted()
    writer = _Writer(disk, target)
    for base in segment_base_offsets(disk, source):
        records = FileRecords.open(disk, f"{source}/{file_name(base, LOG_SUFFIX)}")
        try:
            for batch in _readable(records, base, found):
                _copy(batch, wanted, codec, writer, found)
        finally:
            records.close()
    writer.close()
    if found.batches:
        rebuild(disk, target, Wanted())
    return found


def _readable(records: FileRecords, base: int, found: Extracted) -> Iterator[Batch]:
    for item in walk(records, base):
        if isinstance(item, DamagedStretch):
            found.damaged_places += 1
        elif isinstance(item, Window):
            for batch in item.batches:
                if batch.last_offset - base > _OFFSETS_MAX:
                    found.damaged_places += 1  # Its offset: no segment extends that far.
                else:
                    yield batch_at(item.buffer, batch.position - item.position)


def _copy(
    batch: Batch, wanted: RecordFilter, codec: int | None, writer: "_Writer", found: Extracted
) -> None:
    if not wanted.wants_batch(batch):
        return
    try:
        records = list(batch.records())
    except CorruptDataError:
        found.damaged_places += 1
        return
    kept = records if batch.is_control else [it for it in records if wanted.wants_record(it)]
    if not kept and (records or not wanted.is_empty):
        return
    # Markers, and batches that compaction emptied, stay unchanged.
    is_same_codec = codec in (None, batch.compression_type) or batch.is_control or not records
    if len(kept) == len(records) and is_same_codec:
        data: bytes | bytearray = batch.to_bytes()
    else:
        data = _rebuilt(batch, kept, batch.compression_type if codec is None else codec)
    first = kept[0].offset if kept else batch.base_offset
    last = kept[-1].offset if kept else batch.last_offset
    writer.append(data, first, last)
    found.batches += 1
    found.records += len(kept)
    found.size += len(data)
    found.first_offset = first if found.first_offset is None else found.first_offset
    found.last_offset = last


def _rebuilt(batch: Batch, records: list[Record], codec: int) -> bytearray:
    """Return the records as a v2 batch of the batch's producer, with consecutive sequences."""
    sequence = batch.base_sequence
    if isinstance(batch, RecordBatch) and sequence >= 0:
        sequence = (sequence + records[0].offset - batch.base_offset) & 0x7FFFFFFF
    return build_batch(
        records,
        compression_type=codec,
        timestamp_type=max(0, batch.timestamp_type),
        append_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=sequence,
        is_transactional=batch.is_transactional,
        partition_leader_epoch=max(0, batch.partition_leader_epoch),
    )


class _Writer:
    """Appends batches to segments, which roll by size."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._file: DiskFile | None = None
        self._base = 0

    def append(self, data: bytes | bytearray, first_offset: int, last_offset: int) -> None:
        file = self._file
        is_full = file is not None and (
            file.size() + len(data) > SEGMENT_BYTES or last_offset - self._base > _OFFSETS_MAX
        )
        if file is None or is_full:
            self.close()
            path = f"{self._directory}/{file_name(first_offset, LOG_SUFFIX)}"
            file = self._file = self._disk.open(path, create=True)
            self._base = first_offset
        file.append([data])

    def close(self) -> None:
        if self._file is not None:
            self._file.fsync()
            self._file.close()
            self._file = None
            self._disk.fsync_directory(self._directory)
