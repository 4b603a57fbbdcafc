"""Whether the records inside batches whose checksums are right can be read.

A checksum says that a batch is what somebody sent, not that it makes sense: a broken compressor,
or memory that flipped before the checksum was taken, leave batches that every consumer fails on.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecordBatch.streamingIterator
"""

from kctl.dump.segment_walk import WalkedBatch, Window
from kctl.errors import CorruptDataError
from kctl.records.memory_records import batch_at


def unreadable_batches(window: Window) -> dict[int, str]:
    """Why a batch cannot be read, by its position in the file."""
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
