"""Walking the batches of a segment file, whatever their sizes, and where it must stop."""

import pytest

from kctl.errors import CorruptDataError
from kctl.records.builder import RecordBatchBuilder
from kctl.runtime.real.disk import RealDisk
from kctl.storage.damage import DamageKind, classify_damage, find_valid_batch
from kctl.storage.file_records import (
    CONTENT_WINDOW_BYTES,
    SEARCH_WINDOW_BYTES,
    WINDOW_BYTES,
    FileRecords,
)


def batch(base_offset, size, count=1):
    builder = RecordBatchBuilder(base_offset=base_offset)
    for _ in range(count):
        builder.append(timestamp=5, key=None, value=b"\x02" * size)
    return bytes(builder.build())


def write(tmp_path, *parts):
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(parts))
    return FileRecords.open(RealDisk(), str(path))


SIZES = [
    1,
    WINDOW_BYTES,
    10,
    WINDOW_BYTES - 61,
    SEARCH_WINDOW_BYTES,
    2 * CONTENT_WINDOW_BYTES,
    3,
    CONTENT_WINDOW_BYTES,
    100,
    *range(100, 700),
]


def test_every_walk_sees_every_batch_across_all_windows(tmp_path):
    parts = [batch(number * 10, size) for number, size in enumerate(SIZES)]
    records = write(tmp_path, *parts)
    positions = [sum(map(len, parts[:number])) for number in range(len(parts))]

    headers = list(records.headers())
    assert [header.position for header in headers] == positions
    assert [header.size for header in headers] == [len(part) for part in parts]

    found = list(records.batches())
    assert [position for position, _ in found] == positions
    assert all(one.is_crc_valid() for _, one in found)

    for number in range(len(parts)):
        wanted = (positions[number], len(parts[number]))
        assert records.search_for_offset(number * 10, 0) == wanted
        # Offsets that are in no batch belong to the next one.
        assert records.search_for_offset(number * 10 - 3, 0) == wanted
    assert records.search_for_offset(len(parts) * 10, 0) is None


def test_walks_end_before_a_cut_batch(tmp_path):
    whole = batch(0, 50) + batch(1, 50)
    for cut in range(1, len(batch(2, 50))):
        records = write(tmp_path, whole, batch(2, 50)[:cut])
        assert [header.base_offset for header in records.headers()] == [0, 1]
        assert len(list(records.batches())) == 2
        assert records.search_for_offset(2, 0) is None
        assert records.header_at(len(whole)) is None


@pytest.mark.parametrize(
    "nonsense", [bytes(100), b"\xff" * 100, batch(2, 5)[:16] + b"\x07" + batch(2, 5)[17:]]
)
def test_garbage_is_corrupt_and_the_error_names_the_position(tmp_path, nonsense):
    records = write(tmp_path, batch(0, 50), nonsense)
    position = len(batch(0, 50))
    for walk in (
        lambda: list(records.headers()),
        lambda: list(records.batches()),
        lambda: records.search_for_offset(5, 0),
    ):
        with pytest.raises(CorruptDataError, match=f"0.log: at position {position}: "):
            walk()


def test_slice_is_cut_at_the_end_of_the_records(tmp_path):
    records = write(tmp_path, batch(0, 50))
    assert len(records.slice(10, 10**9)) == records.size - 10
    assert len(records.slice(10**9, 5)) == 0


def test_append_into_a_preallocated_file(tmp_path):
    file = RealDisk().open(str(tmp_path / "0.log"), create=True)
    file.truncate(4096)
    records = FileRecords(file, 0)
    one, two = batch(0, 50), batch(1, 60)
    assert records.append((one,), len(one)) == 0
    assert records.append((two[:30], two[30:]), len(two)) == len(one)
    assert [header.base_offset for header in records.headers()] == [0, 1]
    assert (tmp_path / "0.log").stat().st_size == 4096
    records.truncate_to(len(one))
    assert (tmp_path / "0.log").stat().st_size == len(one)


def test_valid_batch_is_found_at_any_byte_and_nothing_else_is_taken_for_one(tmp_path):
    prefix = b"\0\0\0\0" * 1000 + b"\x02" * 777
    records = write(tmp_path, prefix, batch(40, 30), batch(41, 30))
    assert find_valid_batch(records, 0, 40) == (len(prefix), 40)
    # Not one that is below what is expected: the records of an inner batch, or old ones.
    assert find_valid_batch(records, 0, 41) == (len(prefix) + len(batch(40, 30)), 41)
    assert find_valid_batch(records, 0, 42) is None


def test_valid_batch_is_found_across_the_border_of_windows(tmp_path):
    for shift in (-70, -20, -17, -16, -5, 0):
        prefix = b"\x01" * (4 * 1024 * 1024 + shift)
        records = write(tmp_path, prefix, batch(7, 30))
        assert find_valid_batch(records, 0, 7) == (len(prefix), 7)


GOOD = [batch(number, 1000) for number in range(3)]
# So that the batches lie across the borders of sectors.
LEAD = batch(0, 425)
SIZE = len(GOOD[0])


def judge(tmp_path, number, change):
    """Return the verdict on batch `number` of three after `change` of the file's bytes."""
    data = bytearray(b"".join([LEAD, *GOOD]))
    change(data)
    records = write(tmp_path, data)
    return classify_damage(records, len(LEAD) + number * SIZE, number)


def test_a_flipped_bit_before_valid_batches_is_rot(tmp_path):
    def flip(data):
        data[len(LEAD) + 200] ^= 1

    found = judge(tmp_path, 0, flip)
    assert found.kind is DamageKind.CORRUPTION
    assert (found.next_position, found.next_offset) == (len(LEAD) + SIZE, 1)


def test_a_lost_sector_before_valid_batches_is_a_hole(tmp_path):
    def lose(data):
        data[1536:2048] = bytes(512)

    found = judge(tmp_path, 0, lose)
    assert found.kind is DamageKind.HOLE
    assert found.next_offset == 2, "two batches shared the sector"


def test_nothing_valid_behind_is_a_torn_tail(tmp_path):
    def flip(data):
        data[-5] ^= 1

    found = judge(tmp_path, 2, flip)
    assert found.kind is DamageKind.TORN_TAIL
    assert found.next_position is None


def test_header_lost_up_to_the_end_of_its_sector_is_a_hole(tmp_path):
    """What lay before it in that sector was durable already, so only a part of it is NULs."""
    start = len(LEAD)
    assert 490 < start < 500

    def lose(data):
        data[start:512] = bytes(512 - start)

    assert judge(tmp_path, 0, lose).kind is DamageKind.HOLE

    def lose_less(data):
        data[start : start + 11] = bytes(11)

    assert judge(tmp_path, 0, lose_less).kind is DamageKind.CORRUPTION


def test_offset_lost_at_the_end_of_a_sector_is_a_hole(tmp_path):
    """Nine bytes: an offset, and a byte of the length that is a NUL anyway."""
    lead = batch(0, 433)
    assert len(lead) == 503
    data = bytearray(lead + batch(30, 100) + batch(31, 100))
    data[503:512] = bytes(9)
    records = write(tmp_path, data)
    assert classify_damage(records, 503, 30).kind is DamageKind.HOLE
    data[511] = 1
    assert classify_damage(write(tmp_path, data), 503, 30).kind is DamageKind.CORRUPTION
