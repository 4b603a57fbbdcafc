"""LogValidator: checks records from a producer, assigns offsets, and rewrites them if necessary.

Nearly every request is one v2 batch in the topic's format and codec. For these the fast path reads
the header once, checks the CRC, examines the records (`record_checks`: bounded work) and patches
offset and leader epoch in place: the records' bytes are neither copied nor decoded. Batches built
by a coordinator of this broker are only numbered. All other cases go to `log_rewriter`, which reads
record by record.

Order of checks, which decides between error codes (as in Kafka):

1. base offset 0 (INVALID_RECORD), size (MESSAGE_TOO_LARGE), CRC (CORRUPT_MESSAGE); 2. one batch
only, counts, no control records from clients, sequence (INVALID_RECORD); 3. idempotence and
transactions in an old format (UNSUPPORTED_FOR_MESSAGE_FORMAT); 4. each record: structure, key on
compacted topics (INVALID_RECORD), timestamp (INVALID_TIMESTAMP).

Invariants: an error leaves the buffer unchanged; a returned buffer has its final offsets. Producer
state, sequences and segment size are checked by the log, not here.

Kafka 2.7: kafka.log.LogValidator, Log.analyzeAndValidateRecords; KIP-32, KIP-98, KIP-467
"""

import struct
from typing import Final, NamedTuple

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
from kctl.protocol.primitives import Buffer
from kctl.records.checksum import crc32c
from kctl.records.compression import ZSTD
from kctl.records.compression_stream import decompress_prefix
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
from kctl.records.record_stream import RECORDS_PER_STEP
from kctl.work import Claim, ClaimingWork

__all__ = [
    "AppendOrigin",
    "CheckedRecords",
    "RecordError",
    "RecordValidationError",
    "ValidatedRecords",
    "ValidationInTurns",
    "ValidationRules",
    "validate_records",
]


class ValidationInTurns(Exception):
    """The check needs several turns: the caller continues `work` and appends its result, if nothing
    else was appended meanwhile and the leader is the same."""

    def __init__(
        self,
        work: ClaimingWork[ValidatedRecords],
        rules: ValidationRules,
        next_offset: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        super().__init__("these records are checked in turns")
        self.work = work
        self.rules = rules
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms


class CheckedRecords(NamedTuple):
    """Records that were checked in turns, with the result."""

    pending: ValidationInTurns
    found: ValidatedRecords

    def of(self, rules: ValidationRules, next_offset: int, leader_epoch: int) -> ValidatedRecords:
        """Return the records if they were checked and numbered for this leader and log end offset.

        Otherwise raise ApiError (NOT_LEADER_OR_FOLLOWER), so that the client refreshes metadata and
        retries.
        """
        wanted = rules, next_offset, leader_epoch
        if (self.pending.rules, self.pending.next_offset, self.pending.leader_epoch) != wanted:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.found


# Looking up an Enum's member is slow.
_COORDINATOR: Final = AppendOrigin.COORDINATOR
# baseOffset, batchLength, partitionLeaderEpoch: the fields that assignment writes.
_ASSIGNMENT: Final = struct.Struct(">qii")


def validate_records(
    records: Buffer | CheckedRecords,
    rules: ValidationRules,
    *,
    origin: AppendOrigin,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> ValidatedRecords:
    """Check `records` and number them from `next_offset`, in place if their buffer is writable.

    Raise ApiError with the broken rule (RecordValidationError also names the records); offsets are
    then not used up. Raise ValidationInTurns if the check needs more than one step.
    """
    if isinstance(records, CheckedRecords):
        return records.of(rules, next_offset, leader_epoch)
    size = len(records)
    is_long = False
    if size >= RECORD_BATCH_OVERHEAD and rules.magic == 2:
        header = read_header(records)
        # Unpacked, as looking fields up by name costs more than the checks.
        _, length, _, magic, _, attributes, _, _, _, _, _, _, count = header
        is_long = magic == 2 and count > RECORDS_PER_STEP
        codec = attributes & COMPRESSION_MASK
        if (
            magic == 2
            and length + LOG_OVERHEAD == size
            and (rules.compression_type is None or rules.compression_type == codec)
            and not attributes & TIMESTAMP_TYPE_MASK
            and (not rules.needs_every_record or origin is _COORDINATOR)
        ):
            if origin is _COORDINATOR:
                # This broker has just built the batch, so its records need no check.
                check_size(size, rules)
                times = _own_timestamps(header)
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
    work = validate_and_rewrite(records, rules, origin, next_offset, leader_epoch, now_ms)
    if is_long:
        # Not even one step here: a caller that cannot wait would do it in vain.
        raise ValidationInTurns(work, rules, next_offset, leader_epoch, now_ms)
    try:
        claim = next(work)
    except StopIteration as stop:
        found_all: ValidatedRecords = stop.value
        return found_all
    rest = _resumed(claim, work)
    raise ValidationInTurns(rest, rules, next_offset, leader_epoch, now_ms)


def _resumed(
    claim: Claim | None, work: ClaimingWork[ValidatedRecords]
) -> ClaimingWork[ValidatedRecords]:
    """Yield `claim`, which the first step of `work` produced, and then the rest of `work`."""
    yield claim
    return (yield from work)


def _own_timestamps(header: BatchHeader) -> tuple[int, int]:
    """Return the result of `check_records` for a coordinator's batch, whose records mostly share a
    timestamp."""
    return (0, 0) if header.base_timestamp == header.max_timestamp else (-1, 0)


def _prefix_of(codec: int, records: Buffer, length: int) -> tuple[bytes, bool]:
    """Return the first `length` bytes of a v2 batch's records; raise CORRUPT_MESSAGE if they are
    damaged (Kafka 2.7 returns UNKNOWN_SERVER_ERROR)."""
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
    """Number the batch in place; `found` is the result of `check_records`."""
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
