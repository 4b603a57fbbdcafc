"""Raw snappy blocks piece by piece: what the library makes of the whole, in bounded pieces."""

from hashlib import shake_128

import pytest
import snappy

from kctl.errors import CorruptDataError
from kctl.records.compression import SNAPPY, decompress
from kctl.records.compression_stream import CHUNK_BYTES, decompressed_chunks
from kctl.records.snappy_stream import AT_ONCE_BYTES, ELEMENTS_PER_PIECE, block_chunks

NOISE = shake_128().digest(700_000)
DATA = {
    "text": b"".join(b"%d records, %d\n" % (n, n * 7919 % 1000) for n in range(200_000)),
    "zeros": bytes(5_000_000),
    "literals longer than a piece": NOISE + bytes(1_000_000) + NOISE,
    "far copies": (NOISE[:60_000] + b"x") * 50,
}


def varint(value):
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))


def literal(data):
    return bytes((62 << 2, *(len(data) - 1).to_bytes(3, "little"))) + data


@pytest.mark.parametrize("name", DATA)
def test_pieces_are_what_the_block_holds(name):
    data = DATA[name]
    assert len(data) > AT_ONCE_BYTES
    pieces = list(block_chunks(memoryview(snappy.compress(data)), CHUNK_BYTES))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= CHUNK_BYTES + 64


def test_a_bare_block_is_read_as_a_stream():
    data = DATA["text"]
    packed = snappy.compress(data)
    assert b"".join(decompressed_chunks(SNAPPY, packed)) == data == decompress(SNAPPY, packed)


def test_a_piece_has_a_bounded_number_of_elements():
    """Of a block of single bytes, each an element, a piece takes no more than it can walk over."""
    count = AT_ONCE_BYTES + 1
    block = varint(count) + b"\0x" * count
    pieces = block_chunks(memoryview(block), CHUNK_BYTES)
    assert [len(next(pieces)) for _ in range(3)] == [ELEMENTS_PER_PIECE] * 3
    assert sum(map(len, pieces)) == count - 3 * ELEMENTS_PER_PIECE


@pytest.mark.parametrize(
    "block",
    [
        varint(AT_ONCE_BYTES + 1) + literal(NOISE),
        varint(AT_ONCE_BYTES + 1) + literal(NOISE) * 2 + literal(NOISE)[:-1],
        # A copy from before the beginning, one from too far back, one that is cut.
        varint(AT_ONCE_BYTES + 1) + b"\x02\x01\0" + literal(NOISE),
        varint(AT_ONCE_BYTES + 1) + literal(NOISE) * 3 + b"\x03\0\0\x02\0",
        varint(AT_ONCE_BYTES + 1) + literal(NOISE) * 3 + b"\xff\x01",
        varint(AT_ONCE_BYTES + 1) + b"\xff" * 200_000,
    ],
    ids=["short", "cut literal", "before the beginning", "too far back", "cut copy", "garbage"],
)
def test_damage_is_reported(block):
    with pytest.raises(CorruptDataError):
        list(block_chunks(memoryview(block), CHUNK_BYTES))


def test_changed_bits_are_damage_or_what_the_library_reads():
    packed = snappy.compress(DATA["far copies"])
    for number in range(60):
        chosen = int.from_bytes(NOISE[4 * number : 4 * number + 4], "little")
        damaged = bytearray(packed)
        damaged[4 + chosen % (len(packed) - 4)] ^= 1 << (chosen >> 29)
        try:
            expected = snappy.uncompress(bytes(damaged))
        except snappy.UncompressError:
            expected = None
        try:
            found = b"".join(block_chunks(memoryview(bytes(damaged)), CHUNK_BYTES))
        except CorruptDataError:
            continue
        assert found == expected
