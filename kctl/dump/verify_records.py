"""Whether the records inside batches whose checksums are right can be read.

A checksum says that a batch is what somebody sent, not that it makes sense: a broken compressor,
or memory that flipped before the checksum was taken, leave batches that every consumer fails on.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch.streamingIterator
"""

from typing import TYPE_CHECKING

from kctl.dump.segment_walk import WalkedBatch, Window
from kctl.errors import CorruptDataError
from kctl.records.memory_records import batch_at

if TYPE_CHECKING:
    from kctl.records.columnar import RecordColumns

# Below this a record at a time is done before numpy is loaded.
_BULK_BYTES = 256 * 1024


def unreadable_batches(window: Window) -> dict[int, str]:
    """Why a batch cannot be read, by its position in the file."""
    if len(window.buffer) >= _BULK_BYTES:
        return _unreadable_in_bulk(window)
    found = {}
    for batch in window.batches:
        reason = complaint_about(window.buffer, batch.position - window.position, batch)
        if reason is not None:
            found[batch.position] = reason
    return found


def complaint_about(buffer: memoryview, position: int, walked: WalkedBatch) -> str | None:
    """What is wrong with the records of the batch at `position`; None: nothing is."""
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
    """Positions of batches whose offsets do not rise, or go beyond the batch's end."""
    offsets, indexes = columns.offsets, columns.batch_indexes
    if not len(offsets):
        return []
    is_odd = offsets > columns.batches.last_offsets[indexes]
    is_odd[1:] |= (offsets[1:] <= offsets[:-1]) & (indexes[1:] == indexes[:-1])
    return [int(columns.batches.positions[i]) for i in indexes[is_odd]]
