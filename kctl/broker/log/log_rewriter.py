"""The slow path of validation: reads every record and rewrites the records if necessary.

It is used when a rule concerns single records (compacted topics, timestamp bounds), when the
producer's format or codec differs from the topic's, for v0 and v1 messages, and for batches whose
offsets do not count up from 0.

In place or rewritten, as in Kafka:

- format and codec are those of the topic: in place; but compressed v0 is always rewritten, as
  its inner offsets are absolute, and so is a batch whose inner offsets are not 0, 1, 2, ...
  (old clients; Kafka 2.7 rewrites v1 wrappers, fails on compressed v2, stores plain v2 as is);
- anything else: all records go into one new batch (uncompressed v0 and v1: one message each);
- control batches are never compressed by the broker.

A rewrite is built, and compressed, while the records are checked, and discarded at the first
invalid one: at most one batch is held twice, and never its decoded records. All work is done in
steps, because a batch of a few bytes may hold very many records.

Kafka 2.7: kafka.log.LogValidator; KIP-31, KIP-32, KIP-467
"""

from collections.abc import Iterator
from typing import NamedTuple

from kctl.broker.log.validation_rules import (
    RECORD_ERRORS_MAX,
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
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import DEFAULT_DECOMPRESSED_BYTES_MAX, NONE, ZSTD
from kctl.records.legacy import LegacyBatch
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import Batch, batches
from kctl.records.record import Record
from kctl.records.record_batch import LOG_APPEND_TIME, NO_TIMESTAMP, RecordBatch
from kctl.records.record_stream import (
    RECORDS_PER_STEP,
    DamagedCompressionError,
    Steps,
    legacy_message_steps,
    v2_record_steps,
)
from kctl.work import HELD_BYTES_MAX, Claim, ClaimingWork, Work

# The slow path takes some microseconds per record on the broker's only thread.
RECORDS_PER_BATCH_MAX = 1_000_000
# Bytes of plain messages checked in one step, in addition to RECORDS_PER_STEP records.
BYTES_PER_STEP = 1024 * 1024
# How many records a step of a compressed batch counts for at least: it decompresses a chunk.
_CHUNK_RECORDS = RECORDS_PER_STEP // 4
# Maximum bytes of plain messages in the topic's format; more if the request had at least a
# REWRITTEN_RATIO_MAXth of that.
REWRITTEN_BYTES_MAX = 16 * 1024 * 1024
REWRITTEN_RATIO_MAX = 8


class _Facts(NamedTuple):
    """The parameters of one append, passed from step to step."""

    rules: ValidationRules
    origin: AppendOrigin
    next_offset: int
    leader_epoch: int
    now_ms: int


class _BatchSet:
    """The whole batches of one append: one of v2, one wrapper, or any number of plain messages."""

    def __init__(self, records: Buffer, first: Batch, count: int, source: int) -> None:
        self.records = records
        self.first = first
        self.count = count
        # The codec of the last compressed batch.
        self.source = source
        # The inner offsets must be 0, 1, 2, ...
        self.counts_up = source != NONE or first.magic == 2

    def batches(self) -> Iterator[Batch]:
        """Yield the batches; they are not stored, as there may be millions."""
        return batches(self.records)


class _Seen(NamedTuple):
    """The result of reading the records of all batches."""

    record_count: int
    # Largest timestamp, -1 if there is none, and the number of the record that has it.
    max_timestamp: int
    number_of_max: int
    offsets_are_in_order: bool


def validate_and_rewrite(
    records: Buffer,
    rules: ValidationRules,
    origin: AppendOrigin,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> ClaimingWork[ValidatedRecords]:
    """Check every record of `records`, in steps; see `log_validator.validate_records`.

    The buffer must not change meanwhile; it is numbered in place in the last steps.
    """
    facts = _Facts(rules, origin, next_offset, leader_epoch, now_ms)
    if isinstance(records, bytes) or (isinstance(records, memoryview) and records.readonly):
        records = bytearray(records)
    found = yield from _analyze(records, facts)
    if found is None:
        return ValidatedRecords(records, next_offset, next_offset - 1, NO_TIMESTAMP, -1, 0)
    source = found.source
    target = source if rules.compression_type is None else rules.compression_type
    is_in_place = _may_stay(found.first, source, target, rules)
    if is_in_place:
        seen = yield from _read(found, facts, None)
        if seen.offsets_are_in_order:
            return (yield from _assign_in_place(found, seen, facts))
    builder = _make_builder(found.first, target, facts)
    seen = yield from _read(found, facts, builder)
    return _finish(found.first, builder, seen, facts)


def _analyze(records: Buffer, facts: _Facts) -> ClaimingWork[_BatchSet | None]:
    """Return the whole batches, each checked as such; an incomplete one at the end is ignored."""
    rules = facts.rules
    first: Batch | None = None
    count = source = end = 0
    odd: Batch | None = None
    pace = _Steps()
    try:
        for batch in batches(records):
            if isinstance(batch, RecordBatch):
                check_batch(records, batch.position, batch.size, batch.header, rules, facts.origin)
            else:
                check_size(batch.size, rules)
                if not batch.is_crc_valid():
                    raise ApiError(
                        ErrorCode.CORRUPT_MESSAGE,
                        f"Record is corrupt (stored crc = {batch.crc}) in topic partition "
                        f"{rules.topic_partition}.",
                    )
            first = first or batch
            if batch.magic != first.magic:
                odd = odd or batch
            count += 1
            source = batch.compression_type or source
            end = batch.position + batch.size
            if pace.is_over(1, batch.size):
                yield None
    except CorruptDataError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if first is None:
        return None
    if count > 1 and (first.magic >= 2 or source != NONE):
        raise ApiError(ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch")
    if odd is not None:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Batch magic {odd.magic} is not the same as the first batch'es magic byte "
            f"{first.magic} in topic partition {rules.topic_partition}.",
        )
    # An incomplete batch may follow the last whole one.
    whole = records if end == len(records) else memoryview(records)[:end]
    return _BatchSet(whole, first, count, source)


class _Steps:
    """Limits the records and bytes processed in one step."""

    def __init__(self) -> None:
        self._left = float(RECORDS_PER_STEP)

    def is_over(self, records: int, size: int) -> bool:
        """Count work; return whether the step should end."""
        self._left -= records + size * RECORDS_PER_STEP / BYTES_PER_STEP
        if self._left > 0:
            return False
        self._left = RECORDS_PER_STEP
        return True


def _may_stay(first: Batch, source: int, target: int, rules: ValidationRules) -> bool:
    if source == NONE and first.is_control:
        return True
    if source != target or first.magic != rules.magic:
        return False
    return source == NONE or first.magic > 0


def _read(  # noqa: C901 - one loop over all records, of every kind
    found: _BatchSet, facts: _Facts, builder: RecordBatchBuilder | MessageSetBuilder | None
) -> ClaimingWork[_Seen]:
    """Check every record; with a `builder`, also append the records to it with new offsets."""
    number = 0
    best, number_of_best = NO_TIMESTAMP, -1
    is_in_order = True
    pace = _Steps()
    for batch in found.batches():
        errors: list[RecordError] = []
        first_number = number
        is_bad_time = False
        for step in _record_steps(batch, facts.rules):
            if isinstance(step, Claim):
                yield step
                continue
            if builder is not None and step and _is_long(step[0]):
                # It was copied when it was decoded, and is copied again when it is appended.
                yield None
            for record in step:
                error = _check_record(batch, record, number - first_number, facts)
                if error is not None:
                    is_bad_time |= error[0]
                    if len(errors) < RECORD_ERRORS_MAX:
                        errors.append(error[1])
                elif builder is not None and not errors:
                    _append(builder, record, facts.next_offset + number)
                if record.offset != number:
                    is_in_order = False
                if record.timestamp > best:
                    best, number_of_best = record.timestamp, number
                number += 1
            if builder is not None:
                yield from _limiting(builder, found, facts.rules)
            # A step without a result has decompressed something, too.
            if pace.is_over(
                max(len(step), _CHUNK_RECORDS if batch.compression_type else 1), batch.size
            ):
                yield None
        if errors:
            raise _refusal(errors, is_bad_time=is_bad_time)
    return _Seen(number, best, number_of_best, is_in_order or not found.counts_up)


def _is_long(record: Record) -> bool:
    """Return whether a record is so long that a copy of it takes milliseconds. Such a record is the
    first of its step."""
    return len(record.value or b"") + len(record.key or b"") > HELD_BYTES_MAX


def _limiting(
    builder: RecordBatchBuilder | MessageSetBuilder, found: _BatchSet, rules: ValidationRules
) -> Work[None]:
    """Limit the memory of the builder: compress as records arrive, and drop the content of a batch
    that is already too large. A set of plain messages has no size limit of its own."""
    if builder.compression_type:
        yield from builder.compressing()
    if _is_one_batch(builder):
        if builder.built_size > rules.message_bytes_max:
            builder.forget()
    elif builder.built_size > max(REWRITTEN_BYTES_MAX, REWRITTEN_RATIO_MAX * len(found.records)):
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(found.records)} bytes of records in topic partition {rules.topic_partition} "
            f"come to more than {builder.built_size} bytes in the topic's message format",
        )


