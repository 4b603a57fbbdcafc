"""What a produced batch must obey, what comes of checking it, and the checks of whole batches.

The nouns that `log_validator` (the short road) and `log_rewriter` (the long one) share.

Kafka 2.7: kafka.log.LogValidator.validateBatch, AppendOrigin,
kafka.server.RecordValidationException
"""

from dataclasses import dataclass, field
from enum import Enum

from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.checksum import crc32c
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    CONTROL_MASK,
    CREATE_TIME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    BatchHeader,
)

Buffer = bytes | bytearray | memoryview

LONG_MAX = 2**63 - 1
# Of the errors of single records so many are reported: enough to find the cause.
RECORD_ERRORS_MAX = 1000


class AppendOrigin(Enum):
    """Who appends; clients are trusted least."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


# An Enum takes long to look its members up.
_CLIENT = AppendOrigin.CLIENT


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """What a topic's configuration says about records; made anew when it changes."""

    topic_partition: str
    # message.format.version as a magic number.
    magic: int = 2
    # compression.type as a CompressionType; None: whatever the producer chose.
    compression_type: int | None = None
    # message.timestamp.type
    timestamp_type: int = CREATE_TIME
    # message.timestamp.difference.max.ms
    timestamp_difference_max_ms: int = LONG_MAX
    # cleanup.policy has compact: every record needs a key.
    is_compacted: bool = False
    # max.message.bytes
    message_bytes_max: int = 1_048_588
    # Whether a rule speaks about single records, so that all of them must be read.
    needs_every_record: bool = field(init=False)

    def __post_init__(self) -> None:
        is_time_bounded = (
            self.timestamp_type == CREATE_TIME and self.timestamp_difference_max_ms < LONG_MAX
        )
        object.__setattr__(self, "needs_every_record", self.is_compacted or is_time_bounded)


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why one record was refused; the index is the record's place in its batch (KIP-467)."""

    batch_index: int
    message: str


class RecordValidationError(ApiError):
    """The batch was refused for some of its records; Produce v8 names them."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


@dataclass(slots=True)
class ValidatedRecords:
    """Records ready to be appended, and what the log wants to know of them.

    Several batches occur only in formats v0 and v1, which have no producer ids.
    """

    # The very buffer that came in unless `was_rewritten`.
    records: Buffer
    first_offset: int
    # Inclusive: first_offset - 1 if there was nothing at all.
    last_offset: int
    # -1: none of them has a timestamp.
    max_timestamp: int
    # Of the record that has it as far as that was looked at, else its batch's last offset.
    offset_of_max_timestamp: int
    count: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    was_rewritten: bool = False


def check_batch(
    records: Buffer,
    position: int,
    size: int,
    header: BatchHeader,
    rules: ValidationRules,
    origin: AppendOrigin,
) -> None:
    """What can be said of a v2 batch as a whole; ApiError if it is wrong."""
    # Unpacked, as looking fields up by name costs more than the checks.
    (
        base_offset, _, _, _, crc, attributes, last_offset_delta, _, _,
        producer_id, _, base_sequence, count,
    ) = header  # fmt: skip
    is_client = origin is _CLIENT
    if is_client and base_offset != 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {rules.topic_partition} should "
            f"be 0, but it is {base_offset}",
        )
    if size > rules.message_bytes_max:
        check_size(size, rules)
    body = memoryview(records)[position + ATTRIBUTES_OFFSET : position + size]
    if crc32c(body) != crc:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {crc}) in topic partition {rules.topic_partition}.",
        )
    if is_client:
        if count != last_offset_delta + 1 or count <= 0:
            raise _wrong_count(header, rules)
        if attributes & CONTROL_MASK:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"Clients are not allowed to write control records in topic partition "
                f"{rules.topic_partition}.",
            )
        if producer_id >= 0 > base_sequence:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"Invalid sequence number {base_sequence} in record batch with producerId "
                f"{producer_id} in topic partition {rules.topic_partition}.",
            )
    if rules.magic < 2:
        _check_old_format(header, rules)


def check_size(size: int, rules: ValidationRules) -> None:
    """MESSAGE_TOO_LARGE if a batch of `size` bytes is."""
    if size > rules.message_bytes_max:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {rules.topic_partition} is {size} bytes "
            f"which exceeds the maximum configured value of {rules.message_bytes_max}.",
        )


def _wrong_count(header: BatchHeader, rules: ValidationRules) -> ApiError:
    count = header.record_count
    last = header.base_offset + header.last_offset_delta
    offsets = f"[{header.base_offset}, {last}]"
    place = f"in topic partition {rules.topic_partition}."
    if header.last_offset_delta < 0:
        words = f"Batch has an invalid offset range: {offsets} {place}"
    elif count <= 0:
        words = f"Invalid reported count for record batch: {count} {place}"
    else:
        words = f"Inconsistent batch offset range {offsets} and count of records {count} {place}"
    return ApiError(ErrorCode.INVALID_RECORD, words)


def _check_old_format(header: BatchHeader, rules: ValidationRules) -> None:
    if header.attributes & TRANSACTIONAL_MASK:
        raise ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Transactional records cannot be used with magic version {rules.magic}",
        )
    if header.producer_id >= 0:
        raise ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Idempotent records cannot be used with magic version {rules.magic}",
        )
