"""Rebuild the files derived from batches: indexes, producer snapshots, the epoch checkpoint.

The log is read once, as recovery reads it. Every file is replaced as a whole (written beside the
old one, fsynced, renamed), so a crash leaves each file old or new.

Kafka 2.7: kafka.log.LogSegment.recover, kafka.log.ProducerStateManager.takeSnapshot
"""

from collections.abc import Collection
from dataclasses import field

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.disk import Disk
from kctl.storage import offset_index, time_index
from kctl.storage.checkpoint import encode_epochs
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    parse_file_name,
)
from kctl.storage.offset_index import INDEX_INTERVAL_BYTES, OffsetPosition
from kctl.storage.producer_snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from kctl.storage.segment_files import segment_base_offsets
from kctl.storage.time_index import TimestampOffset
from kctl.storage.transaction_index import AbortedTransaction, encode_entries
from kctl.verify.epoch_runs import EpochRuns
from kctl.verify.producer_replay import ProducerReplay, marker_in
from kctl.verify.segment_walk import WalkedBatch, Window, walk

# Offsets that an index can hold; a damaged batch may have others.
_RELATIVE = range(2**31)


@dataclass(slots=True)
class _Indexes:
    """The indexes of one segment under construction."""

    base_offset: int
    offsets: list[OffsetPosition] = field(default_factory=list)
    times: list[TimestampOffset] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    last_position: int = 0
    last_timestamp: int = -1
    max_timestamp: int = -1
    offset_of_max: int = 0

    def on_batch(self, batch: WalkedBatch) -> None:
        offset = batch.last_offset - self.base_offset
        if batch.max_timestamp > self.max_timestamp and offset in _RELATIVE:
            self.max_timestamp = batch.max_timestamp
            self.offset_of_max = batch.last_offset
        if batch.position - self.last_position > INDEX_INTERVAL_BYTES and offset in _RELATIVE:
            self.offsets.append(OffsetPosition(batch.last_offset, batch.position))
            self.add_time()
            self.last_position = batch.position

    def add_time(self) -> None:
        if self.max_timestamp > self.last_timestamp:
            self.times.append(TimestampOffset(self.max_timestamp, self.offset_of_max))
            self.last_timestamp = self.max_timestamp


@dataclass(frozen=True, slots=True)
class Wanted:
    """The files to rebuild."""

    # Base offsets of segments; None means every segment.
    indexes: Collection[int] | None = None
    snapshots: bool = True
    epochs: bool = True


def rebuild(disk: Disk, directory: str, wanted: Wanted) -> list[str]:
    """Rebuild the files of `wanted`; return the paths written or removed."""
    return _Rebuild(disk, directory, wanted).run()


class _Rebuild:
    def __init__(self, disk: Disk, directory: str, wanted: Wanted) -> None:
        self._disk = disk
        self._directory = directory
        self._wanted = wanted
        self._bases = segment_base_offsets(disk, directory)
        self._start = self._bases[0] if self._bases else 0
        self._snapshots = sorted(
            parsed[0]
            for parsed in map(parse_file_name, disk.list(directory))
            if parsed is not None and parsed[1] == SNAPSHOT_SUFFIX
        )
        # Those before the end of the log that are due, ascending.
        self._due = sorted({*self._snapshots, *self._bases[-2:]} - {self._start})
        self._epochs = EpochRuns()
        self._replay = ProducerReplay(self._entries_at_start())
        self._next_offset = self._start
        self._touched: list[str] = []

    def _path(self, offset: int, suffix: str) -> str:
        return f"{self._directory}/{file_name(offset, suffix)}"

    def _entries_at_start(self) -> list[ProducerSnapshotEntry]:
        path = self._path(self._start, SNAPSHOT_SUFFIX)
        try:
            return decode_snapshot(self._disk.read_file(path), path) if self._has_start else []
        except CorruptDataError:
            return []

    @property
    def _has_start(self) -> bool:
        return self._start in self._snapshots

    def run(self) -> list[str]:
        for base in self._bases:
            self._walk_segment(base)
        if self._wanted.snapshots and self._bases:
            self._write_snapshots_up_to(self._next_offset - 1)
            self._write_snapshot(self._next_offset)
            for offset in self._snapshots:
                if offset > self._next_offset:
                    self._remove(self._path(offset, SNAPSHOT_SUFFIX))
        if self._wanted.epochs and self._bases:
            path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
            self._write(path, encode_epochs(self._epochs.entries()))
        return self._touched

    def _walk_segment(self, base: int) -> None:
        indexes = _Indexes(base)
        records = FileRecords.open(self._disk, self._path(base, LOG_SUFFIX))
        try:
            for item in walk(records, base):
                if isinstance(item, Window):
                    for batch in item.batches:
                        self._on_batch(item, batch, indexes)
        finally:
            records.close()
        if self._wanted.indexes is None or base in self._wanted.indexes:
            self._write_indexes(indexes)

    def _on_batch(self, window: Window, batch: WalkedBatch, indexes: _Indexes) -> None:
        if self._due and self._due[0] <= batch.base_offset:
            self._write_snapshots_up_to(batch.base_offset)
        indexes.on_batch(batch)
        if batch.leader_epoch >= 0:
            self._epochs.on_batch("", batch)
        if batch.producer_id >= 0:
            at = batch.position - window.position
            marker = marker_in(window.buffer, at) if batch.is_control else None
            aborted = self._replay.apply(batch, marker)
            if aborted is not None:
                indexes.aborted.append(aborted)
        self._next_offset = max(self._next_offset, batch.last_offset + 1)

    def _write_snapshots_up_to(self, offset: int) -> None:
        """Write the snapshots up to `offset`, before its batch is replayed; remove those inside a
        batch or a gap, whose state is no longer known."""
        while self._due and self._due[0] <= offset:
            due = self._due.pop(0)
            if not self._wanted.snapshots:
                continue
            if due == offset or due in self._bases:
                self._write_snapshot(due)
            else:
                self._remove(self._path(due, SNAPSHOT_SUFFIX))

    def _write_snapshot(self, offset: int) -> None:
        if offset > 0:
            self._write(
                self._path(offset, SNAPSHOT_SUFFIX), encode_snapshot(self._replay.entries())
            )

    def _write_indexes(self, indexes: _Indexes) -> None:
        indexes.add_time()
        base = indexes.base_offset
        offsets = offset_index.encode_entries(base, indexes.offsets)
        self._write(self._path(base, INDEX_SUFFIX), offsets)
        times = time_index.encode_entries(base, indexes.times)
        self._write(self._path(base, TIME_INDEX_SUFFIX), times)
        path = self._path(base, TXN_INDEX_SUFFIX)
        if indexes.aborted:
            self._write(path, encode_entries(indexes.aborted))
        elif self._disk.exists(path):
            self._remove(path)

    def _write(self, path: str, data: bytes) -> None:
        self._disk.write_file(path, data)
        self._touched.append(path)

    def _remove(self, path: str) -> None:
        self._disk.remove(path)
        self._touched.append(path)