def _is_one_batch(builder: RecordBatchBuilder | MessageSetBuilder) -> bool:
    return builder.magic == 2 or builder.compression_type != NONE


def _record_steps(batch: Batch, rules: ValidationRules) -> Steps[Record]:
    """Yield the batch's records in steps; raise ApiError, never CorruptDataError, if they are
    damaged."""
    count = batch.count
    if count is not None and count > RECORDS_PER_BATCH_MAX:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {count} records is too large to be checked"
        )
    try:
        if isinstance(batch, RecordBatch):
            if batch.compression_type > ZSTD:
                raise DamagedCompressionError(
                    f"Unknown compression type id: {batch.compression_type}"
                )
            # Numbered from 0, whatever base offset a coordinator's batch has.
            yield from v2_record_steps(batch, 0, bytes_max=DEFAULT_DECOMPRESSED_BYTES_MAX)
            return
        for messages in legacy_message_steps(batch, DEFAULT_DECOMPRESSED_BYTES_MAX):
            if isinstance(messages, Claim):
                yield messages
            else:
                yield [_record_of(batch, message, rules) for message in messages]
    except DamagedCompressionError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except CorruptDataError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None


def _record_of(batch: LegacyBatch, message: LegacyBatch, rules: ValidationRules) -> Record:
    if batch.compression_type and not message.is_crc_valid():
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {message.crc}, computed crc = "
            f"{message.compute_crc()}) in topic partition {rules.topic_partition}.",
        )
    key, value = message.key_and_value()
    return Record(message.offset, message.timestamp, key, value)


