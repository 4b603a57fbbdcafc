"""Small segments that are decoded together yield what they yield one by one, damage included."""

import random  # noqa: TID251 - seeded

import pytest

from kctl.arrow_files.log_discovery import find_logs
from kctl.export import joined_pieces
from kctl.export.joined_pieces import JoinedPieces, together
from kctl.export.options import ExportOptions, Isolation
from kctl.export.rows import SplitReader
from kctl.export.splits import Piece, plan_log
from kctl.records.compression import CompressionType
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment

NAMES = ("key", "value", "offset", "timestamp", "headers", "position")


@pytest.fixture
def orders(tmp_path):
    """orders-0: offsets 0 to 199 in ten segments of two batches; some are compressed."""
    directory = tmp_path / "logs" / "orders-0"
    for base in range(0, 200, 20):
        codec = (CompressionType.NONE, CompressionType.GZIP)[base // 20 % 2]
        batches = [batch_of(base + 10 * n, compression_type=codec) for n in range(2)]
        write_segment(RealDisk(), directory, base, batches)
    return directory


def read(source, **options):
    """Return rows, damages and bytes read of the only split of a source."""
    reading = ExportOptions(**options)
    (log,) = find_logs([str(source)], ())
    (split,) = plan_log(log, reading)
    done = []
    reader = SplitReader(split, reading, done.append)
    rows = [row for it in reader.chunks() for row in it.to_arrow(NAMES).to_pylist()]
    return rows, reader.damages, reader.bytes_read, sum(done)


def one_by_one(monkeypatch, source, **options):
    with monkeypatch.context() as patch:
        patch.setattr(joined_pieces, "_PIECE_BYTES_MAX", -1)
        return read(source, **options)


def test_segments_are_decoded_together_and_keep_their_positions(orders, monkeypatch):
    (log,) = find_logs([str(orders)], ())
    (split,) = plan_log(log, ExportOptions())
    assert [len(pieces) for pieces in together(split.pieces)] == [10]
    assert JoinedPieces.read(split.pieces) is not None
    found = read(orders)
    assert found == one_by_one(monkeypatch, orders)
    assert [row["offset"] for row in found[0]] == list(range(200))
    assert {row["position"] for row in found[0][::20]} == {0}


def test_large_pieces_are_alone_and_small_ones_fill_a_buffer(monkeypatch):
    monkeypatch.setattr(joined_pieces, "_PIECE_BYTES_MAX", 10)
    monkeypatch.setattr(joined_pieces, "_JOINED_BYTES_MAX", 25)
    sizes = (10, 10, 10, 11, 5, 30, 3, 3)
    pieces = [Piece(f"{number}.log", 0, size, 0) for number, size in enumerate(sizes)]
    found = [[it.end for it in group] for group in together(pieces)]
    assert found == [[10, 10], [10], [11], [5], [30], [3, 3]]


@pytest.mark.parametrize("seed", range(40))
def test_damaged_segments_are_read_as_one_by_one(orders, monkeypatch, seed):
    rng = random.Random(seed)
    paths = sorted(orders.glob("*.log"))
    for path in rng.sample(paths, rng.randrange(1, 4)):
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data))
        match seed % 4:
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data = data[:at]
            case 2:
                data += bytes(rng.randrange(1, 200))
            case _:
                data[at:at] = rng.randbytes(rng.randrange(1, 30))
        path.write_bytes(data)
    assert read(orders) == one_by_one(monkeypatch, orders)


def test_batch_across_the_border_of_two_segments_is_damage(orders, monkeypatch):
    first, second = sorted(orders.glob("*.log"))[:2]
    tail = second.read_bytes()
    first.write_bytes(first.read_bytes() + tail[:100])
    second.write_bytes(tail[100:])
    found = read(orders)
    assert found == one_by_one(monkeypatch, orders)
    assert found[1]


def test_records_that_do_not_decompress_are_reported_in_their_file(orders, monkeypatch):
    path = sorted(orders.glob("*.log"))[3]
    broken = bytearray(batch_of(60, compression_type=CompressionType.NONE))
    # The checksum is right, the codec is not.
    broken[22] |= CompressionType.GZIP
    broken[17:21] = crc_of(broken)
    path.write_bytes(bytes(broken) + batch_of(70))
    found = read(orders)
    assert found == one_by_one(monkeypatch, orders)
    (damage,) = found[1]
    assert (damage.path, damage.position, damage.first_offset) == (str(path), 0, 60)


def crc_of(batch):
    from kctl.records.checksum import crc32c

    return crc32c(memoryview(batch)[21:]).to_bytes(4, "big")


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("topic", ["tx", "v0-gzip", "upgraded", "compacted"])
def test_logs_of_apache_kafka_are_read_as_one_by_one(golden, monkeypatch, topic, isolation):
    for source in sorted(golden.glob(f"{topic}-[0-9]*")):
        found = read(source, isolation=isolation)
        assert found == one_by_one(monkeypatch, source, isolation=isolation)
