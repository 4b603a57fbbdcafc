"""Batches built here are the bytes that Apache Kafka wrote, and read back as what went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.records.builder import RecordBatchBuilder, build_batch, empty_batch
from kctl.records.compression import CompressionType
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch, read_marker
from kctl.records.legacy import LegacyBatch
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import batches
from kctl.records.record import Record
from kctl.records.record_batch import LOG_APPEND_TIME, NO_TIMESTAMP, RecordBatch
from tests.support.golden import golden_segments

INT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=4).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(0, 2**42), BYTES, BYTES, HEADERS),
    min_size=1,
    max_size=20,
).map(lambda records: [record._replace(offset=5 + 3 * i) for i, record in enumerate(records)])


@pytest.mark.parametrize(
    "topic", ["v2-none-0", "v2-idempotent-0", "tx-0", "v2-broker-uncompressed-0", "epochs-0"]
)
def test_batches_of_apache_kafka_are_built_again_byte_for_byte(topic):
    rebuilt = 0
    for segment in golden_segments(topic):
        for batch in batches(segment):
            assert isinstance(batch, RecordBatch)
            if batch.compression_type:
                continue  # Another compressor's bytes.
            builder = RecordBatchBuilder(
                base_offset=batch.base_offset,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                is_transactional=batch.is_transactional,
                is_control=batch.is_control,
                partition_leader_epoch=batch.partition_leader_epoch,
            )
            for record in batch.records():
                builder.append_record(record)
            assert builder.build() == batch.to_bytes()
            assert builder.size == batch.size
            rebuilt += 1
    assert rebuilt


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_apache_kafka_are_built_again_byte_for_byte(magic):
    for segment in golden_segments(f"v{magic}-none-0"):
        first = next(batches(segment))
        builder = MessageSetBuilder(magic=magic, base_offset=first.base_offset)
        for batch in batches(segment):
            for record in batch.records():
                builder.append_record(record)
        assert builder.build() == segment


def test_markers_of_apache_kafka_are_built_again_byte_for_byte():
    rebuilt = 0
    for segment in golden_segments("tx-0"):
        for batch in batches(segment):
            if not batch.is_control:
                continue
            assert isinstance(batch, RecordBatch)
            (record,) = batch.records()
            marker = read_marker(record)
            assert (
                marker_batch(
                    marker,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    timestamp=record.timestamp,
                    base_offset=batch.base_offset,
                    partition_leader_epoch=batch.partition_leader_epoch,
                )
                == batch.to_bytes()
            )
            rebuilt += 1
    assert rebuilt > 10


@given(records=RECORDS, codec=st.sampled_from(CompressionType))
def test_records_come_back_from_a_batch(records, codec):
    data = build_batch(records, compression_type=codec)
    batch = RecordBatch(data)
    assert batch.is_crc_valid()
    assert list(batch.records()) == records
    assert batch.max_timestamp == max(record.timestamp for record in records)
    assert (batch.base_offset, batch.last_offset) == (records[0].offset, records[-1].offset)
    assert batch.count == len(records)


@given(
    records=RECORDS, codec=st.sampled_from(list(CompressionType)[:4]), magic=st.sampled_from([0, 1])
)
def test_records_come_back_from_a_message_set_without_headers(records, codec, magic):
    builder = MessageSetBuilder(magic=magic, base_offset=records[0].offset, compression_type=codec)
    for record in records:
        builder.append_record(record)
    found = [record for batch in batches(builder.build()) for record in batch.records()]
    timestamp = {} if magic else {"timestamp": NO_TIMESTAMP}
    assert found == [record._replace(headers=(), **timestamp) for record in records]


@given(first=INT64, second=INT64)
def test_timestamps_of_any_distance_survive(first, second):
    distance = second - first
    if not -(2**63) <= distance < 2**63:
        return
    data = build_batch([Record(0, first, None, None), Record(1, second, None, None)])
    assert [record.timestamp for record in RecordBatch(data).records()] == [first, second]


def test_offsets_may_jump_but_not_fall():
    builder = RecordBatchBuilder(base_offset=10)
    assert builder.append(timestamp=0, key=None, value=None) == 10
    assert builder.append(timestamp=0, key=None, value=None, offset=20) == 20
    with pytest.raises(ValueError, match="below the next"):
        builder.append(timestamp=0, key=None, value=None, offset=20)
    assert (builder.last_offset, builder.next_offset) == (20, 21)


def test_wrapper_under_append_time_gives_its_time_to_all():
    builder = MessageSetBuilder(
        magic=1,
        compression_type=CompressionType.GZIP,
        timestamp_type=LOG_APPEND_TIME,
        append_timestamp=99,
    )
    for timestamp in (1, 2):
        builder.append(timestamp=timestamp, key=b"k", value=b"v")
    batch = LegacyBatch(builder.build())
    assert [record.timestamp for record in batch.records()] == [99, 99]


def test_empty_batch_keeps_what_compaction_must_keep():
    full = RecordBatch(
        build_batch(
            [Record(7, 100, b"k", b"v"), Record(9, 101, b"k", b"v")],
            producer_id=3,
            producer_epoch=1,
            base_sequence=5,
            compression_type=CompressionType.LZ4,
        )
    )
    left = RecordBatch(empty_batch(full))
    assert left.is_crc_valid()
    assert list(left.records()) == []
    assert (left.base_offset, left.last_offset, left.last_sequence) == (7, 9, full.last_sequence)
    assert (left.producer_id, left.producer_epoch, left.max_timestamp) == (3, 1, 101)


def test_batches_that_the_cleaner_of_apache_kafka_emptied_are_the_same():
    emptied = 0
    for segment in golden_segments("compacted-tombstones-gone-0"):
        for batch in batches(segment):
            assert isinstance(batch, RecordBatch)
            if batch.count == 0:
                assert list(batch.records()) == []
                assert empty_batch(batch) == batch.to_bytes()
                emptied += 1
    assert emptied


def test_batch_needs_a_record():
    with pytest.raises(ValueError, match="needs a record"):
        RecordBatchBuilder().build()
    with pytest.raises(ValueError, match="needs a record"):
        build_batch([])


def test_marker_has_the_fields_it_was_built_with():
    marker = EndTransactionMarker(ControlRecordType.ABORT, 12)
    data = marker_batch(marker, producer_id=1, producer_epoch=0, timestamp=5)
    (record,) = RecordBatch(data).records()
    assert read_marker(record) == marker
    assert not marker.is_commit
