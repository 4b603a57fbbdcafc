"""Edits of a segment file: ranges of bytes that others replace, streamed into a new file.

What is taken out of a v2 log leaves an empty batch with the offsets of what was there, as
compaction leaves one: so the log has no gap, its offsets stay, and readers pass over it. Between
messages of v0 and v1, for readers older than such batches, it leaves nothing.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch.writeEmptyHeader
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
from kctl.storage.file_records import FileRecords

_STEP_BYTES = 4 * 1024 * 1024
# lastOffsetDelta is an int32.
_DELTA_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Edit:
    """The bytes in [position, end) become `data`."""

    position: int
    end: int
    data: bytes
    # What it does, for the plan.
    reason: str


def filler(first_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """Empty batches for the offsets from first to last, both inclusive."""
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


def in_order(edits: Iterable[Edit]) -> list[Edit]:
    """By position; of edits that overlap the one that begins first and reaches furthest wins."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda it: (it.position, -it.end)):
        if not kept or edit.position >= kept[-1].end:
            kept.append(edit)
    return kept


def edited(records: FileRecords, edits: Iterable[Edit]) -> Iterator[bytes]:
    """The file's contents with `edits` done, in pieces."""
    position = 0
    for edit in in_order(edits):
        yield from _copied(records, position, edit.position)
        if edit.data:
            yield edit.data
        position = edit.end
    yield from _copied(records, position, records.size)


def _copied(records: FileRecords, position: int, end: int) -> Iterator[bytes]:
    while position < end:
        data = records.file.pread(min(_STEP_BYTES, end - position), position)
        if not data:
            return
        yield data
        position += len(data)
