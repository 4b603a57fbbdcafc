"""The long road of validation: every record is read, and the records are rewritten if need be.

Taken when a rule speaks about single records (compacted topics, timestamp bounds), when the
producer's format or codec is not the topic's, for v0 and v1 messages, and for batches whose
offsets do not count up from 0.

In place or rewritten, as Kafka decides it:
- format and codec as the topic wants them: in place; but compressed v0 is always rewritten, as
  its inner offsets are absolute, and so is a batch whose inner offsets are not 0, 1, 2, ...
  (old clients; Kafka 2.7 rewrites v1 wrappers, fails on compressed v2, stores plain v2 as it is);
- anything else: all records go into one new batch (uncompressed v0 and v1: one message each);
- control batches are never compressed by the broker.

A rewrite is built while the records are checked and thrown away at the first bad one, so no more
than one batch is ever held twice.

Kafka 2.7: kafka.log.LogValidator; KIP-31, KIP-32, KIP-467
"""

from collections.abc import Iterator
from typing import NamedTuple

from kctl.broker.log.validation_rules import (
    RECORD_ERRORS_MAX,
    AppendOrigin,
    Buffer,
    RecordError,
    RecordValidationError,
    ValidatedRecords,
    ValidationRules,
    check_batch,
    check_size,
)
from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import NONE, ZSTD, decompress
from kctl.records.legacy import LegacyBatch
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import Batch, batches
from kctl.records.record import Record, decode_records
from kctl.records.record_batch import LOG_APPEND_TIME, NO_TIMESTAMP, RecordBatch

# The long road takes about a microsecond a record on the broker's only thread.
RECORDS_PER_BATCH_MAX = 1_000_000


class _Facts(NamedTuple):
    """What one append is checked against, handed from step to step."""

    rules: ValidationRules
    origin: AppendOrigin
    next_offset: int
    leader_epoch: int
    now_ms: int


class _Seen(NamedTuple):
    """What reading the records of all batches found."""

    record_count: int
    # Of each batch.
    counts: list[int]
    # Largest timestamp of each batch, -1 if it has none, and the number of the record with it.
    max_timestamps: list[tuple[int, int]]
    offsets_are_in_order: bool


def validate_and_rewrite(
    records: Buffer,
    rules: ValidationRules,
    origin: AppendOrigin,
    next_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> ValidatedRecords:
    """Check every record of `records`; see `log_validator.validate_records`."""
    facts = _Facts(rules, origin, next_offset, leader_epoch, now_ms)
    if isinstance(records, bytes) or (isinstance(records, memoryview) and records.readonly):
        records = bytearray(records)
    found = _analyze(records, facts)
    if not found:
        return ValidatedRecords(records, next_offset, next_offset - 1, NO_TIMESTAMP, -1, 0)
    end = found[-1].position + found[-1].size
    if end < len(records):
        # Behind the last whole batch lies a cut one.
        records = memoryview(records)[:end]
    source = next((batch.compression_type for batch in found[::-1] if batch.compression_type), NONE)
    target = source if rules.compression_type is None else rules.compression_type
    _check_set(found, source, rules)
    is_in_place = _may_stay(found[0], source, target, rules)
    if is_in_place:
        seen = _read(found, facts, source, None)
        if seen.offsets_are_in_order:
            return _assign_in_place(records, found, seen, facts)
    builder = _make_builder(found[0], target, facts)
    seen = _read(found, facts, source, builder)
    return _finish(found[0], builder, seen, facts)


def _analyze(records: Buffer, facts: _Facts) -> list[Batch]:
    """The whole batches, each checked as such; a cut one at the end is ignored."""
    rules = facts.rules
    found: list[Batch] = []
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
            found.append(batch)
    except CorruptDataError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return found


def _check_set(found: list[Batch], source: int, rules: ValidationRules) -> None:
    """What can be said of the batches together."""
    first = found[0]
    if len(found) > 1 and (first.magic >= 2 or source != NONE):
        raise ApiError(ErrorCode.INVALID_RECORD, "Compressed outer record has more than one batch")
    for batch in found:
        if batch.magic != first.magic:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"Batch magic {batch.magic} is not the same as the first batch'es magic byte "
                f"{first.magic} in topic partition {rules.topic_partition}.",
            )


def _may_stay(first: Batch, source: int, target: int, rules: ValidationRules) -> bool:
    if source == NONE and first.is_control:
        return True
    if source != target or first.magic != rules.magic:
        return False
    return source == NONE or first.magic > 0


