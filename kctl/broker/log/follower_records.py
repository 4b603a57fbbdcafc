"""Checks records that a leader sent, before a follower appends them as they are.

Kafka 2.7: kafka.log.Log.analyzeAndValidateRecords (for followers)
"""

from dataclasses import dataclass, field

from kctl.errors import CorruptDataError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.memory_records import Batch, batches
from kctl.records.record_batch import NO_TIMESTAMP, RecordBatch

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class FollowerRecords:
    """Whole, valid batches with rising offsets."""

    first_offset: int
    # Bytes of the whole batches; a cut one at the end is not counted.
    length: int = 0
    last_offset: int = -1
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    batches: list[Batch] = field(default_factory=list)


def check_follower_records(
    records: Buffer, topic_partition: TopicPartition, log_end_offset: int
) -> FollowerRecords:
    """ApiError: CORRUPT_MESSAGE for a bad checksum or size, UNKNOWN_SERVER_ERROR for offsets that
    fall or that the log has already."""
    found = FollowerRecords(-1)
    expected = log_end_offset
    try:
        for batch in batches(records):
            _check_crc(batch)
            first = batch.base_offset if isinstance(batch, RecordBatch) else batch.last_offset
            if first < expected:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"Unexpected offset in append to {topic_partition}: first offset {first} of "
                    f"a batch is less than the next offset {expected}",
                )
            if not found.batches:
                found.first_offset = first
            found.batches.append(batch)
            found.length += batch.size
            found.last_offset = batch.last_offset
            expected = batch.last_offset + 1
            if batch.max_timestamp > found.max_timestamp:
                found.max_timestamp = batch.max_timestamp
                found.offset_of_max_timestamp = batch.last_offset
    except CorruptDataError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: {error}") from None
    return found


def start_of_first_batch(records: Buffer, log_end_offset: int) -> int:
    """Where an empty log is to begin, to which these are to be appended: where it is, or where the
    batch begins in whose middle that is, as records before it were deleted at the leader."""
    try:
        first = next(iter(batches(records)), None)
    except CorruptDataError:
        return log_end_offset
    if isinstance(first, RecordBatch) and first.last_offset >= log_end_offset:
        return min(first.base_offset, log_end_offset)
    return log_end_offset


def _check_crc(batch: Batch) -> None:
    if isinstance(batch, RecordBatch):
        batch.ensure_valid()
    elif not batch.is_crc_valid():
        raise CorruptDataError(f"Record is corrupt (stored crc = {batch.crc})")
