"""Reads .log files into statistics, in bulk where NumPy and pyarrow are installed."""

from collections import Counter

from kctl.dump.old_log_stats import add_old_file, is_old_file
from kctl.dump.stats import (
    CODEC_NAMES,
    MINUTE_MS,
    SIZE_BUCKETS,
    WINDOW_KEYS_KEPT,
    CodecStats,
    LogStats,
)
from kctl.errors import CorruptDataError
from kctl.records.bulk import can_decode_in_bulk
from kctl.records.memory_records import Batch, batch_at
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileRecords
from kctl.verify.segment_walk import DamagedStretch, Window, walk

_WINDOW_BYTES = 8 * 1024 * 1024


def add_file(stats: LogStats, disk: Disk, path: str, base_offset: int) -> None:
    """Add one .log or .kafka file to `stats`; damage is counted, never raised."""
    if is_old_file(path):
        add_old_file(stats, disk, path, base_offset)
        return
    records = FileRecords.open(disk, path)
    stats.files += 1
    stats.size += records.size
    add_window = add_window_by_record
    if can_decode_in_bulk():
        from kctl.dump.bulk_stats import add_window_in_bulk as add_window
    try:
        for item in walk(records, base_offset, window_bytes=_WINDOW_BYTES):
            if isinstance(item, Window):
                add_window(stats, item)
            elif isinstance(item, DamagedStretch):
                stats.damaged_places += 1
    finally:
        records.close()


def add_window_by_record(stats: LogStats, window: Window) -> None:
    """Add the batches and records of `window`, one record at a time."""
    minutes: Counter[int] = Counter()
    keys: Counter[bytes] = Counter()
    for walked in window.batches:
        batch = batch_at(window.buffer, walked.position - window.position)
        codec = _add_batch(stats, batch)
        try:
            for record in batch.records():
                _add_record(stats, codec, record)
                if record.timestamp >= 0:
                    minutes[record.timestamp // MINUTE_MS] += 1
                if record.key is not None:
                    keys[bytes(record.key)] += 1
        except CorruptDataError:
            stats.damaged_places += 1
    stats.add_minutes(minutes)
    stats.add_keys(dict(keys.most_common(WINDOW_KEYS_KEPT)))


def _add_batch(stats: LogStats, batch: Batch) -> CodecStats:
    """Add what the header states; return the figures of the batch's codec."""
    stats.batches += 1
    if isinstance(batch, RecordBatch):
        stats.control_batches += batch.is_control
        stats.transactional_batches += batch.is_transactional
    # Batches of up to 2^i bytes.
    stats.batch_sizes[min((batch.size - 1).bit_length(), SIZE_BUCKETS - 1)] += 1
    codec = stats.by_codec.setdefault(CODEC_NAMES[batch.compression_type], CodecStats())
    codec.batches += 1
    codec.stored_bytes += batch.size
    return codec


def _add_record(stats: LogStats, codec: CodecStats, record: Record) -> None:
    key_bytes, value_bytes = len(record.key or b""), len(record.value or b"")
    stats.records += 1
    stats.null_keys += record.key is None
    stats.null_values += record.value is None
    stats.key_bytes += key_bytes
    stats.value_bytes += value_bytes
    stats.add_bounds("offset", record.offset, record.offset)
    if record.timestamp >= 0:
        stats.add_bounds("timestamp", record.timestamp, record.timestamp)
    codec.records += 1
    codec.data_bytes += key_bytes + value_bytes
