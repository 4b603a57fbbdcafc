"""Varints at every size where their encoding changes."""

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import read_uvarint, write_uvarint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varints(value, encoded):
    assert write_uvarint(value).hex() == encoded
    assert read_uvarint(b"xx" + bytes.fromhex(encoded), 2) == (value, 2 + len(encoded) // 2)


def test_a_varint_of_six_bytes_is_corrupt():
    with pytest.raises(CorruptDataError, match="more than 5 bytes"):
        read_uvarint(b"\xff" * 5 + b"\x01", 0)


def test_a_varint_that_is_cut_short_raises_index_error():
    for size in range(5):
        with pytest.raises(IndexError):
            read_uvarint(b"\xff" * size, 0)