def _read(
    found: list[Batch],
    facts: _Facts,
    source: int,
    builder: RecordBatchBuilder | MessageSetBuilder | None,
) -> _Seen:
    """Check every record; with a `builder`, also give it the records, newly numbered."""
    number = 0
    counts: list[int] = []
    max_timestamps: list[tuple[int, int]] = []
    is_in_order = True
    must_count_up = source != NONE or found[0].magic == 2
    for batch in found:
        errors: list[RecordError] = []
        best = (NO_TIMESTAMP, -1)
        first_number = number
        is_bad_time = False
        for record in _records(batch, facts.rules):
            error = _check_record(batch, record, number - first_number, facts)
            if error is not None:
                is_bad_time |= error[0]
                if len(errors) < RECORD_ERRORS_MAX:
                    errors.append(error[1])
            elif builder is not None and not errors:
                _append(builder, record, facts.next_offset + number)
            if must_count_up and record.offset != number:
                is_in_order = False
            if record.timestamp > best[0]:
                best = (record.timestamp, number)
            number += 1
        if errors:
            raise _refusal(errors, is_bad_time=is_bad_time)
        counts.append(number - first_number)
        max_timestamps.append(best)
    return _Seen(number, counts, max_timestamps, is_in_order)


def _records(batch: Batch, rules: ValidationRules) -> Iterator[Record]:
    """The batch's records; ApiError, and never CorruptDataError, where they are damaged."""
    count = batch.count
    if count is not None and count > RECORDS_PER_BATCH_MAX:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"A batch of {count} records is too large to be checked"
        )
    if isinstance(batch, RecordBatch):
        yield from _v2_records(batch)
        return
    try:
        for message in _messages(batch):
            if batch.compression_type and not message.is_crc_valid():
                raise ApiError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"Record is corrupt (stored crc = {message.crc}, computed crc = "
                    f"{message.compute_crc()}) in topic partition {rules.topic_partition}.",
                )
            key, value = message.key_and_value()
            yield Record(message.offset, message.timestamp, key, value)
    except CorruptDataError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None


def _messages(batch: LegacyBatch) -> Iterator[LegacyBatch]:
    """As LegacyBatch.messages, but damaged compression is CORRUPT_MESSAGE."""
    if not batch.compression_type:
        yield batch
        return
    batch.ensure_wrapper()
    try:
        plain = batch.decompress()
    except CorruptDataError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    yield from batch.inner_messages(plain)


def _v2_records(batch: RecordBatch) -> Iterator[Record]:
    if batch.compression_type > ZSTD:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"Unknown compression type id: {batch.compression_type}"
        )
    try:
        plain = decompress(batch.compression_type, batch.body())
    except CorruptDataError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    try:
        # Numbered from 0, whatever base offset a coordinator's batch begins with.
        yield from decode_records(plain, batch.count, 0, batch.base_timestamp)
    except CorruptDataError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None


def _check_record(
    batch: Batch, record: Record, index: int, facts: _Facts
) -> tuple[bool, RecordError] | None:
    """Why the record is refused, with whether it is for its timestamp; None if it is fine."""
    rules = facts.rules
    if rules.is_compacted and record.key is None:
        words = (
            f"Compacted topic cannot accept message without key in topic partition "
            f"{rules.topic_partition}."
        )
        return False, RecordError(index, words)
    if batch.timestamp_type == LOG_APPEND_TIME:
        words = (
            f"Invalid timestamp type in message at index {index}. Producer should not set "
            f"timestamp type to LogAppendTime."
        )
        return True, RecordError(index, words)
    if rules.timestamp_type == LOG_APPEND_TIME or record.timestamp == NO_TIMESTAMP:
        return None
    most = rules.timestamp_difference_max_ms
    if abs(record.timestamp - facts.now_ms) <= most:
        return None
    words = (
        f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
        f"The timestamp should be within [{facts.now_ms - most}, {facts.now_ms + most}]"
    )
    return True, RecordError(index, words)


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
            ErrorCode.UNKNOWN_SERVER_ERROR,  # As Kafka 2.7 answers.
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
    records: Buffer, found: list[Batch], seen: _Seen, facts: _Facts
) -> ValidatedRecords:
    is_append_time = facts.rules.timestamp_type == LOG_APPEND_TIME
    next_offset = facts.next_offset
    max_timestamp = NO_TIMESTAMP
    offset_of_max = -1
    for batch, count, (timestamp, number) in zip(
        found, seen.counts, seen.max_timestamps, strict=True
    ):
        next_offset += count
        batch.set_last_offset(next_offset - 1)
        if isinstance(batch, RecordBatch):
            batch.set_partition_leader_epoch(facts.leader_epoch)
        if batch.magic > 0:
            stamp = facts.now_ms if is_append_time else timestamp
            batch.set_max_timestamp(facts.rules.timestamp_type, stamp)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
                offset_of_max = facts.next_offset + number
    last_offset = next_offset - 1
    first = found[0]
    if is_append_time:
        max_timestamp = facts.now_ms
        offset_of_max = last_offset if first.magic == 2 else facts.next_offset
    if first.compression_type:
        offset_of_max = last_offset
    return _result(records, first, seen, facts, max_timestamp, offset_of_max)


def _finish(
    first: Batch,
    builder: RecordBatchBuilder | MessageSetBuilder,
    seen: _Seen,
    facts: _Facts,
) -> ValidatedRecords:
    built = builder.build()
    is_one_batch = builder.magic == 2 or builder.compression_type != NONE
    if is_one_batch:
        check_size(len(built), facts.rules)
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
