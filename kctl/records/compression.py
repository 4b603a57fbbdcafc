"""Codecs of record batches: gzip, snappy, lz4 and zstd, each with a bound on its output.

What a producer compressed is not trusted: a few bytes may stand for gigabytes. So every entry point
takes a limit, and no codec allocates more than that limit or than its input can legitimately hold,
whichever is less.

Invariants:
- `decompress` returns everything or raises; `decompressed_chunks` (`compression_stream`) returns it
  in pieces.
- The libraries are imported on first use: zstd alone takes longer than a short command.
- The output does not depend on which optional libraries are installed.

snappy is framed as by the xerial library (a header, then length-prefixed blocks of 32 KiB); a bare
snappy block is read too, as some clients send that. lz4 frames inside v0 messages carry a header
checksum that also covers the frame's magic number, a mistake of Kafka 0.8 that is part of the
format now (KAFKA-3160).

Kafka 2.7: org.apache.kafka.common.record.CompressionType, KafkaLZ4BlockInputStream; KIP-57, KIP-110
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from typing import Any, Protocol

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.snappy_stream import announced_length
from kctl.records.zstd_stream import BLOCK_BYTES_MAX, zstd_chunks
from kctl.records.zstd_stream import compress as compress_zstd

__all__ = ["CompressionType", "compress", "decompress", "load_codecs"]


class Sliceable(Protocol):
    """Bytes that are taken slice by slice, from memory or from a file."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Buffer: ...


class CompressionType(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Return the codec's name in configuration values: `none`, `gzip`, ..."""
        return self.name.lower()


NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
# The labels, in the order of the numbers.
CODEC_NAMES = tuple(it.label for it in CompressionType)

# The limit of a batch's decompressed bytes, unless the caller passes another: the largest request
# that a broker accepts by default (socket.request.max.bytes).
DEFAULT_DECOMPRESSED_BYTES_MAX = 104_857_600

# Compressed bytes passed to a codec at once, where it copies its unused input.
INPUT_BYTES = 64 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# One lz4 sequence byte stands for at most 255 bytes.
_LZ4_RATIO_MAX = 256
_LZ4_STEP_BYTES = 1024 * 1024


def load_codecs() -> None:
    """Import the libraries of all codecs, on any thread: the first use of one costs several
    milliseconds, which a loop that serves others does not have."""
    for compression_type in _DECODERS:
        decompress(compression_type, compress(compression_type, b"codec"))


def compress(compression_type: int, data: Buffer, magic: int = 2) -> bytes:
    """Compress `data` as records of format `magic` carry it."""
    if compression_type == NONE:
        return bytes(data)
    if compression_type == GZIP:
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()
    if compression_type == SNAPPY:
        return _compress_snappy(data)
    if compression_type == LZ4:
        return _compress_lz4(data, magic)
    if compression_type == ZSTD:
        return compress_zstd(data)
    raise CorruptDataError(f"Unknown compression type id: {compression_type}")


def decompress(
    compression_type: int,
    data: Buffer,
    limit: int = DEFAULT_DECOMPRESSED_BYTES_MAX,
    magic: int = 2,
) -> bytes:
    """Return all of `data` decompressed.

    CorruptDataError if it is damaged, ends early or decompresses to more than `limit` bytes.
    """
    plain, is_complete = _decompress(compression_type, data, limit, magic)
    if not is_complete:
        raise CorruptDataError(
            f"{CompressionType(compression_type).label} data decompress to more than {limit} bytes"
        )
    return plain


def _decompress(compression_type: int, data: Buffer, limit: int, magic: int) -> tuple[bytes, bool]:
    if compression_type == NONE:
        return bytes(data[:limit]), len(data) <= limit
    decoder = _DECODERS.get(compression_type)
    if decoder is None:
        raise CorruptDataError(f"Unknown compression type id: {compression_type}")
    if magic == 0 and compression_type == LZ4:
        data = with_lz4_checksum(data, covers_magic=False)
    return decoder(data, limit)


def _decompress_gzip(data: Buffer, limit: int) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    left = limit
    # One byte more than the limit distinguishes "exactly the limit" from "too much".
    for part in gzip_chunks(memoryview(data), limit + 1):
        if len(part) > left:
            parts.append(part[:left])
            return b"".join(parts), False
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts), True


def gzip_chunks(view: Sliceable, chunk_bytes: int) -> Iterator[bytes]:
    """Yield the contents of the gzip members in `view`, at most `chunk_bytes` at a time; chunks may
    be empty. CorruptDataError where they are damaged or end early."""
    inflater, failure = gzip_inflater()
    position, end = 0, len(view)
    if not end:
        raise CorruptDataError("gzip data are empty")
    is_first = True
    # Bytes after the last member are padding, as for gzip readers.
    while position < end and (is_first or view[position : position + 2] == _GZIP_MAGIC):
        is_first = False
        stream = inflater(wbits=31)
        rest: Buffer = b""
        while not stream.eof:
            if not rest:
                rest = view[position : position + INPUT_BYTES]
                position += len(rest)
                if not rest:
                    raise CorruptDataError("gzip data end early")
            try:
                chunk = stream.decompress(rest, chunk_bytes)
            except failure as error:
                raise CorruptDataError(f"gzip data are damaged: {error}") from None
            rest = stream.unconsumed_tail
            yield chunk
        position -= len(stream.unused_data)


