"""Batches go through as they are where brokers accept that, and are built again where not."""

import pytest

from kctl.errors import CorruptDataError
from kctl.mirror.raw_batches import BUILT_BYTES_MAX, copy_batches, keyed_batches, stamp
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import LZ4, NONE
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import batches, records
from kctl.records.record_batch import LOG_APPEND_TIME, RecordBatch


def batch(*offsets, compression=NONE, **more):
    builder = RecordBatchBuilder(base_offset=offsets[0], compression_type=compression, **more)
    for offset in offsets:
        builder.append(
            timestamp=1000 + offset, key=b"k%d" % offset, value=b"v" * 50,
            headers=(("h", b"1"), ("n", None)), offset=offset,
        )  # fmt: skip
    return builder.build()


def none(_batch):
    return False


def fields(data):
    return [(it.timestamp, it.key, it.value, it.headers) for it in records(bytes(data))]


@pytest.mark.parametrize("compression", [NONE, LZ4])
def test_a_dense_batch_keeps_its_bytes_but_for_what_the_producer_stamps(compression):
    original = batch(7, 8, 9, compression=compression, producer_id=4, producer_epoch=1)

    copied = copy_batches(original, 7, none)
    [copy] = copied.copies
    stamp(copy.data, 99, 3, 12, transactional=True)

    assert copy.is_raw
    assert copy.data[61:] == original[61:]
    assert (copied.next_offset, copy.count, copy.pieces) == (10, 3, [(7, 3)])
    stamped = RecordBatch(copy.data)
    stamped.ensure_valid()
    assert (stamped.producer_id, stamped.producer_epoch, stamped.base_sequence) == (99, 3, 12)
    assert stamped.is_transactional
    assert stamped.base_offset == 0
    assert fields(copy.data) == fields(original)
    stamp(copy.data, 98, 0, 0, transactional=False)
    assert not RecordBatch(copy.data).is_transactional


def test_a_batch_with_gaps_or_before_the_position_is_built_again():
    data = batch(3, 4, 5) + batch(6, 8, 9) + batch(10, 11)

    copied = copy_batches(data, 5, none)

    built, raw = copied.copies
    assert not built.is_raw
    assert raw.is_raw
    assert built.pieces == [(5, 1), (6, 1), (8, 2)] or built.pieces == [(5, 2), (8, 2)]
    assert fields(built.data) == fields(data)[2:6]
    assert RecordBatch(built.data).last_offset_delta + 1 == built.count == 4
    assert copied.next_offset == 12


def test_the_time_of_the_append_becomes_the_time_of_the_record():
    data = batch(0, 1, timestamp_type=LOG_APPEND_TIME, append_timestamp=77)

    [copy] = copy_batches(data, 0, none).copies

    assert not copy.is_raw
    assert [it.timestamp for it in records(copy.data)] == [77, 77]
    assert RecordBatch(copy.data).timestamp_type != LOG_APPEND_TIME


def test_batches_that_are_built_again_stay_below_what_a_topic_takes():
    big = 400_000
    data = b""
    for offset in range(5):
        builder = RecordBatchBuilder(base_offset=offset, timestamp_type=LOG_APPEND_TIME)
        builder.append(timestamp=1, key=None, value=b"v" * big, headers=(("h", b"x" * big),))
        data += builder.build()

    copies = copy_batches(data, 0, none).copies

    assert [copy.pieces for copy in copies] == [[(offset, 1)] for offset in range(5)]
    assert all(copy.size <= BUILT_BYTES_MAX for copy in copies)
    keyed = keyed_batches(((b"k", b"v" * big) for _ in range(5)), now_ms=1)
    assert [copy.count for copy in keyed] == [2, 2, 1]
    assert all(copy.size <= BUILT_BYTES_MAX for copy in keyed)


def test_batches_that_are_not_joined_have_the_records_of_one_batch_of_the_source():
    at = {"timestamp_type": LOG_APPEND_TIME, "append_timestamp": 7}
    data = batch(0, 1, **at) + batch(2, 4) + batch(5, 6) + batch(7, 8, **at)

    joined = copy_batches(data, 0, none)
    apart = copy_batches(data, 0, none, joins=False)

    assert [copy.count for copy in joined.copies] == [4, 2, 2]
    assert [copy.count for copy in apart.copies] == [2, 2, 2, 2]
    assert fields(b"".join(it.data for it in apart.copies)) == fields(
        b"".join(it.data for it in joined.copies)
    )
    assert apart.next_offset == joined.next_offset == 9


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression", [NONE, LZ4])
def test_messages_of_old_formats_are_joined_into_a_batch(magic, compression):
    builder = MessageSetBuilder(magic=magic, compression_type=compression)
    for number in range(5):
        builder.append(timestamp=5, key=None, value=b"%d" % number)
    data = builder.build()

    [copy] = copy_batches(data, 2, none).copies

    assert [it.value for it in records(copy.data)] == [b"2", b"3", b"4"]
    assert copy.pieces == [(2, 3)]


def test_what_is_skipped_moves_the_position():
    data = batch(0, 1) + batch(2, 3) + batch(4)

    copied = copy_batches(data, 0, lambda it: it.base_offset != 2)

    assert [copy.pieces for copy in copied.copies] == [[(2, 2)]]
    assert copied.next_offset == 5


def test_a_damaged_batch_gets_no_valid_checksum():
    data = batch(0, 1)
    data[-1] ^= 1

    with pytest.raises(CorruptDataError):
        copy_batches(data, 0, none)


def test_a_truncated_batch_waits_for_the_next_fetch():
    data = batch(0, 1) + batch(2)[:-1]

    assert copy_batches(data, 0, none).next_offset == 2
    assert len(list(batches(data))) == 1
