"""zstd frames piece by piece: what they hold, and frames that are damaged or make false claims."""

import pytest

from kctl.errors import CorruptDataError
from kctl.records.zstd_stream import compress, library, zstd_chunks

PLAIN = bytes(range(256)) * 2_000
SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"hello"


def plain_of(frames, chunk_bytes=10_000):
    return b"".join(zstd_chunks(memoryview(frames), chunk_bytes))


def stored(content, flags, window=b"", size=b""):
    """A frame of one block that is not compressed."""
    head = (0xFD2FB528).to_bytes(4, "little") + bytes((flags,)) + window + size
    return head + (len(content) << 3 | 1).to_bytes(3, "little") + content


def with_options(**options):
    parameter = library().CompressionParameter
    chosen = {getattr(parameter, name): value for name, value in options.items()}
    return library().ZstdCompressor(options=chosen)


def test_chunks_are_never_larger_than_wanted():
    chunks = list(zstd_chunks(memoryview(compress(PLAIN)), 1_000))
    assert max(map(len, chunks)) <= 1_000
    assert b"".join(chunks) == PLAIN


@pytest.mark.parametrize(
    "options",
    [
        {"content_size_flag": 1},
        {"content_size_flag": 0, "checksum_flag": 1},
        {"checksum_flag": 1, "compression_level": 19},
        {"window_log": 10, "content_size_flag": 0},
    ],
)
@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 400_000])
def test_every_form_of_header_is_read(options, size):
    packer = with_options(**options)
    frame = packer.compress(PLAIN[:size], packer.FLUSH_FRAME)
    assert plain_of(frame) == PLAIN[:size]
    assert plain_of(frame + frame) == PLAIN[:size] * 2


def test_skippable_frames_are_skipped():
    frame = compress(b"data")
    assert plain_of(SKIPPABLE + frame + SKIPPABLE + frame) == b"datadata"
    with pytest.raises(CorruptDataError, match="end early"):
        plain_of(frame + SKIPPABLE[:-1])


@pytest.mark.parametrize("checksum", [0, 1])
def test_a_frame_that_ends_early_is_damaged_wherever_it_ends(checksum):
    packer = with_options(checksum_flag=checksum)
    frame = packer.compress(PLAIN[:5_000], packer.FLUSH_FRAME)
    for end in range(len(frame)):
        with pytest.raises(CorruptDataError):
            plain_of(frame[:end])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"not zstd at all", "do not begin with a frame"),
        (compress(b"x") + b"trailing", "do not begin with a frame"),
        (stored(b"x", 0, b"\x98"), "need a window of 536870912 bytes"),
        (stored(b"x", 0xE0, b"", (1 << 28).to_bytes(8, "little")), "need a window of 268435456"),
        (stored(b"x", 3, b"\x50", (7).to_bytes(4, "little")), "damaged"),
        (stored(b"x", 0, b"\x50")[:6] + b"\7\0\0", "reserved type"),
        (stored(b"x", 0x20, b"", b"\2"), "damaged"),
    ],
)
def test_false_claims_are_damage(frame, message):
    with pytest.raises(CorruptDataError, match=message):
        plain_of(frame)


def test_a_stored_block_is_read():
    assert plain_of(stored(b"content", 0, b"\x50")) == b"content"
    assert plain_of(stored(b"content", 0x20, b"", b"\7")) == b"content"
