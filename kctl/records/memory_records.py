"""Walks the batches of a buffer, of any mix of formats v0, v1 and v2.

A buffer is what a Produce request, a Fetch response or a range of a segment holds: whole batches,
and perhaps a truncated last one. Size and magic are at the same place in every format.

Kafka 2.7: org.apache.kafka.common.record.MemoryRecords, ByteBufferLogInputStream
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.legacy import RECORD_OVERHEAD_V0, LegacyBatch
from kctl.records.record import Record
from kctl.records.record_batch import (
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    PREFIX,
    RECORD_BATCH_OVERHEAD,
    RecordBatch,
)

__all__ = ["batches", "records", "valid_end"]

Batch = RecordBatch | LegacyBatch

CURRENT_MAGIC: Final = 2


class BatchLocation(NamedTuple):
    """The position of a batch and the fields of its first 17 bytes."""

    position: int
    # Size in bytes, which may reach beyond the buffer's end: then the batch is truncated.
    size: int
    magic: int
    # Base offset in v2, last offset in v0 and v1.
    offset: int


def locate(buffer: Buffer, position: int = 0, size_max: int | None = None) -> BatchLocation | None:
    """Return the batch at `position`; None if there are fewer than 17 bytes.

    CorruptDataError if size or magic are invalid, or the size is over `size_max`.
    """
    if len(buffer) - position < HEADER_SIZE_UP_TO_MAGIC:
        return None
    offset, length = PREFIX.unpack_from(buffer, position)
    if length < RECORD_OVERHEAD_V0:
        raise CorruptDataError(
            f"Record size {length} is less than the minimum record overhead ({RECORD_OVERHEAD_V0})"
        )
    size = LOG_OVERHEAD + length
    if size_max is not None and size > size_max:
        raise CorruptDataError(f"Record size {size} is over the largest allowed ({size_max})")
    magic = buffer[position + MAGIC_OFFSET]
    if magic > CURRENT_MAGIC:
        raise CorruptDataError(f"Invalid magic found in record: {magic}")
    if magic == CURRENT_MAGIC and size < RECORD_BATCH_OVERHEAD:
        raise CorruptDataError(
            f"Record batch is corrupt (the size {size} is smaller than the minimum allowed "
            f"overhead {RECORD_BATCH_OVERHEAD})"
        )
    return BatchLocation(position, size, magic, offset)


def locations(buffer: Buffer, position: int = 0) -> Iterator[BatchLocation]:
    """Yield every whole batch from `position` on, up to a truncated one; errors as in `locate`."""
    end = len(buffer)
    while (found := locate(buffer, position)) is not None:
        position += found.size
        if position > end:
            return
        yield found


def batch_at(buffer: Buffer, position: int = 0, magic: int | None = None) -> Batch:
    """Return a view for the batch's format; `magic` if the caller has read it already."""
    if magic is None:
        magic = buffer[position + MAGIC_OFFSET]
    return (
        RecordBatch(buffer, position) if magic == CURRENT_MAGIC else LegacyBatch(buffer, position)
    )


def batches(buffer: Buffer, position: int = 0) -> Iterator[Batch]:
    """Yield every whole batch from `position` on, up to a truncated one.

    CorruptDataError at an invalid size. The caller checks checksums.
    """
    for found in locations(buffer, position):
        yield batch_at(buffer, found.position, found.magic)


def records(buffer: Buffer) -> Iterator[Record]:
    """Yield every record of every whole batch, control records included."""
    for batch in batches(buffer):
        yield from batch.records()


def valid_end(buffer: Buffer) -> int:
    """Return where the last whole batch ends, up to which bytes may be kept; errors
    as in `locate`."""
    end = 0
    for found in locations(buffer):
        end = found.position + found.size
    return end


def first_batch_size(buffer: Buffer) -> int | None:
    """Return the size of the first batch, even if it is truncated; None if it is not known yet."""
    found = locate(buffer)
    return None if found is None else found.size
