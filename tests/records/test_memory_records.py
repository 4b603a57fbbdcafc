"""Buffers of many batches, whole and cut, of all formats."""

import struct

import pytest

from kctl.errors import CorruptDataError
from kctl.records.builder import build_batch
from kctl.records.compression import CompressionType
from kctl.records.control import ControlRecordType, control_record_type, read_marker
from kctl.records.legacy import LegacyBatch
from kctl.records.legacy_builder import MessageSetBuilder, encode_message
from kctl.records.memory_records import (
    batches,
    first_batch_size,
    locate,
    records,
    valid_end,
)
from kctl.records.record import Record
from tests.support.golden import golden_segments


def a_batch(offset=0, **facts):
    return build_batch(
        [Record(offset, 1000, b"k", b"v"), Record(offset + 1, 1001, None, b"w")], **facts
    )


def a_set(magic, **facts):
    builder = MessageSetBuilder(magic=magic, **facts)
    builder.append(timestamp=1, key=b"k", value=b"v")
    builder.append(timestamp=2, key=b"k", value=b"v")
    return builder.build()


def test_mixed_formats_are_walked_in_order():
    buffer = a_set(0) + a_set(1, compression_type=1) + a_batch(7)
    assert [batch.magic for batch in batches(buffer)] == [0, 0, 1, 2]
    assert [record.offset for record in records(buffer)] == [0, 1, 0, 1, 7, 8]
    assert valid_end(buffer) == len(buffer)


def test_cut_at_any_byte_the_whole_batches_remain():
    first, second = a_batch(0), a_batch(2)
    buffer = first + second
    for length in range(len(buffer)):
        cut = buffer[:length]
        expected = len(first) if length >= len(first) else 0
        assert valid_end(cut) == expected
        assert sum(1 for _ in batches(cut)) == (expected > 0)


def test_golden_log_is_cut_at_the_last_whole_batch():
    segment = golden_segments("upgraded-0")[1]
    ends = [batch.position + batch.size for batch in batches(segment)]
    for length in range(0, len(segment), 61):
        assert valid_end(segment[:length]) == max([0, *(end for end in ends if end <= length)])


def test_size_of_a_cut_batch_is_known_from_17_bytes_on():
    data = a_batch()
    assert first_batch_size(data[:16]) is None
    assert first_batch_size(data[:17]) == len(data)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13])
def test_impossible_sizes_are_damage(length):
    data = a_batch()
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptDataError, match="less than the minimum record overhead"):
        locate(data)


def test_magic_and_size_limits_are_checked():
    data = a_batch()
    with pytest.raises(CorruptDataError, match="over the largest"):
        locate(data, size_max=len(data) - 1)
    data[16] = 3
    with pytest.raises(CorruptDataError, match="Invalid magic found in record: 3"):
        locate(data)
    short = bytearray(a_batch())
    struct.pack_into(">i", short, 8, 40)
    with pytest.raises(CorruptDataError, match="smaller than the minimum"):
        locate(short)


def test_preallocated_tail_of_nuls_is_damage_not_a_batch():
    with pytest.raises(CorruptDataError):
        list(batches(a_batch() + bytes(100)))


def wrapper(inner, *, magic=1, offset=1, codec=CompressionType.GZIP):
    from kctl.records.compression import compress

    value = None if inner is None else compress(codec, inner, magic)
    return LegacyBatch(encode_message(magic, offset, 9, None, value, compression_type=codec))


def test_inner_offsets_end_at_the_wrappers():
    assert [r.offset for r in wrapper(a_set(1), offset=51).records()] == [50, 51]
    assert wrapper(a_set(1), offset=51).base_offset == 50


def test_wrapper_with_offset_zero_takes_inner_offsets_as_they_are():
    assert [r.offset for r in wrapper(a_set(1), offset=0).records()] == [0, 1]


def test_v0_inner_offsets_are_absolute():
    inner = a_set(0, base_offset=40)
    assert [r.offset for r in wrapper(inner, magic=0, offset=41).records()] == [40, 41]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (wrapper(None), "null value"),
        (wrapper(b""), "no inner records"),
        (wrapper(a_set(0)), "does not match wrapper magic"),
        (wrapper(a_set(1, compression_type=1)), "must not be compressed"),
        (wrapper(a_set(1, base_offset=0) * 3, offset=0), ""),
        (wrapper(a_set(1), offset=-5), "less than the last inner"),
    ],
)
def test_wrappers_that_make_no_sense(batch, words):
    if not words:
        assert len(list(batch.records())) == 6
        return
    with pytest.raises(CorruptDataError, match=words):
        list(batch.records())


def test_cut_message_at_the_end_of_a_wrapper_is_ignored():
    assert [r.offset for r in wrapper(a_set(1)[:-3], offset=0).records()] == [0]


def test_control_keys_of_later_kafkas_are_unknown_not_damage():
    assert control_record_type(b"\0\0\0\7") is ControlRecordType.UNKNOWN
    for key in (None, b"", b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(CorruptDataError):
            control_record_type(key)
    for record in (
        Record(0, 0, b"\0\0\0\7", b"\0" * 6),
        Record(0, 0, b"\0\0\0\1", b"\0" * 5),
        Record(0, 0, b"\0\0\0\1", None),
    ):
        with pytest.raises(CorruptDataError):
            read_marker(record)