@cache
def gzip_inflater() -> tuple[Callable[..., Any], Any]:
    """Return the inflating half of isal if it is installed (twice as fast as zlib),
    else of zlib.

    Found once: an import that fails is tried again each time, which reads directories.
    """
    try:
        from isal import isal_zlib  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return zlib.decompressobj, zlib.error
    return isal_zlib.decompressobj, isal_zlib.error


def _decompress_snappy(data: Buffer, limit: int) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    left = limit
    for block in split_snappy(memoryview(data)):
        if not block:
            continue
        part, fits = _snappy_block(block, left)
        parts.append(part)
        if not fits:
            return b"".join(parts), False
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts), True


def split_snappy(view: Sliceable) -> Iterator[memoryview]:
    """Yield the raw blocks: those of the xerial frame, or the only one of data without a frame.

    An empty view stands for a header.
    """
    if bytes(view[:8]) != _XERIAL_MAGIC:
        if not view:
            raise CorruptDataError("snappy data are empty")
        yield memoryview(view[0 : len(view)])
        return
    position = len(_XERIAL_HEADER)
    end = len(view)
    if end < position:
        raise CorruptDataError("snappy data end inside their header")
    while position < end:
        if view[position : position + 8] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)  # One stream appended to another.
            yield memoryview(b"")
            continue
        if end - position < 4:
            raise CorruptDataError("snappy data end inside a block's length")
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if not 0 < length <= end - position:
            raise CorruptDataError("snappy data end inside a block")
        yield memoryview(view[position : position + length])
        position += length


def _snappy_block(block: memoryview, limit: int) -> tuple[bytes, bool]:
    """Return one raw block, truncated at `limit`; its announced length is checked first."""
    import snappy  # type: ignore[import-untyped]

    announced, _ = announced_length(block)
    if announced > max(limit, _XERIAL_BLOCK_BYTES * 4):
        return b"", False
    try:
        plain: bytes = snappy.uncompress(bytes(block))
    except snappy.UncompressError as error:
        raise CorruptDataError(f"snappy block is damaged: {error}") from None
    return (plain, True) if len(plain) <= limit else (plain[:limit], False)


def _compress_snappy(data: Buffer) -> bytes:
    import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block: bytes = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_lz4(data: Buffer, limit: int) -> tuple[bytes, bool]:
    import lz4.frame  # type: ignore[import-untyped]

    context = lz4.frame.create_decompression_context()
    view = memoryview(data)
    parts: list[bytes] = []
    left = limit
    position = 0
    step = max(64 * 1024, len(view) * 8)
    while True:
        try:
            part, used, is_end = lz4.frame.decompress_chunk(
                context, view[position:], max_length=min(left + 1, step, _LZ4_STEP_BYTES)
            )
        except (RuntimeError, ValueError) as error:
            raise CorruptDataError(f"lz4 data are damaged: {error}") from None
        if len(part) > left:
            parts.append(part[:left])
            return b"".join(parts), False
        parts.append(part)
        left -= len(part)
        position += used
        if is_end:
            return parts[0] if len(parts) == 1 else b"".join(parts), True
        if not part and not used:
            raise CorruptDataError("lz4 data end early")


def _compress_lz4(data: Buffer, magic: int) -> bytes:
    """Compress to independent blocks of 64 KiB without content size: all that Kafka's own reader
    accepts."""
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        bytes(data),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return with_lz4_checksum(frame, covers_magic=True) if magic == 0 else frame


def with_lz4_checksum(frame: Buffer, *, covers_magic: bool) -> bytes:
    """Return the frame with its header checksum recomputed, covering the magic number or not."""
    raw = bytes(frame)
    if len(raw) < 7 or raw[:4] != _LZ4_MAGIC:
        raise CorruptDataError("lz4 data do not begin with a frame")
    # Bit 3 of the flags: 8 bytes of content size follow the block descriptor.
    end = 14 if raw[4] & 0x08 else 6
    if len(raw) <= end:
        raise CorruptDataError("lz4 data end inside their header")
    checksum = _xxh32_of_short(raw[0 if covers_magic else 4 : end]) >> 8 & 0xFF
    return raw[:end] + bytes((checksum,)) + raw[end + 1 :]


def _xxh32_of_short(data: bytes) -> int:
    """Return xxHash32 with seed 0 of fewer than 16 bytes, which is enough for a frame header."""
    mask = 0xFFFFFFFF
    value = (374761393 + len(data)) & mask
    position = 0
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        value = (value + word * 3266489917) & mask
        value = ((value << 17 | value >> 15) & mask) * 668265263 & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * 374761393) & mask
        value = ((value << 11 | value >> 21) & mask) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def _decompress_zstd(data: Buffer, limit: int) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    left = limit
    # Well-formed data hold a few times their size; the buffer grows if there is more.
    wanted = max(len(data) * 8, BLOCK_BYTES_MAX)
    for part in zstd_chunks(memoryview(data), min(limit + 1, wanted)):
        if len(part) > left:
            parts.append(part[:left])
            return b"".join(parts), False
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts), True


_DECODERS: dict[int, Callable[[Buffer, int], tuple[bytes, bool]]] = {
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
