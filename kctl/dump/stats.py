"""Statistics of logs: counts, sizes, codecs, how batches and times are spread, the commonest keys.

Decoded in columns, a window at a time, so memory does not grow with the log: histograms have fixed
buckets, and of keys only the commonest of each window are kept (then a count is a lower bound; it
is exact as long as no window has more than WINDOW_KEYS_KEPT different keys).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]

from kctl.dump.segment_walk import DamagedStretch, Window, walk
from kctl.records.columnar import RecordColumns, decode_chunks, everything
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileRecords

KEYS_KEPT = 100_000
WINDOW_KEYS_KEPT = 2_000
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7")
_WINDOW_BYTES = 8 * 1024 * 1024
_SIZE_BUCKETS = 32
_MINUTE_MS = 60_000
# Of one window; more are sorted instead of counted.
_MINUTES_MAX = 1_000_000


_SUMS = (
    "files", "size", "batches", "records", "control_batches", "transactional_batches",
    "damaged_places", "null_keys", "null_values", "key_bytes", "value_bytes",
)  # fmt: skip
_BOUNDS: dict[str, Any] = {
    "first_offset": min, "last_offset": max, "min_timestamp": min, "max_timestamp": max,
}  # fmt: skip


@dataclass(slots=True)
class CodecStats:
    """Batches of one codec: their bytes in the file, and those of their keys and values."""

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    data_bytes: int = 0

    @property
    def ratio(self) -> float:
        """How many bytes of data a stored byte holds."""
        return self.data_bytes / self.stored_bytes if self.stored_bytes else 0.0


@dataclass(slots=True)
class LogStats:
    """See the module; offsets and times are those of records, control records included."""

    files: int = 0
    size: int = 0
    batches: int = 0
    records: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    damaged_places: int = 0
    null_keys: int = 0
    null_values: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    by_codec: dict[str, CodecStats] = field(default_factory=dict)
    # Batches of up to 2^i bytes.
    batch_sizes: list[int] = field(default_factory=lambda: [0] * _SIZE_BUCKETS)
    # Records by minute since 1970.
    minutes: Counter[int] = field(default_factory=Counter)
    keys: Counter[bytes] = field(default_factory=Counter)

    def add(self, other: "LogStats") -> None:
        """Take in the figures of other files."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, choose in _BOUNDS.items():
            both = [it for it in (getattr(self, name), getattr(other, name)) if it is not None]
            setattr(self, name, choose(both, default=None))
        for codec, facts in other.by_codec.items():
            mine = self.by_codec.setdefault(codec, CodecStats())
            for name in CodecStats.__slots__:
                setattr(mine, name, getattr(mine, name) + getattr(facts, name))
        self.batch_sizes = [a + b for a, b in zip(self.batch_sizes, other.batch_sizes, strict=True)]
        self.minutes.update(other.minutes)
        self.keys.update(other.keys)
        self._forget_rare_keys()

    def add_file(self, disk: Disk, path: str, base_offset: int) -> None:
        """Take in one .log file."""
        records = FileRecords.open(disk, path)
        self.files += 1
        self.size += records.size
        try:
            for item in walk(records, base_offset, window_bytes=_WINDOW_BYTES):
                if isinstance(item, Window):
                    self._add_window(item)
                elif isinstance(item, DamagedStretch):
                    self.damaged_places += 1
        finally:
            records.close()

    def _add_window(self, window: Window) -> None:
        for columns in decode_chunks(window.buffer, keep=everything, check_crc=False):
            self.damaged_places += len(columns.damages)
            if len(columns.batches):
                self._add_batches(columns)
            if len(columns):
                self._add_records(columns)

    def _add_batches(self, columns: RecordColumns) -> None:
        batches = columns.batches
        self.batches += len(batches)
        self.control_batches += int(batches.is_control.sum())
        self.transactional_batches += int(batches.is_transactional.sum())
        buckets = np.ceil(np.log2(batches.sizes)).astype(np.int64)
        for bucket, count in enumerate(np.bincount(buckets, minlength=_SIZE_BUCKETS).tolist()):
            self.batch_sizes[min(bucket, _SIZE_BUCKETS - 1)] += count
        lengths = np.maximum(columns.key_lengths, 0) + np.maximum(columns.value_lengths, 0)
        counts = np.bincount(columns.batch_indexes, minlength=len(batches))
        data = np.bincount(columns.batch_indexes, weights=lengths, minlength=len(batches))
        for codec in np.unique(batches.compression_types).tolist():
            which = batches.compression_types == codec
            stats = self.by_codec.setdefault(CODEC_NAMES[codec], CodecStats())
            stats.batches += int(which.sum())
            stats.records += int(counts[which].sum())
            stats.stored_bytes += int(batches.sizes[which].sum())
            stats.data_bytes += int(data[which].sum())

    def _add_records(self, columns: RecordColumns) -> None:
        self.records += len(columns)
        self.null_keys += int((columns.key_lengths < 0).sum())
        self.null_values += int((columns.value_lengths < 0).sum())
        self.key_bytes += int(np.maximum(columns.key_lengths, 0).sum())
        self.value_bytes += int(np.maximum(columns.value_lengths, 0).sum())
        first, last = int(columns.offsets[0]), int(columns.offsets[-1])
        self.first_offset = first if self.first_offset is None else min(first, self.first_offset)
        self.last_offset = last if self.last_offset is None else max(last, self.last_offset)
        self._add_times(columns)
        self._add_keys(columns)

    def _add_times(self, columns: RecordColumns) -> None:
        times = columns.timestamps[columns.timestamps >= 0]
        if not len(times):
            return
        low, high = int(times.min()), int(times.max())
        self.min_timestamp = low if self.min_timestamp is None else min(low, self.min_timestamp)
        self.max_timestamp = high if self.max_timestamp is None else max(high, self.max_timestamp)
        first = low // _MINUTE_MS
        if high // _MINUTE_MS - first < _MINUTES_MAX:
            # Counting sorts nothing.
            every = np.bincount(times // _MINUTE_MS - first)
            minutes = np.flatnonzero(every)
            counts, minutes = every[minutes], minutes + first
        else:
            minutes, counts = np.unique(times // _MINUTE_MS, return_counts=True)
        if len(self.minutes) < KEYS_KEPT:
            self.minutes.update(dict(zip(minutes.tolist(), counts.tolist(), strict=True)))

    def _add_keys(self, columns: RecordColumns) -> None:
        keys = columns.to_arrow(("key",)).column(0).drop_null()
        if not len(keys):
            return
        counted = pc.value_counts(keys)
        values, counts = counted.field(0), counted.field(1)
        if len(values) > WINDOW_KEYS_KEPT:
            order = pc.select_k_unstable(counts, WINDOW_KEYS_KEPT, [("", "descending")])
            values, counts = values.take(order), counts.take(order)
        self.keys.update(dict(zip(values.to_pylist(), counts.to_pylist(), strict=True)))
        self._forget_rare_keys()

    def _forget_rare_keys(self) -> None:
        if len(self.keys) > 2 * KEYS_KEPT:
            self.keys = Counter(dict(self.keys.most_common(KEYS_KEPT)))
