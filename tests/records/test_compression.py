"""Codecs in both directions, and data whose headers state a wrong size."""

import builtins
import gzip
import tracemalloc
import zlib

import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import CorruptDataError
from kctl.records.compression import (
    CompressionType,
    compress,
    decompress,
    gzip_chunks,
    gzip_inflater,
)
from kctl.records.compression_stream import decompress_prefix

CODECS = [codec for codec in CompressionType if codec]
SOME = b"abcdefgh" * 20_000 + bytes(range(256)) * 30


@given(data=st.binary(max_size=3000), codec=st.sampled_from(CompressionType))
def test_what_goes_in_comes_out(data, codec):
    for magic in (0, 1, 2):
        assert decompress(codec, compress(codec, data, magic), magic=magic) == data


@pytest.mark.parametrize("codec", CODECS)
def test_limit_is_exact(codec):
    packed = compress(codec, SOME)
    assert decompress(codec, packed, len(SOME)) == SOME
    with pytest.raises(CorruptDataError, match="more than"):
        decompress(codec, packed, len(SOME) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_prefix_is_what_was_asked_for(codec):
    packed = compress(codec, SOME)
    assert decompress_prefix(codec, packed, 1000) == (SOME[:1000], False)
    assert decompress_prefix(codec, packed, len(SOME)) == (SOME, True)
    assert decompress_prefix(codec, packed, len(SOME) + 1) == (SOME, True)


@pytest.mark.parametrize("codec", CODECS)
def test_cut_data_are_noticed(codec):
    packed = compress(codec, SOME)
    # A snappy stream may end after any block: only its records tell.
    whole_blocks = {16} if codec == CompressionType.SNAPPY else set()
    position = 16
    while whole_blocks and position < len(packed):
        position += 4 + int.from_bytes(packed[position : position + 4], "big")
        whole_blocks.add(position)
    for length in {*range(40), *range(0, len(packed), 97), len(packed) - 1} - whole_blocks:
        with pytest.raises(CorruptDataError):
            decompress(codec, packed[:length])


@given(data=st.binary(max_size=200), codec=st.sampled_from(CODECS))
def test_noise_is_refused_or_read_but_nothing_else(data, codec):
    for packed in (data, compress(codec, b"seed" * 50)[:30] + data):
        try:
            plain = decompress(codec, packed, 100_000)
        except CorruptDataError:
            continue
        assert len(plain) <= 100_000


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7), codec=st.sampled_from(CODECS))
def test_flipped_bit_never_escapes_as_another_error(position, bit, codec):
    packed = bytearray(compress(codec, SOME[:5000]))
    packed[position % len(packed)] ^= 1 << bit
    try:
        decompress(codec, packed, 100_000)
    except CorruptDataError:
        return


@pytest.mark.parametrize("codec", CODECS)
def test_bomb_allocates_no_more_than_the_limit(codec):
    bomb = compress(codec, bytes(60_000_000))
    decompress_prefix(codec, bomb, 1)
    tracemalloc.start()
    with pytest.raises(CorruptDataError, match="more than 2000000 bytes"):
        decompress(codec, bomb, 2_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000


def test_snappy_block_that_claims_gigabytes_is_not_believed():
    huge = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptDataError, match="claims to hold"):
        decompress(CompressionType.SNAPPY, huge + b"data")
    framed = compress(CompressionType.SNAPPY, b"")[:16] + (9).to_bytes(4, "big") + huge + b"data"
    with pytest.raises(CorruptDataError, match="claims to hold"):
        decompress(CompressionType.SNAPPY, framed)


def test_bare_snappy_block_is_read():
    assert decompress(CompressionType.SNAPPY, snappy.compress(SOME)) == SOME


def test_snappy_streams_one_after_the_other_are_one():
    packed = compress(CompressionType.SNAPPY, b"one")
    assert decompress(CompressionType.SNAPPY, packed + packed) == b"oneone"


def test_gzip_members_one_after_the_other_are_one():
    packed = compress(CompressionType.GZIP, b"one")
    assert decompress(CompressionType.GZIP, packed + packed + b"padding") == b"oneone"


def test_gzip_is_read_without_isal(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "isal", None)
    packed = zlib.compress(SOME, wbits=31)
    assert decompress(CompressionType.GZIP, packed) == SOME
    with pytest.raises(CorruptDataError):
        decompress(CompressionType.GZIP, b"not gzip at all")


def test_zstd_frames_one_after_the_other_are_one():
    packed = compress(CompressionType.ZSTD, SOME)
    assert decompress(CompressionType.ZSTD, packed + packed) == SOME + SOME


def test_lz4_of_format_v0_has_its_own_header_checksum():
    old, new = (compress(CompressionType.LZ4, SOME, magic) for magic in (0, 1))
    assert old != new
    assert old[:6] + old[7:] == new[:6] + new[7:]
    with pytest.raises(CorruptDataError):
        decompress(CompressionType.LZ4, old, magic=1)


def test_codecs_that_do_not_exist_are_refused():
    for codec in (5, 6, 7):
        with pytest.raises(CorruptDataError, match="Unknown compression type"):
            decompress(codec, b"data")
        with pytest.raises(CorruptDataError, match="Unknown compression type"):
            compress(codec, b"data")


def test_the_inflater_of_gzip_is_looked_for_once(monkeypatch):
    """Where isal is missing, each attempt to import it reads the directories of packages."""
    gzip_inflater.cache_clear()
    attempts = []
    importing = builtins.__import__

    def counted(name, *arguments):
        attempts.extend([name] if name.startswith("isal") else [])
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", counted)
    for _ in range(3):
        assert b"".join(gzip_chunks(memoryview(gzip.compress(b"data")), 100)) == b"data"
    assert attempts == ["isal"]
