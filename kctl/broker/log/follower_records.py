"""Checks records from a leader before a follower appends them unchanged.

Kafka 2.7: kafka.log.Log.analyzeAndValidateRecords (for followers)
"""

from dataclasses import field

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import Buffer
from kctl.records.memory_records import Batch, batches
from kctl.records.record_batch import NO_TIMESTAMP, RecordBatch


@dataclass(slots=True)
class FollowerRecords:
    """Whole, valid batches with increasing offsets."""

    first_offset: int
    # Bytes of the whole batches; an incomplete one at the end is not counted.
    length: int = 0
    last_offset: int = -1
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    batches: list[Batch] = field(default_factory=list)


def check_follower_records(
    records: Buffer, topic_partition: TopicPartition, log_end_offset: int
) -> FollowerRecords:
    """Return the whole batches of `records`.

    Raise ApiError: CORRUPT_MESSAGE for a wrong checksum or size, UNKNOWN_SERVER_ERROR for offsets
    that decrease or that are already in the log.
    """
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
    """Return the offset at which an empty log must begin before it appends `records`.

    This is its end offset, or the start of the first batch if the end offset lies inside it,
    because the records before it were deleted on the leader.
    """
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
