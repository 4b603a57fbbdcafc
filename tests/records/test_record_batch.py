"""Headers read, checked and patched in place."""

import struct

import pytest

from kctl.errors import CorruptDataError
from kctl.records.builder import RecordBatchBuilder
from kctl.records.record_batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    SEQUENCE_MAX,
    RecordBatch,
    increment_sequence,
    read_header,
)
from tests.support.golden import golden_segments


def a_batch(**facts):
    builder = RecordBatchBuilder(base_offset=10, **facts)
    for number in range(3):
        builder.append(timestamp=1000 + number, key=b"k", value=b"v")
    return builder.build()


def test_offset_and_epoch_change_without_touching_the_checksum():
    data = a_batch()
    batch = RecordBatch(data)
    crc = batch.crc
    batch.set_base_offset(500)
    batch.set_partition_leader_epoch(9)
    again = RecordBatch(data)
    assert (again.base_offset, again.last_offset, again.partition_leader_epoch) == (500, 502, 9)
    assert again.crc == crc
    assert again.is_crc_valid()
    assert batch.header == again.header
    batch.set_last_offset(99)
    assert RecordBatch(data).base_offset == 97


def test_append_time_renews_the_checksum():
    data = a_batch()
    batch = RecordBatch(data)
    crc = batch.crc
    batch.set_max_timestamp(LOG_APPEND_TIME, 7777)
    assert batch.is_crc_valid()
    assert batch.crc != crc
    assert [record.timestamp for record in batch.records()] == [7777] * 3
    batch.set_max_timestamp(CREATE_TIME, 1002)
    assert [record.timestamp for record in batch.records()] == [1000, 1001, 1002]
    assert batch.crc == crc


def test_batch_inside_a_larger_buffer():
    data = bytearray(7) + a_batch() + bytearray(5)
    batch = RecordBatch(data, 7)
    assert batch.is_crc_valid()
    assert len(list(batch.records())) == 3
    assert batch.to_bytes() == data[7:-5]


def test_read_only_buffer_cannot_be_patched():
    batch = RecordBatch(bytes(a_batch()))
    with pytest.raises(TypeError):
        batch.set_base_offset(1)
    assert batch.base_offset == 10


def test_every_flipped_byte_after_the_epoch_is_detected():
    whole = a_batch()
    for position in range(17, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptDataError, match="Record is corrupt"):
            RecordBatch(damaged).ensure_valid()
    RecordBatch(whole).ensure_valid()


def test_cut_batch_is_not_valid():
    whole = a_batch()
    for length in range(61, len(whole)):
        assert not RecordBatch(whole[:length]).is_crc_valid()
    for length in range(61):
        with pytest.raises(CorruptDataError):
            read_header(whole[:length])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_impossible_length_is_not_valid(length):
    data = a_batch()
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptDataError, match="smaller than the minimum"):
        RecordBatch(data).ensure_valid()


def test_sequences_wrap_to_zero():
    assert increment_sequence(SEQUENCE_MAX, 1) == 0
    assert increment_sequence(SEQUENCE_MAX - 1, 5) == 3
    batch = RecordBatch(a_batch(producer_id=1, producer_epoch=0, base_sequence=SEQUENCE_MAX - 1))
    assert batch.last_sequence == 0
    assert RecordBatch(a_batch()).last_sequence == -1


def test_idempotent_batches_of_apache_kafka_have_running_sequences():
    following = 0
    for segment in golden_segments("v2-idempotent-0"):
        position = 0
        while position < len(segment):
            batch = RecordBatch(segment, position)
            assert batch.base_sequence == following
            following = batch.last_sequence + 1
            position += batch.size
    assert following == 120


def test_wrong_count_is_named_when_the_records_are_read():
    for count, message in ((-1, "invalid record count"), (2, "are left"), (4, "ends after")):
        data = a_batch()
        struct.pack_into(">i", data, 57, count)
        with pytest.raises(CorruptDataError, match=message):
            list(RecordBatch(data).records())