def _check_record(
    batch: Batch, record: Record, index: int, facts: _Facts
) -> tuple[bool, RecordError] | None:
    """Return why the record is rejected and whether this is for its timestamp, or None if it is
    valid."""
    rules = facts.rules
    if rules.is_compacted and record.key is None:
        message = (
            f"Compacted topic cannot accept message without key in topic partition "
            f"{rules.topic_partition}."
        )
        return False, RecordError(index, message)
    if batch.timestamp_type == LOG_APPEND_TIME:
        message = (
            f"Invalid timestamp type in message at index {index}. Producer should not set "
            f"timestamp type to LogAppendTime."
        )
        return True, RecordError(index, message)
    if rules.timestamp_type == LOG_APPEND_TIME or record.timestamp == NO_TIMESTAMP:
        return None
    most = rules.timestamp_difference_max_ms
    if abs(record.timestamp - facts.now_ms) <= most:
        return None
    message = (
        f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
        f"The timestamp should be within [{facts.now_ms - most}, {facts.now_ms + most}]"
    )
    return True, RecordError(index, message)


def _refusal(errors: list[RecordError], *, is_bad_time: bool) -> RecordValidationError:
    if is_bad_time:
        return RecordValidationError(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            errors,
        )
    return RecordValidationError(
        ErrorCode.INVALID_RECORD, "One or more records have been rejected", errors
    )


