"""Single records and the numbers in them, with every kind of damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import CorruptDataError
from kctl.records.checksum import crc32, crc32c
from kctl.records.record import Record, decode_records, encode_record
from kctl.records.varint import read_varint, read_varlong, varint_size, write_varint


def encoded(*records):
    out = bytearray()
    for record in records:
        encode_record(out, *record)
    return bytes(out)


def test_layout_of_a_record():
    data = encoded((1, 2, b"k", None, [("h", b"x")]))
    assert data == bytes([22, 0, 4, 2, 2]) + b"k" + bytes([1, 2, 2]) + b"h" + bytes([2]) + b"x"


@given(st.integers(0, 130), st.integers(-1, 130), st.integers(0, 130), st.integers(0, 130))
def test_what_is_short_is_encoded_as_what_is_long(key_size, value_size, offset, timestamp):
    key, value = bytes(key_size), None if value_size < 0 else bytes(value_size)
    (record,) = decode_records(encoded((offset, timestamp, key, value)), 1, 0, 0)
    assert record == Record(offset, timestamp, key, value)


def test_deltas_are_added_to_the_base():
    data = encoded((0, 0, b"a", b"b"), (200, -70_000, None, b""))
    assert list(decode_records(data, 2, 1000, 500_000)) == [
        Record(1000, 500_000, b"a", b"b"),
        Record(1200, 430_000, None, b""),
    ]


def test_append_time_replaces_the_timestamps():
    (record,) = decode_records(encoded((0, 5, None, None)), 1, 0, 100, append_timestamp=7)
    assert record.timestamp == 7


def test_cut_at_any_byte_is_damage():
    data = encoded((0, 300, b"key" * 50, b"value" * 100, [("h", b"x" * 80), ("n", None)]))
    for length in range(len(data)):
        with pytest.raises(CorruptDataError):
            list(decode_records(data[:length], 1, 0, 0))


@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
def test_changed_byte_is_damage_or_another_record(position, value):
    data = bytearray(encoded((0, 300, b"key", b"value", [("h", b"x"), ("n", None)])) * 3)
    data[position % len(data)] = value
    try:
        found = list(decode_records(bytes(data), 3, 0, 0))
    except CorruptDataError:
        return
    assert len(found) == 3


@given(data=st.binary(max_size=60), count=st.integers(0, 5))
def test_noise_is_damage_or_records(data, count):
    try:
        found = list(decode_records(data, count, 0, 0))
    except CorruptDataError:
        return
    assert len(found) == count


def test_header_names_that_are_not_utf8_are_readable():
    data = bytearray(encoded((0, 0, None, None, [("??", None)])))
    at = data.index(b"??")
    data[at : at + 2] = b"\xff\xfe"
    (record,) = decode_records(bytes(data), 1, 0, 0)
    assert record.headers == (("\ufffd\ufffd", None),)


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varlongs_survive(value):
    out = bytearray()
    write_varint(out, value)
    assert read_varlong(out, 0) == (value, len(out))
    assert varint_size(value) == len(out)
    if -(2**31) <= value < 2**31:
        assert read_varint(out, 0) == (value, len(out))


def test_endless_varints_are_damage():
    with pytest.raises(CorruptDataError):
        read_varint(b"\x80" * 5 + b"\0", 0)
    with pytest.raises(CorruptDataError):
        read_varlong(b"\x80" * 10 + b"\0", 0)
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)


def test_checksums_have_their_known_values():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32(b"123456789") == 0xCBF43926
    assert crc32c(memoryview(bytearray(b"x123456789"))[1:]) == 0xE3069283
