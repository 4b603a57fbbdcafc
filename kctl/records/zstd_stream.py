"""Decompresses zstd frames piece by piece, within bounded memory and work.

The frames are walked over first, block by block, without being decompressed: the walk finds data
that end early, the memory that the largest window takes, and frames without end. Skippable frames
are skipped, as zstd does.

The codec is the one of Python's standard library (3.14) or its backport. It is imported on first
use: loading it takes as long as a short command.

Format: RFC 8878; Kafka 2.7: org.apache.kafka.common.record.CompressionType; KIP-110
"""

from collections.abc import Generator, Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from kctl.errors import CorruptDataError
from kctl.work import EXCLUSIVE, HELD_BYTES_MAX

BLOCK_BYTES_MAX = 128 * 1024
# Frames of one batch, of which producers write one.
FRAMES_MAX = 1_000
# Compressed bytes that the codec is given at once: it copies what it does not use.
_INPUT_BYTES = 64 * 1024
# Blocks that are walked over between two chunks, within two milliseconds.
_BLOCKS_PER_STEP = 1_000
# The window that zstd itself accepts by default; the memory is touched only as it fills.
_WINDOW_LOG_MAX = 27
_MAGIC = 0xFD2FB528
# The lowest 4 bits of the magic number of a skippable frame are the application's.
_SKIPPABLE_MAGIC = 0x184D2A50
_HEADER_BYTES_MAX = 18
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_RUN_LENGTH_BLOCK, _RESERVED_BLOCK = 1, 3


class _FrameHeader(NamedTuple):
    """What a frame's header states; sizes in bytes."""

    size: int
    window: int
    has_checksum: bool
    # The bytes after the header of a skippable frame; None in a frame with data.
    skipped: int | None = None


@cache
def library() -> Any:
    """Return the module of the codec."""
    try:
        return import_module("compression.zstd")
    except ImportError:
        return import_module("backports.zstd")


def compressor() -> Any:
    """Return a compressor whose frames do not state the size of their content, as zstd-jni's."""
    codec = library()
    return codec.ZstdCompressor(options={codec.CompressionParameter.content_size_flag: 0})


def compress(data: bytes | bytearray | memoryview) -> bytes:
    """Return `data` as one frame."""
    packer = compressor()
    frame: bytes = packer.compress(data, packer.FLUSH_FRAME)
    return frame


def zstd_chunks(view: memoryview, chunk_bytes: int) -> Iterator[bytes]:
    """Yield what the frames in `view` hold, at most `chunk_bytes` at a time.

    An empty chunk stands for work without a result, EXCLUSIVE for a window beyond HELD_BYTES_MAX,
    which is allocated after that. CorruptDataError where a frame is damaged, ends early or requires
    a window of more than 128 MiB, zstd's own default.
    """
    codec = library()
    options = {codec.DecompressionParameter.window_log_max: _WINDOW_LOG_MAX}
    window = yield from _walk_frames(view)
    if window > HELD_BYTES_MAX:
        yield EXCLUSIVE
    position, end = 0, len(view)
    try:
        while position < end:
            reader = codec.ZstdDecompressor(options=options)
            while not reader.eof:
                part = view[position : position + _INPUT_BYTES] if reader.needs_input else b""
                if reader.needs_input and not part:
                    raise CorruptDataError("zstd data end early")
                position += len(part)
                yield reader.decompress(part, chunk_bytes)
            position -= len(reader.unused_data)
    except codec.ZstdError as error:
        raise CorruptDataError(f"zstd data are damaged: {error}") from None


def _walk_frames(view: memoryview) -> Generator[bytes, None, int]:
    """Return the largest window of the frames in `view`, in bytes; yields an empty chunk for every
    so many blocks.

    CorruptDataError unless `view` ends with a frame's end, or if it has more than FRAMES_MAX
    frames.
    """
    position, end = 0, len(view)
    count = frames = window = 0
    while position < end or not position:
        frames += 1
        if frames > FRAMES_MAX:
            raise CorruptDataError(f"zstd data have more than {FRAMES_MAX} frames")
        header = _frame_header(bytes(view[position : position + _HEADER_BYTES_MAX]))
        position += header.size
        if header.skipped is not None:
            position += header.skipped
        else:
            window = max(window, header.window)
            is_last = False
            while not is_last:
                position, is_last = _next_block(view, position)
                count += 1
                if count % _BLOCKS_PER_STEP == 0:
                    yield b""
            position += 4 if header.has_checksum else 0
        if position > end:
            raise CorruptDataError("zstd data end early")
    if window > 1 << _WINDOW_LOG_MAX:
        raise CorruptDataError(f"zstd data need a window of {window} bytes")
    return window


def _next_block(view: memoryview, position: int) -> tuple[int, bool]:
    """Return the end of the block at `position`, and whether it is its frame's last."""
    if position + 3 > len(view):
        raise CorruptDataError("zstd data end early")
    block = int.from_bytes(view[position : position + 3], "little")
    kind = block >> 1 & 3
    if kind == _RESERVED_BLOCK:
        raise CorruptDataError("zstd data have a block of the reserved type 3")
    # A run-length block is one byte, whatever size it states.
    return position + 3 + (1 if kind == _RUN_LENGTH_BLOCK else block >> 3), bool(block & 1)


def _frame_header(head: bytes) -> _FrameHeader:
    """Decode the header that `head` begins with."""
    magic = int.from_bytes(head[:4], "little")
    if len(head) < 5:
        raise CorruptDataError("zstd data end early")
    if magic & ~0xF == _SKIPPABLE_MAGIC:
        return _FrameHeader(8, 0, has_checksum=False, skipped=int.from_bytes(head[4:8], "little"))
    if magic != _MAGIC:
        raise CorruptDataError("zstd data do not begin with a frame")
    flags = head[4]
    is_single_segment = bool(flags & 0x20)
    position = 5 if is_single_segment else 6
    position += _DICTIONARY_ID_BYTES[flags & 3]
    size_bytes = _CONTENT_SIZE_BYTES[flags >> 6] or int(is_single_segment)
    if len(head) < position + size_bytes:
        raise CorruptDataError("zstd data end early")
    if is_single_segment:
        # The window holds the whole content.
        window = int.from_bytes(head[position : position + size_bytes], "little")
        window += 256 if size_bytes == 2 else 0
    else:
        base = 1 << 10 + (head[5] >> 3)
        window = base + base // 8 * (head[5] & 7)
    return _FrameHeader(position + size_bytes, window, has_checksum=bool(flags & 4))
