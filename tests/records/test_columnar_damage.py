"""Damage costs the bulk decoder no more records than it must, and is reported exactly."""

import random  # noqa: TID251 - seeded

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.errors import CorruptDataError
from kctl.records.builder import build_batch
from kctl.records.columnar import decode_chunks, decode_columns
from kctl.records.columnar_batches import DamageRule
from kctl.records.memory_records import batches
from kctl.records.record import Record
from kctl.records.record_batch import INT32
from tests.records.columns_support import (
    as_records,
    random_batch,
    random_log,
    read_one_by_one,
    records_up_to_damage,
    with_right_crc,
)


def a_batch(offset, count=3, **facts):
    return bytearray(
        build_batch(
            [Record(offset + n, 1000, b"k%d" % n, b"v" * 20) for n in range(count)], **facts
        )
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_records_that_disagree_with_a_right_checksum_are_read_up_to_the_damage(seed):
    rng = random.Random(seed)
    batch = bytearray()
    while not batch or batch[16] != 2:
        batch = bytearray(random_batch(rng, 50)[0])
    for _ in range(rng.choice((1, 1, 3))):
        batch[rng.randrange(57, len(batch))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    buffer = bytes(a_batch(0) + with_right_crc(batch) + a_batch(10**9 * 3))
    records, failures = read_one_by_one(buffer)
    columns = decode_columns(buffer, expected_offset=0)
    assert as_records(columns) == records
    assert [damage.position for damage in columns.damages] == [at for at, _ in failures]
    if failures and "record count" not in failures[0][1]:
        assert columns.damages[0].message == failures[0][1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_messages_that_disagree_with_a_right_checksum_read_as_one_by_one(seed):
    rng = random.Random(seed)
    batch = bytearray()
    while not batch or batch[16] == 2:
        batch = bytearray(random_batch(rng, 50)[0])
    batch[rng.randrange(17, len(batch))] = rng.randrange(256)
    buffer = bytes(batch)
    # Neither side verifies checksums here: the test compares the content.
    columns = decode_columns(buffer, check_crc=False, is_complete=False)
    assert as_records(columns) == legacy_records(buffer)


def legacy_records(buffer):
    records = []
    try:
        for batch in batches(buffer):
            records += records_up_to_damage(batch)
    except CorruptDataError:
        pass
    return records


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_rot_anywhere_loses_only_what_it_touched_and_what_is_reported(seed):
    rng = random.Random(seed)
    pieces = []
    offset = 10
    for _ in range(6):
        piece = a_batch(offset, rng.choice((1, 20)), compression_type=rng.choice((0, 4)))
        pieces.append(bytes(piece))
        offset += 20
    starts = [sum(map(len, pieces[:n])) for n in range(7)]
    buffer = bytearray(b"".join(pieces))
    at = rng.randrange(len(buffer))
    length = rng.choice((1, 4, 100))
    was = bytes(buffer)
    buffer[at : at + length] = rng.randbytes(len(buffer[at : at + length]))
    columns = decode_columns(bytes(buffer), expected_offset=10)
    got = as_records(columns)
    for number, piece in enumerate(pieces):
        start, end = starts[number], starts[number + 1]
        if buffer[start:end] == was[start:end]:
            assert all(record in got for record in read_one_by_one(piece)[0])
        elif buffer[start + 16 : end] != was[start + 16 : end]:
            covering = [d for d in columns.damages if d.position <= start < d.position + d.size]
            assert covering


def test_batch_with_a_wrong_checksum_is_left_out_and_reported():
    first, second, third = a_batch(0), a_batch(3), a_batch(6)
    second[70] ^= 1
    columns = decode_columns(bytes(first + second + third))
    assert columns.offsets.tolist() == [0, 1, 2, 6, 7, 8]
    (damage,) = columns.damages
    assert (damage.rule, damage.position, damage.size) == (
        DamageRule.CRC, len(first), len(second),
    )  # fmt: skip
    assert (damage.offset, damage.last_offset) == (3, 5)


def test_length_that_swallows_good_batches_gives_them_back():
    pieces = [a_batch(3 * n) for n in range(4)]
    INT32.pack_into(pieces[1], 8, len(pieces[1]) * 2 - 12 + 20)
    columns = decode_columns(b"".join(pieces))
    assert columns.offsets.tolist() == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    (damage,) = columns.damages
    assert (damage.position, damage.size) == (len(pieces[0]), len(pieces[1]))


@pytest.mark.parametrize("size", [9, 16, 17, 60, 61, 80])
def test_cut_batch_is_damage_at_the_end_of_a_file_and_nothing_in_a_fetch(size):
    buffer = bytes(a_batch(0) + a_batch(3)[:size])
    whole = decode_columns(buffer)
    assert [(damage.rule, damage.size) for damage in whole.damages] == [(DamageRule.CUT, size)]
    assert whole.end == len(buffer)
    fetched = decode_columns(buffer, is_complete=False)
    assert fetched.damages == []
    assert fetched.end == len(buffer) - size
    assert fetched.offsets.tolist() == whole.offsets.tolist() == [0, 1, 2]


def test_preallocated_tail_is_no_damage():
    columns = decode_columns(bytes(a_batch(0)) + bytes(10_000))
    assert columns.damages == []
    assert columns.offsets.tolist() == [0, 1, 2]


def test_hole_of_nuls_is_skipped_and_reported():
    first, last = a_batch(0), a_batch(9)
    columns = decode_columns(bytes(first) + bytes(512) + bytes(last))
    assert columns.offsets.tolist() == [0, 1, 2, 9, 10, 11]
    (damage,) = columns.damages
    assert (damage.rule, damage.position, damage.size) == (DamageRule.HEADER, len(first), 512)
    assert (damage.offset, damage.last_offset) == (3, 8)


def test_older_batch_left_after_the_damage_is_not_taken():
    stale = a_batch(0)
    columns = decode_columns(bytes(a_batch(0) + a_batch(3)) + b"\xff" * 40 + bytes(stale))
    assert columns.offsets.tolist() == [0, 1, 2, 3, 4, 5]
    assert columns.damages[0].last_offset == -1


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=400))
def test_garbage_is_damage_and_ends(garbage):
    chunks = list(decode_chunks(garbage))
    assert sum(map(len, chunks)) == 0
    assert chunks == [] or chunks[-1].end == len(garbage)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.data())
def test_log_cut_anywhere_gives_the_records_of_its_whole_batches(seed, data):
    buffer = random_log(seed, 3)
    cut = buffer[: data.draw(st.integers(0, len(buffer)))]
    assert as_records(decode_columns(cut, is_complete=False)) == read_one_by_one(cut)[0]
