"""Checks whether the records of batches with valid checksums can be decoded.

A checksum proves that a batch is as its producer sent it, not that it can be decoded: a faulty
compressor, or a memory error before the checksum was computed, leaves batches that no consumer can
read.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch.streamingIterator
"""

from typing import TYPE_CHECKING

from kctl.errors import CorruptDataError
from kctl.records.bulk import can_decode_in_bulk
from kctl.records.memory_records import batch_at
from kctl.verify.segment_walk import WalkedBatch, Window

if TYPE_CHECKING:
    from kctl.records.columnar import RecordColumns

# Below this size decoding record by record is faster than loading numpy.
_BULK_BYTES = 256 * 1024


def unreadable_batches(window: Window) -> dict[int, str]:
    """Return the reasons why batches cannot be decoded, by position in the file."""
    if len(window.buffer) >= _BULK_BYTES and can_decode_in_bulk():
        return _unreadable_in_bulk(window)
    found = {}
    for batch in window.batches:
        reason = complaint_about(window.buffer, batch.position - window.position, batch)
        if reason is not None:
            found[batch.position] = reason
    return found


def complaint_about(buffer: memoryview, position: int, walked: WalkedBatch) -> str | None:
    """Return what is wrong with the records of the batch at `position`, or None."""
    try:
        last = -1
        for record in batch_at(buffer, position).records():
            if record.offset <= last:
                return f"offset {record.offset} follows {last}"
            last = record.offset
        if last > walked.last_offset:
            return f"a record has offset {last}, the batch ends with {walked.last_offset}"
    except CorruptDataError as error:
        return str(error)
    return None


def _unreadable_in_bulk(window: Window) -> dict[int, str]:
    from kctl.records.columnar import decode_chunks, everything

    found = {}
    for columns in decode_chunks(window.buffer, keep=everything, check_crc=False):
        for damage in columns.damages:
            found[window.position + damage.position] = damage.message
        for position in _out_of_order(columns):
            found.setdefault(window.position + position, "its records' offsets do not rise")
    return found


def _out_of_order(columns: "RecordColumns") -> list[int]:
    """Return positions of batches whose offsets do not rise, or exceed the batch's end."""
    offsets, indexes = columns.offsets, columns.batch_indexes
    if not len(offsets):
        return []
    is_odd = offsets > columns.batches.last_offsets[indexes]
    is_odd[1:] |= (offsets[1:] <= offsets[:-1]) & (indexes[1:] == indexes[:-1])
    return [int(columns.batches.positions[i]) for i in indexes[is_odd]]
