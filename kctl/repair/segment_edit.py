"""New contents of a segment: ranges of bytes of existing segments, and bytes between them.

An empty batch with the same offsets replaces what is removed from a v2 log, as in compaction: so
the log has no gap, its offsets stay, and readers skip it. Between messages of v0 and v1, whose
readers may not know such batches, nothing replaces it.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch.writeEmptyHeader
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kctl.lazy_dataclass import dataclass
from kctl.records.checksum import crc32c
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    HEADER,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    UINT32,
)
from kctl.runtime.disk import Disk, DiskFile

_STEP_BYTES = 4 * 1024 * 1024
# lastOffsetDelta is an int32.
_DELTA_MAX = 2**31 - 1


class Extent(NamedTuple):
    """The bytes in [position, end) of an existing file."""

    path: str
    position: int
    end: int


# A part of a new segment, in order.
Piece = Extent | bytes


class Step(NamedTuple):
    """One line of the plan."""

    action: str
    path: str
    detail: str


@dataclass(frozen=True, slots=True)
class Edit:
    """The bytes in [position, end) become `data`."""

    position: int
    end: int
    data: bytes
    # The reason, for the plan.
    reason: str


def filler(first_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """Return empty batches for the offsets from first to last, both inclusive."""
    parts = []
    while first_offset <= last_offset:
        last = min(last_offset, first_offset + _DELTA_MAX)
        batch = bytearray(RECORD_BATCH_OVERHEAD)
        HEADER.pack_into(
            batch, 0, first_offset, RECORD_BATCH_OVERHEAD - LOG_OVERHEAD, leader_epoch, 2, 0, 0,
            last - first_offset, NO_TIMESTAMP, NO_TIMESTAMP, NO_PRODUCER_ID, NO_PRODUCER_EPOCH,
            NO_SEQUENCE, 0,
        )  # fmt: skip
        UINT32.pack_into(batch, CRC_OFFSET, crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
        parts.append(bytes(batch))
        first_offset = last + 1
    return b"".join(parts)


def join(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the same contents in as few pieces as possible."""
    joined: list[Piece] = []
    for piece in pieces:
        before = joined[-1] if joined else None
        if isinstance(piece, bytes):
            if not piece:
                continue
            if isinstance(before, bytes):
                joined[-1] = before + piece
                continue
        elif piece.position >= piece.end:
            continue
        elif isinstance(before, Extent) and piece[:2] == (before.path, before.end):
            joined[-1] = before._replace(end=piece.end)
            continue
        joined.append(piece)
    return joined


def edited(path: str, size: int, edits: Iterable[Edit]) -> list[Piece]:
    """Return the contents of the file at `path`, of `size` bytes, after `edits`; none overlap."""
    pieces: list[Piece] = []
    position = 0
    for edit in sorted(edits, key=lambda it: it.position):
        pieces += [Extent(path, position, edit.position), edit.data]
        position = edit.end
    return join([*pieces, Extent(path, position, size)])


def contents(disk: Disk, pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Yield the bytes of `pieces`, a bounded part at a time."""
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
            continue
        file = disk.open(piece.path, read_only=True)
        try:
            yield from _copied(file, piece.position, piece.end)
        finally:
            file.close()


def _copied(file: DiskFile, position: int, end: int) -> Iterator[bytes]:
    while position < end:
        data = file.pread(min(_STEP_BYTES, end - position), position)
        if not data:
            return
        yield data
        position += len(data)
