"""The rules for produced batches, the results of validation, and the checks of whole batches.

Shared by `log_validator` (the fast path) and `log_rewriter` (the slow path).

Kafka 2.7: kafka.log.LogValidator.validateBatch, AppendOrigin,
kafka.server.RecordValidationException
"""

from dataclasses import field
from enum import Enum
from typing import Final

from kctl.configs.config_key import LONG_MAX
from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import Buffer
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

# Maximum number of record errors reported: enough to find the cause.
RECORD_ERRORS_MAX: Final = 1000


class AppendOrigin(Enum):
    """The source of an append; clients are trusted least."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


# Looking up an Enum's member is slow.
_CLIENT: Final = AppendOrigin.CLIENT


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """A topic's configs for records; replaced when they change."""

    topic_partition: str
    # message.format.version as a magic number.
    magic: int = 2
    # compression.type as a CompressionType; None: the producer's codec.
    compression_type: int | None = None
    # message.timestamp.type
    timestamp_type: int = CREATE_TIME
    # message.timestamp.difference.max.ms
    timestamp_difference_max_ms: int = LONG_MAX
    # cleanup.policy contains compact: every record needs a key.
    is_compacted: bool = False
    # max.message.bytes
    message_bytes_max: int = 1_048_588
    # Whether a rule concerns single records, so that all of them must be read.
    needs_every_record: bool = field(init=False)

    def __post_init__(self) -> None:
        is_time_bounded = (
            self.timestamp_type == CREATE_TIME and self.timestamp_difference_max_ms < LONG_MAX
        )
        object.__setattr__(self, "needs_every_record", self.is_compacted or is_time_bounded)


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why one record was rejected; the index is its position in the batch (KIP-467)."""

    batch_index: int
    message: str


class RecordValidationError(ApiError):
    """The batch was rejected because of some of its records; Produce v8 reports them."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


@dataclass(slots=True)
class ValidatedRecords:
    """Records ready to append, with the facts that the log needs.

    Several batches occur only in formats v0 and v1, which have no producer ids.
    """

    # The original buffer unless `was_rewritten`.
    records: Buffer
    first_offset: int
    # Inclusive: first_offset - 1 if there are no records.
    last_offset: int
    # -1: no record has a timestamp.
    max_timestamp: int
    # Offset of the record that has it if that was determined, else its batch's last offset.
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
    """Check a v2 batch as a whole; raise ApiError if it is invalid."""
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
    """Raise ApiError (MESSAGE_TOO_LARGE) if a batch of `size` bytes is too large."""
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
        message = f"Batch has an invalid offset range: {offsets} {place}"
    elif count <= 0:
        message = f"Invalid reported count for record batch: {count} {place}"
    else:
        message = f"Inconsistent batch offset range {offsets} and count of records {count} {place}"
    return ApiError(ErrorCode.INVALID_RECORD, message)


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
