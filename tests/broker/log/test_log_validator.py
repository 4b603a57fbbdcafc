"""The validator compared with Apache Kafka's own log, case by case, and its further guarantees."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.broker.log.log_validator import (
    AppendOrigin,
    RecordValidationError,
    ValidatedRecords,
    ValidationInTurns,
    ValidationRules,
    validate_records,
)
from kctl.broker.log.record_checks import FULLY_CHECKED_RECORDS
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.builder import RecordBatchBuilder, build_batch
from kctl.records.compression import CompressionType
from kctl.records.memory_records import records, valid_end
from kctl.records.record import Record
from kctl.records.record_batch import LOG_APPEND_TIME, RecordBatch
from kctl.work import at_once
from tests.support.append_cases import Case, cases, comparable

NOW = 1_600_000_100_000
OLD = ["v0-none as it is", "v1-none as it is", "v0-lz4 as it is", "v1-gzip as it is"]
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MAGICS = {"0.9.0": 0, "0.10.0": 1}

# Deliberate differences from Kafka: name -> kctl's result; "healed" is a rewritten batch.
DELIBERATE = {
    # Kafka fails with an unexpected exception: UNKNOWN_SERVER_ERROR.
    "v2-zstd as v0": "UNSUPPORTED_COMPRESSION_TYPE",
    "v2-zstd as v1": "UNSUPPORTED_COMPRESSION_TYPE",
    "v2 zstd without headers as v0": "UNSUPPORTED_COMPRESSION_TYPE",
    "transactional as v1": "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    **{f"codec {codec}": "CORRUPT_MESSAGE" for codec in (5, 6, 7)},
    **{f"garbage for codec {codec}": "CORRUPT_MESSAGE" for codec in (1, 2, 3, 4)},
    **{f"codec {codec} cut": "CORRUPT_MESSAGE" for codec in (1, 2, 3, 4)},
    **{f"v{magic} wrapper of garbage": "CORRUPT_MESSAGE" for magic in (0, 1)},
    **{f"v{magic} codec 6": "CORRUPT_MESSAGE" for magic in (0, 1)},
    # Kafka stores the wrong deltas or, if compressed, fails.
    "offset deltas all 0": "healed",
    "offset deltas swapped": "healed",
    "offset deltas with a gap": "healed",
    "offset deltas all 0 lz4": "healed",
    "offset deltas swapped lz4": "healed",
    "offset deltas with a gap lz4": "healed",
}
# No whole batch to append: Kafka reports offset -1, kctl the offset before the next.
EMPTY = {"only half a batch", "only 10 bytes", "nothing"}
# The error is the same, but Kafka would report every record for the wrapper's error.
WITHOUT_INDEXES = {"v0 magic of the other", "v1 magic of the other"}


def validated(*arguments, **options):
    """Do the same as `validate_records`, all turns at once."""
    try:
        return validate_records(*arguments, **options)
    except ValidationInTurns as pending:
        return at_once(pending.work)


def rules_of(case: Case) -> ValidationRules:
    config = case.config
    return ValidationRules(
        "t-0",
        magic=MAGICS.get(config.get("message.format.version", ""), 2),
        compression_type=CODECS.get(config.get("compression.type", "producer")),
        timestamp_type=int(config.get("message.timestamp.type") == "LogAppendTime"),
        timestamp_difference_max_ms=int(
            config.get("message.timestamp.difference.max.ms", 2**63 - 1)
        ),
        is_compacted=config.get("cleanup.policy") == "compact",
        message_bytes_max=int(config.get("max.message.bytes", 1_048_588)),
    )


def validate(case: Case, data: bytearray) -> ValidatedRecords:
    _, origin, next_offset, leader_epoch, now_ms = case.facts
    return validated(
        data,
        rules_of(case),
        origin=AppendOrigin(origin),
        next_offset=int(next_offset),
        leader_epoch=int(leader_epoch),
        now_ms=int(now_ms),
    )


def append(data: bytes | bytearray, rules: ValidationRules | None = None) -> ValidatedRecords:
    return validated(
        data,
        rules or ValidationRules("t-0"),
        origin=AppendOrigin.CLIENT,
        next_offset=1000,
        leader_epoch=7,
        now_ms=NOW,
    )


def some_records(count: int, compression_type: int = 0) -> bytearray:
    builder = RecordBatchBuilder(compression_type=compression_type)
    for number in range(count):
        builder.append(timestamp=NOW + number, key=b"key%d" % number, value=b"value" * 20)
    return builder.build()


@pytest.mark.parametrize("case", cases("append"), ids=lambda case: case.name)
def test_results_equal_those_of_apache_kafka(case):
    data = bytearray(case.data)
    expected = DELIBERATE.get(case.name)
    if expected == "healed":
        offsets = [record.offset for record in RecordBatch(validate(case, data).records).records()]
        assert offsets == [1000 + number for number in range(len(offsets))]
    elif expected or not case.is_ok:
        with pytest.raises(ApiError) as raised:
            validate(case, data)
        assert raised.value.code.name == (expected or case.answer[1])
        if isinstance(raised.value, RecordValidationError):
            indexes = [str(error.batch_index) for error in raised.value.record_errors]
            assert ",".join(indexes) == case.answer[2]
        else:
            assert expected or not case.answer[2] or case.name in WITHOUT_INDEXES
        assert data == case.data  # a rejected buffer is unchanged
    else:
        validated = validate(case, data)
        assert comparable(bytes(validated.records)) == comparable(case.stored) or (
            case.stored == b"" and case.name in EMPTY
        )
        assert valid_end(validated.records) == len(validated.records) or case.name in EMPTY
        last_offset = validated.last_offset
        facts = (last_offset, validated.max_timestamp, validated.offset_of_max_timestamp)
        if case.name in EMPTY:
            assert facts == (999, -1, -1)
        else:
            assert facts == tuple(int(fact) for fact in case.answer[2:])


def test_no_deliberate_difference_is_out_of_date():
    by_name = {case.name: case for case in cases("append")}
    for name, answer in DELIBERATE.items():
        assert by_name[name].answer[1] != answer


def test_ordinary_batch_is_patched_in_its_own_buffer():
    data = some_records(3)
    validated = append(data)
    assert validated.records is data
    assert not validated.was_rewritten
    batch = RecordBatch(data)
    assert (batch.base_offset, batch.partition_leader_epoch) == (1000, 7)
    assert batch.is_crc_valid()


def test_part_of_a_larger_frame_is_patched_there():
    frame = bytearray(10) + some_records(2) + bytearray(10)
    view = memoryview(frame)[10:-10]
    append(view)
    assert RecordBatch(frame, 10).base_offset == 1000
    assert frame[:10] == frame[-10:] == bytes(10)


def test_read_only_buffer_is_copied():
    data = bytes(some_records(2))
    validated = append(data)
    assert RecordBatch(data).base_offset == 0
    assert RecordBatch(validated.records).base_offset == 1000


def test_producer_facts_come_with_the_result():
    builder = RecordBatchBuilder(
        producer_id=5, producer_epoch=2, base_sequence=40, is_transactional=True
    )
    builder.append(timestamp=NOW, key=b"k", value=b"v")
    validated = append(builder.build())
    assert (validated.producer_id, validated.producer_epoch) == (5, 2)
    assert validated.base_sequence == 40
    assert validated.is_transactional
    assert not validated.is_control


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("count", [1, 7, 8, 9, 72, 73, 5000])
def test_batches_of_any_length_are_numbered(codec, count):
    data = some_records(count, codec)
    validated = append(data)
    assert validated.last_offset == 999 + count
    assert validated.count == count
    assert validated.max_timestamp == NOW + count - 1
    offsets = [record.offset for record in RecordBatch(validated.records).records()]
    assert offsets == list(range(1000, 1000 + count))


def test_append_time_is_in_the_header_and_the_checksum_is_valid():
    data = some_records(200, CompressionType.LZ4)
    validated = append(data, ValidationRules("t-0", timestamp_type=LOG_APPEND_TIME))
    assert validated.records is data
    batch = RecordBatch(data)
    assert batch.is_crc_valid()
    assert {record.timestamp for record in batch.records()} == {NOW}


@pytest.mark.parametrize("codec", list(CompressionType)[1:])
def test_bomb_costs_little_memory(codec):
    bomb = build_batch([Record(0, NOW, b"k", bytes(80_000_000))], compression_type=codec)
    rules = ValidationRules("t-0", message_bytes_max=len(bomb))
    append(bytearray(bomb), rules)  # the codec's library is loaded now
    tracemalloc.start()
    append(bomb, rules)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_bomb_on_a_compacted_topic_is_refused():
    large = [Record(number, NOW, b"k", bytes(8_000_000)) for number in range(14)]
    bomb = build_batch(large, compression_type=CompressionType.ZSTD)
    with pytest.raises(ApiError, match="more than 104857600 bytes"):
        append(bomb, ValidationRules("t-0", is_compacted=True))


def test_the_number_of_reported_record_errors_is_limited():
    keyless = [Record(number, NOW, None, b"v") for number in range(3000)]
    with pytest.raises(RecordValidationError) as raised:
        append(build_batch(keyless), ValidationRules("t-0", is_compacted=True))
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in raised.value.record_errors] == list(range(1000))


def test_recompressed_batch_that_grows_too_large_is_refused():
    data = some_records(100, CompressionType.GZIP)
    rules = ValidationRules("t-0", compression_type=CompressionType.NONE, message_bytes_max=5000)
    assert len(data) < 5000
    with pytest.raises(ApiError) as raised:
        append(data, rules)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def of_coordinator(data: bytearray, rules: ValidationRules) -> ValidatedRecords:
    return validated(
        data, rules, origin=AppendOrigin.COORDINATOR, next_offset=1000, leader_epoch=7, now_ms=NOW
    )


def test_a_coordinators_batch_is_numbered_in_place_on_a_compacted_topic():
    data = some_records(20)
    validated = of_coordinator(data, ValidationRules("t-0", is_compacted=True))
    assert validated.records is data
    assert (validated.first_offset, validated.last_offset, validated.count) == (1000, 1019, 20)
    assert validated.max_timestamp == NOW + 19
    assert [record.offset for record in RecordBatch(data).records()] == list(range(1000, 1020))


def test_a_coordinators_batch_may_not_be_too_large_either():
    with pytest.raises(ApiError) as raised:
        of_coordinator(some_records(20), ValidationRules("t-0", message_bytes_max=100))
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_coordinators_batch_in_another_codec_is_rewritten():
    validated = of_coordinator(some_records(20), ValidationRules("t-0", compression_type=3))
    assert validated.was_rewritten
    assert RecordBatch(validated.records).compression_type == 3


@given(
    position=st.integers(0, 10**6),
    value=st.integers(0, 255),
    codec=st.sampled_from([*CompressionType]),
    is_compacted=st.booleans(),
)
def test_changed_byte_with_a_right_checksum_is_refused_or_readable(
    position, value, codec, is_compacted
):
    data = some_records(FULLY_CHECKED_RECORDS, codec)
    data[21 + position % (len(data) - 21)] = value
    data[17:21] = RecordBatch(data).compute_crc().to_bytes(4, "big")
    before = bytes(data)
    try:
        validated = append(data, ValidationRules("t-0", is_compacted=is_compacted))
    except ApiError:
        assert data == before
        return
    offsets = [record.offset for record in RecordBatch(validated.records).records()]
    assert offsets == list(range(1000, 1000 + len(offsets)))


@given(position=st.integers(0, 10**6), value=st.integers(0, 255), name=st.sampled_from(OLD))
def test_changed_byte_of_old_messages_is_refused_or_readable(position, value, name):
    case = next(case for case in cases("append") if case.name == name)
    data = bytearray(case.data)
    data[position % len(data)] = value
    try:
        validated = append(data)
    except ApiError:
        return
    found = [record.offset for record in records(validated.records)]
    assert found == list(range(1000, 1000 + validated.count))
