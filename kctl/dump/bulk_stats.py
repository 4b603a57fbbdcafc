"""Adds the batches and records of a window to statistics in bulk, decoded in columns.

NumPy and pyarrow are loaded with this module.
"""

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]

from kctl.dump.stats import (
    CODEC_NAMES,
    MINUTE_MS,
    SIZE_BUCKETS,
    WINDOW_KEYS_KEPT,
    CodecStats,
    LogStats,
)
from kctl.records.columnar import RecordColumns, decode_chunks, everything
from kctl.verify.segment_walk import Window

# Minutes of one window that are counted; more are sorted.
_MINUTES_MAX = 1_000_000


def add_window_in_bulk(stats: LogStats, window: Window) -> None:
    """Add the batches and records of `window`, decoded in columns."""
    for columns in decode_chunks(window.buffer, keep=everything, check_crc=False):
        stats.damaged_places += len(columns.damages)
        if len(columns.batches):
            _add_batches(stats, columns)
        if len(columns):
            _add_records(stats, columns)


def _add_batches(figures: LogStats, columns: RecordColumns) -> None:
    batches = columns.batches
    figures.batches += len(batches)
    figures.control_batches += int(batches.is_control.sum())
    figures.transactional_batches += int(batches.is_transactional.sum())
    buckets = np.ceil(np.log2(batches.sizes)).astype(np.int64)
    for bucket, count in enumerate(np.bincount(buckets, minlength=SIZE_BUCKETS).tolist()):
        figures.batch_sizes[min(bucket, SIZE_BUCKETS - 1)] += count
    lengths = np.maximum(columns.key_lengths, 0) + np.maximum(columns.value_lengths, 0)
    counts = np.bincount(columns.batch_indexes, minlength=len(batches))
    data = np.bincount(columns.batch_indexes, weights=lengths, minlength=len(batches))
    for codec in np.unique(batches.compression_types).tolist():
        which = batches.compression_types == codec
        stats = figures.by_codec.setdefault(CODEC_NAMES[codec], CodecStats())
        stats.batches += int(which.sum())
        stats.records += int(counts[which].sum())
        stats.stored_bytes += int(batches.sizes[which].sum())
        stats.data_bytes += int(data[which].sum())


def _add_records(stats: LogStats, columns: RecordColumns) -> None:
    stats.records += len(columns)
    stats.null_keys += int((columns.key_lengths < 0).sum())
    stats.null_values += int((columns.value_lengths < 0).sum())
    stats.key_bytes += int(np.maximum(columns.key_lengths, 0).sum())
    stats.value_bytes += int(np.maximum(columns.value_lengths, 0).sum())
    first, last = int(columns.offsets[0]), int(columns.offsets[-1])
    stats.add_bounds("offset", first, last)
    _add_times(stats, columns)
    _add_keys(stats, columns)


def _add_times(stats: LogStats, columns: RecordColumns) -> None:
    times = columns.timestamps[columns.timestamps >= 0]
    if not len(times):
        return
    low, high = int(times.min()), int(times.max())
    stats.add_bounds("timestamp", low, high)
    first = low // MINUTE_MS
    if high // MINUTE_MS - first < _MINUTES_MAX:
        # Counting sorts nothing.
        every = np.bincount(times // MINUTE_MS - first)
        minutes = np.flatnonzero(every)
        counts, minutes = every[minutes], minutes + first
    else:
        minutes, counts = np.unique(times // MINUTE_MS, return_counts=True)
    stats.add_minutes(dict(zip(minutes.tolist(), counts.tolist(), strict=True)))


def _add_keys(stats: LogStats, columns: RecordColumns) -> None:
    keys = columns.to_arrow(("key",)).column(0).drop_null()
    if not len(keys):
        return
    counted = pc.value_counts(keys)
    values, counts = counted.field(0), counted.field(1)
    if len(values) > WINDOW_KEYS_KEPT:
        order = pc.select_k_unstable(counts, WINDOW_KEYS_KEPT, [("", "descending")])
        values, counts = values.take(order), counts.take(order)
    stats.add_keys(dict(zip(values.to_pylist(), counts.to_pylist(), strict=True)))
