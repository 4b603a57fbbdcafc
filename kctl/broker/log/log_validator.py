"""LogValidator: checks what a producer sent, gives it offsets, and rewrites it only if it must.

Nearly every request is one v2 batch in the topic's format and codec. That road reads the header
once, checks the CRC, looks at the records (`record_checks`: bounded work) and patches offset and
leader epoch in place: the records' bytes are neither copied nor decoded. What a coordinator of
this broker built is only numbered. Every other case goes to `log_rewriter`, which reads record by
record.

Order of checks, which decides between error codes (Kafka's own):
1. base offset 0 (INVALID_RECORD), size (MESSAGE_TOO_LARGE), CRC (CORRUPT_MESSAGE);
2. one batch only, counts, no control records from clients, sequence (INVALID_RECORD);
3. idempotence and transactions in an old format (UNSUPPORTED_FOR_MESSAGE_FORMAT);
4. each record: structure, key on compacted topics (INVALID_RECORD), timestamp (INVALID_TIMESTAMP).

Invariants: an error leaves the buffer as it was; a buffer that is returned has its final offsets.
Not checked here: producer state, sequences, segment size: those are the log's.

Kafka 2.7: kafka.log.LogValidator, Log.analyzeAndValidateRecords; KIP-32, KIP-98, KIP-467
"""

import struct

from kctl.broker.log.log_rewriter import validate_and_rewrite
from kctl.broker.log.record_checks import CHECKED_BYTES, check_records
from kctl.broker.log.validation_rules import (
    AppendOrigin,
    RecordError,
    RecordValidationError,
    ValidatedRecords,
    ValidationRules,
    check_batch,
    check_size,
)
from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.checksum import crc32c
from kctl.records.compression import ZSTD, decompress_prefix
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_OFFSET,
    INT16,
    INT64,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_OFFSET,
    NO_TIMESTAMP,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    UINT32,
    BatchHeader,
    read_header,
)

__all__ = [
    "AppendOrigin",
    "RecordError",
    "RecordValidationError",
    "ValidatedRecords",
    "ValidationRules",
    "validate_records",
]

Buffer = bytes | bytearray | memoryview

# Looking up an Enum's member takes long.
_COORDINATOR = AppendOrigin.COORDINATOR
# baseOffset, batchLength, partitionLeaderEpoch: what assignment writes.
_ASSIGNMENT = struct.Struct(">qii")


def validate_records(
    records: Buffer,
    rules: ValidationRules,
    *,
    origin: AppendOrigin,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> ValidatedRecords:
    """Check `records` and number them from `next_offset`, in place if their buffer is writable.

    ApiError says which rule was broken (RecordValidationError: by which records); the offsets
    were then not used up.
    """
    size = len(records)
    if size >= RECORD_BATCH_OVERHEAD and rules.magic == 2:
        header = read_header(records)
        # Unpacked, as looking fields up by name costs more than the checks.
        _, length, _, magic, _, attributes, _, _, _, _, _, _, count = header
        codec = attributes & COMPRESSION_MASK
        if (
            magic == 2
            and length + LOG_OVERHEAD == size
            and (rules.compression_type is None or rules.compression_type == codec)
            and not attributes & TIMESTAMP_TYPE_MASK
            and (not rules.needs_every_record or origin is _COORDINATOR)
        ):
            if origin is _COORDINATOR:
                # This broker built the batch a moment ago: what it wrote it need not read again.
                check_size(size, rules)
                times = _times_of_own(header)
                return _assign(
                    records, header, rules, times, next_offset, leader_epoch, now_ms, codec
                )
            check_batch(records, 0, size, header, rules, origin)
            data, start, is_whole = records, RECORD_BATCH_OVERHEAD, True
            if codec:
                data, is_whole = _prefix_of(codec, records, CHECKED_BYTES)
                start = 0
            found = check_records(
                data, start, len(data), count,
                is_whole=is_whole, is_compressed=codec != 0,
            )  # fmt: skip
            if found is not None:
                return _assign(
                    records, header, rules, found, next_offset, leader_epoch, now_ms, codec
                )
    return validate_and_rewrite(records, rules, origin, next_offset, leader_epoch, now_ms)


def _times_of_own(header: BatchHeader) -> tuple[int, int]:
    """As `check_records` says it: records made together mostly have one timestamp."""
    return (0, 0) if header.base_timestamp == header.max_timestamp else (-1, 0)


def _prefix_of(codec: int, records: Buffer, length: int) -> tuple[bytes, bool]:
    """The first `length` bytes of a v2 batch's records; CORRUPT_MESSAGE if they are damaged
    (Kafka 2.7 answers UNKNOWN_SERVER_ERROR)."""
    if codec > ZSTD:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"Unknown compression type id: {codec}")
    try:
        return decompress_prefix(codec, memoryview(records)[RECORD_BATCH_OVERHEAD:], length)
    except CorruptDataError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def _assign(
    records: Buffer,
    header: BatchHeader,
    rules: ValidationRules,
    found: tuple[int, int],
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
    codec: int,
) -> ValidatedRecords:
    """Number the batch in place; `found` is what `check_records` said of the timestamps."""
    if isinstance(records, bytes) or (isinstance(records, memoryview) and records.readonly):
        records = bytearray(records)
    (
        _, length, _, _, _, sent_attributes, last_offset_delta, base_timestamp, sent_max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ) = header  # fmt: skip
    last_offset = offset_of_max_timestamp = next_offset + last_offset_delta
    max_timestamp = sent_max_timestamp
    attributes = sent_attributes
    number, delta = found
    if rules.timestamp_type == LOG_APPEND_TIME:
        max_timestamp = now_ms
        attributes |= TIMESTAMP_TYPE_MASK
    elif number >= 0:
        max_timestamp = base_timestamp + delta
        if not codec:
            has_timestamp = max_timestamp != NO_TIMESTAMP
            offset_of_max_timestamp = next_offset + number if has_timestamp else -1
    _ASSIGNMENT.pack_into(records, 0, next_offset, length, leader_epoch)
    if max_timestamp != sent_max_timestamp or attributes != sent_attributes:
        INT16.pack_into(records, ATTRIBUTES_OFFSET, attributes)
        INT64.pack_into(records, MAX_TIMESTAMP_OFFSET, max_timestamp)
        UINT32.pack_into(records, CRC_OFFSET, crc32c(memoryview(records)[ATTRIBUTES_OFFSET:]))
    return ValidatedRecords(
        records,
        next_offset,
        last_offset,
        max_timestamp,
        offset_of_max_timestamp,
        count,
        producer_id,
        producer_epoch,
        base_sequence,
        attributes & TRANSACTIONAL_MASK != 0,
        attributes & CONTROL_MASK != 0,
    )