def _make_builder(
    first: Batch, target: int, facts: _Facts
) -> RecordBatchBuilder | MessageSetBuilder:
    rules = facts.rules
    if rules.magic < 2:
        if target == ZSTD:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"ZStandard compression is not supported for magic {rules.magic}",
            )
        return MessageSetBuilder(
            magic=rules.magic,
            base_offset=facts.next_offset,
            compression_type=target,
            timestamp_type=rules.timestamp_type,
            append_timestamp=facts.now_ms,
        )
    return RecordBatchBuilder(
        base_offset=facts.next_offset,
        compression_type=target,
        timestamp_type=rules.timestamp_type,
        append_timestamp=facts.now_ms,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.base_sequence,
        is_transactional=first.is_transactional,
        is_control=first.is_control,
        partition_leader_epoch=facts.leader_epoch,
    )


def _append(builder: RecordBatchBuilder | MessageSetBuilder, record: Record, offset: int) -> None:
    if builder.magic < 2 and record.headers:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,  # As in Kafka 2.7.
            f"Magic v{builder.magic} does not support record headers",
        )
    builder.append(
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
        offset=offset,
    )


def _assign_in_place(
    found: _BatchSet, seen: _Seen, facts: _Facts
) -> ClaimingWork[ValidatedRecords]:
    is_append_time = facts.rules.timestamp_type == LOG_APPEND_TIME
    next_offset = facts.next_offset
    pace = _Steps()
    for batch in found.batches():
        next_offset += seen.record_count if found.count == 1 else 1
        batch.set_last_offset(next_offset - 1)
        if isinstance(batch, RecordBatch):
            batch.set_partition_leader_epoch(facts.leader_epoch)
        if batch.magic > 0:
            largest = seen.max_timestamp if found.count == 1 else batch.max_timestamp
            stamp = facts.now_ms if is_append_time else largest
            batch.set_max_timestamp(facts.rules.timestamp_type, stamp)
        if pace.is_over(1, batch.size) and found.count > 1:
            yield None
    last_offset = next_offset - 1
    first = found.first
    max_timestamp, offset_of_max = NO_TIMESTAMP, -1
    if seen.max_timestamp > NO_TIMESTAMP:
        max_timestamp = seen.max_timestamp
        offset_of_max = facts.next_offset + seen.number_of_max
    if is_append_time:
        max_timestamp = facts.now_ms
        offset_of_max = last_offset if first.magic == 2 else facts.next_offset
    if first.compression_type:
        offset_of_max = last_offset
    return _result(found.records, first, seen, facts, max_timestamp, offset_of_max)


def _finish(
    first: Batch,
    builder: RecordBatchBuilder | MessageSetBuilder,
    seen: _Seen,
    facts: _Facts,
) -> ValidatedRecords:
    is_one_batch = _is_one_batch(builder)
    built = builder.build()
    if is_one_batch:
        check_size(builder.built_size, facts.rules)
    max_timestamp = builder.max_timestamp
    offset_of_max = builder.offset_of_max_timestamp
    if facts.rules.timestamp_type == LOG_APPEND_TIME:
        max_timestamp = facts.now_ms
        offset_of_max = builder.base_offset
    if is_one_batch or max_timestamp == NO_TIMESTAMP:
        offset_of_max = builder.last_offset
    result = _result(built, first, seen, facts, max_timestamp, offset_of_max)
    result.was_rewritten = True
    return result


def _result(
    records: Buffer,
    first: Batch,
    seen: _Seen,
    facts: _Facts,
    max_timestamp: int,
    offset_of_max: int,
) -> ValidatedRecords:
    return ValidatedRecords(
        records,
        facts.next_offset,
        facts.next_offset + seen.record_count - 1,
        max_timestamp,
        offset_of_max,
        seen.record_count,
        first.producer_id,
        first.producer_epoch,
        first.base_sequence,
        first.is_transactional,
        first.is_control,
    )
