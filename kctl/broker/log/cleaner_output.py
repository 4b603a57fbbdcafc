"""CleanedSegment: writes a `.cleaned` segment, which is durable once finished.

Batches are written in runs, each with at most one index entry, and fsynced at intervals, so that
the last fsync is short and delays other work on the same thread little.

Kafka 2.7: kafka.log.Cleaner (`cleanSegments`)
"""

from collections.abc import Iterator

from kctl.broker.log.log_segment import LogSegment, SegmentOptions
from kctl.broker.log.open_segments import OpenSegments
from kctl.records.memory_records import batch_at
from kctl.records.record_batch import NO_TIMESTAMP
from kctl.runtime.disk import Disk
from kctl.storage.layout import CLEANED_SUFFIX
from kctl.storage.transaction_index import TransactionIndex

RUN_BYTES = 16 * 1024
FSYNC_BYTES = 8 * 1024 * 1024


class CleanedSegment:
    """A `.cleaned` segment being written; it has its own open files, as the log's belong to another
    thread."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, options: SegmentOptions
    ) -> None:
        """Create the segment, emptying existing files of its names. `finish` must be run to its
        end."""
        self._disk = disk
        self._directory = directory
        self.segment = LogSegment.create(
            disk, OpenSegments(), directory, base_offset, options._replace(preallocated_bytes=0),
            now_ms=0, suffix=CLEANED_SUFFIX,
        )  # fmt: skip
        self._run: list[bytes | bytearray] = []
        self._run_bytes = 0
        self._unsynced_bytes = 0
        self._last_offset = base_offset
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset

    @property
    def transaction_index(self) -> TransactionIndex:
        """Return the transaction index; add entries in the order of their markers."""
        return self.segment.transaction_index

    def append(self, data: bytes | bytearray) -> None:
        """Append a batch."""
        batch = batch_at(data)
        if batch.max_timestamp > self._max_timestamp:
            self._max_timestamp = batch.max_timestamp
            self._offset_of_max_timestamp = batch.last_offset
        self._last_offset = batch.last_offset
        self._run.append(data)
        self._run_bytes += len(data)
        if self._run_bytes >= RUN_BYTES:
            self._write()

    def _write(self) -> None:
        if not self._run:
            return
        self.segment.append(
            self._run, self._run_bytes, self._last_offset,
            self._max_timestamp, self._offset_of_max_timestamp,
        )  # fmt: skip
        self._unsynced_bytes += self._run_bytes
        self._run, self._run_bytes = [], 0
        self._max_timestamp = NO_TIMESTAMP
        if self._unsynced_bytes >= FSYNC_BYTES:
            self.segment.records.flush()
            self._unsynced_bytes = 0

    def finish(self, modified_ms: int) -> Iterator[int]:
        """Make everything durable and set the file time to that of the newest source segment."""
        self._write()
        segment = self.segment
        segment.become_inactive()
        segment.records.flush()
        yield 0
        for file in segment.index_files_to_flush():
            file.fsync()
            yield 0
        path = segment.records.path
        segment.close()
        self._disk.set_modified_ms(path, modified_ms)
        self._disk.fsync_directory(self._directory)
