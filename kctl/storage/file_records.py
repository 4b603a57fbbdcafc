"""FileRecords: the record batches in one .log file; walks them by their headers.

Bytes are read in windows, not one header at a time: a walk over small batches costs a system call
per 64 KiB, one over large batches a small read each. Records leave as FileSlices, never as bytes,
except for the few that search and recovery must read.

Invariant: `size` is where the next batch goes. A preallocated file is longer; its tail is NULs.

Kafka 2.7: org.apache.kafka.common.record.FileRecords, FileLogInputStream
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.legacy import RECORD_OVERHEAD_V0
from kctl.records.memory_records import CURRENT_MAGIC, Batch, batch_at, locate
from kctl.records.record_batch import HEADER, INT64, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from kctl.runtime.disk import Disk, DiskFile, FileSlice

WINDOW_BYTES = 64 * 1024
# A walk over whole batches reads more at once.
CONTENT_WINDOW_BYTES = 1024 * 1024
# A search reads few batches: from one index entry to the next.
SEARCH_WINDOW_BYTES = 8 * 1024
_TIMESTAMP_V1_OFFSET = 18
# A v2 header up to lastOffsetDelta; the start is the same in v0 and v1.
_SEARCH = struct.Struct(">qiibIhi")


class FileBatch(NamedTuple):
    """The header of a batch in a file; fields that v0 and v1 lack are -1 or 0."""

    position: int
    size: int
    magic: int
    # In v0 and v1 the same as the last: a wrapper's first offset is inside it.
    base_offset: int
    last_offset: int
    max_timestamp: int = -1
    partition_leader_epoch: int = -1
    attributes: int = 0
    producer_id: int = -1

    @property
    def end(self) -> int:
        """Return the position after the batch."""
        return self.position + self.size


class FileRecords:
    """A .log file; owns the open file, knows no offsets except those in the batches."""

    __slots__ = ("file", "path", "size")

    def __init__(self, file: DiskFile, size: int | None = None) -> None:
        """Take an open file; `size` is where the batches end, if not at the end of the file."""
        self.file = file
        self.path = file.path
        self.size = file.size() if size is None else size

    @classmethod
    def open(cls, disk: Disk, path: str, *, read_only: bool = True) -> "FileRecords":
        """Open an existing file."""
        return cls(disk.open(path, read_only=read_only))

    def append(self, parts: Sequence[Buffer], length: int) -> int:
        """Write batches of `length` bytes in all at the end; return the position of the first."""
        position = self.size
        if self.file.size() == position:
            self.file.append(parts)
        else:
            # Preallocated: the file is large enough.
            for part in parts:
                self.file.pwrite(part, position)
                position += len(part)
            position = self.size
        self.size = position + length
        return position

    def slice(self, position: int, length: int) -> FileSlice:
        """Return a range to be sent to a socket, limited by the end."""
        return FileSlice(self.file, position, max(0, min(length, self.size - position)))

    def headers(
        self, position: int = 0, end: int | None = None, window_bytes: int = WINDOW_BYTES
    ) -> Iterator[FileBatch]:
        """Yield every whole batch in [position, end), up to a truncated one.

        CorruptDataError naming file and position where size or magic is invalid.
        """
        if end is None:
            end = self.size
        window = b""
        start = position
        length = window_bytes
        while position < end:
            offset = position - start
            if offset + RECORD_BATCH_OVERHEAD > len(window) and start + len(window) < end:
                start, offset = position, 0
                window = self.file.pread(min(length, end - start), start)
                if not window:
                    return
            batch = self._header_at(window, offset, position)
            if batch is None or batch.end > end:
                return
            yield batch
            # Batches larger than the window: read only the next header.
            length = RECORD_BATCH_OVERHEAD if batch.size > window_bytes // 2 else window_bytes
            position += batch.size

    def header_at(self, position: int) -> FileBatch | None:
        """Return the batch at `position`; None if it is truncated. Errors as in `headers`."""
        window = self.file.pread(RECORD_BATCH_OVERHEAD, position)
        batch = self._header_at(window, 0, position)
        return batch if batch is not None and batch.end <= self.size else None

    def batch(self, at: FileBatch) -> Batch:
        """Return the whole batch, read into memory."""
        return batch_at(self.file.pread(at.size, at.position), 0, at.magic)

    def first_offset(self, at: FileBatch, lowest: int) -> int:
        """Return the first offset of a batch; that of a v0 or v1 wrapper is inside it. For a
        wrapper that cannot be read, return `lowest`, the end of the batch before it."""
        if at.magic == CURRENT_MAGIC:
            return at.base_offset
        try:
            return self.batch(at).base_offset
        except CorruptDataError:
            return min(lowest, at.last_offset)

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, Batch]]:
        """Yield (position, batch) with contents in memory for every whole batch; as
        in `headers`."""
        if end is None:
            end = self.size
        while position < end:
            window = self.file.pread(min(CONTENT_WINDOW_BYTES, end - position), position)
            offset = 0
            while (batch := self._header_at(window, offset, position)) is not None:
                if batch.end > end:
                    return
                if offset + batch.size > len(window):
                    break
                yield position, batch_at(window, offset, batch.magic)
                offset += batch.size
                position += batch.size
            else:
                if offset == 0 or position + len(window) - offset >= end:
                    return
                continue
            if offset == 0 and batch is not None:
                # Larger than a window.
                yield position, self.batch(batch)
                position += batch.size

    def search_for_offset(self, offset: int, position: int) -> tuple[int, int] | None:
        """Return (position, size) of the first batch from `position` on whose last offset is at or
        above `offset`. Errors as in `headers`.

        Every fetch that is not at the tail calls this, over some dozens of batches, so it decodes
        only the fields of each header that the search needs.
        """
        unpack = _SEARCH.unpack_from
        while self.size - position >= LOG_OVERHEAD:
            window = self.file.pread(min(SEARCH_WINDOW_BYTES, self.size - position), position)
            at, end = 0, len(window) - _SEARCH.size
            while at <= end:
                last_offset, length, _, magic, _, _, last_offset_delta = unpack(window, at)
                if magic == CURRENT_MAGIC:
                    last_offset += last_offset_delta
                if length < RECORD_OVERHEAD_V0 or magic not in (0, 1, CURRENT_MAGIC):
                    break
                size = LOG_OVERHEAD + length
                if last_offset >= offset:
                    return (position, size) if position + size <= self.size else None
                position += size
                at += size
            if at <= end or at == 0:
                # Invalid, or too near to the end: use the careful walk.
                found = (b for b in self.headers(position) if b.last_offset >= offset)
                batch = next(found, None)
                return (batch.position, batch.size) if batch is not None else None
        return None

    def truncate_to(self, size: int) -> int:
        """Truncate the file; return the number of bytes removed."""
        if size > self.size:
            raise CorruptDataError(
                f"{self.path}: cannot truncate to {size} bytes, it has {self.size}"
            )
        removed = self.file.size() - size
        if removed:
            self.file.truncate(size)
        self.size = size
        return removed

    def flush(self) -> None:
        """Make the contents durable."""
        self.file.fsync()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _header_at(self, window: bytes, offset: int, position: int) -> FileBatch | None:
        """Return the header at `offset` of the window; None if it has too few bytes."""
        try:
            found = locate(window, offset)
        except CorruptDataError as error:
            raise CorruptDataError(f"{self.path}: at position {position}: {error}") from None
        if found is None:
            return None
        if found.magic < 2:
            timestamp = -1
            if found.magic == 1:
                if len(window) < offset + _TIMESTAMP_V1_OFFSET + 8:
                    return None
                timestamp = INT64.unpack_from(window, offset + _TIMESTAMP_V1_OFFSET)[0]
            return FileBatch(
                position, found.size, found.magic, found.offset, found.offset, timestamp
            )
        if len(window) < offset + RECORD_BATCH_OVERHEAD:
            return None
        (base_offset, _, leader_epoch, _, _, attributes, last_offset_delta, _, max_timestamp,
         producer_id, _, _, _) = HEADER.unpack_from(window, offset)  # fmt: skip
        return FileBatch(
            position, found.size, 2, base_offset, base_offset + last_offset_delta,
            max_timestamp, leader_epoch, attributes, producer_id,
        )  # fmt: skip
