"""Codecs of record batches: gzip, snappy, lz4 and zstd, each with a bound on what comes out.

What a producer compressed is a claim by a stranger: a few bytes may stand for gigabytes. So every
way in takes a limit, and no codec allocates more than that limit or than its input can honestly
hold, whichever is less.

Invariants:
- `decompress` returns everything or raises; `decompress_prefix` returns at most what was asked.
- The libraries are imported on first use: zstandard alone takes longer than a short command.
- What is written does not depend on which optional libraries are installed.

snappy is framed as the xerial library does (a header, then length-prefixed blocks of 32 KiB);
a bare snappy block is read too, as some clients send that. lz4 frames inside v0 messages carry a
header checksum that also covers the frame's magic number, a mistake of Kafka 0.8 that is part of
the format now (KAFKA-3160).

Kafka 2.7: org.apache.kafka.common.record.CompressionType, KafkaLZ4BlockInputStream; KIP-57, KIP-110
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from kctl.errors import CorruptDataError

Buffer = bytes | bytearray | memoryview


class CompressionType(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The codec's name in configuration values: `none`, `gzip`, ..."""
        return self.name.lower()


NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

# No batch may decompress to more than this, unless the caller says otherwise: the largest request
# that a broker takes by default (socket.request.max.bytes).
DEFAULT_DECOMPRESSED_BYTES_MAX = 104_857_600

_GZIP_MAGIC = b"\x1f\x8b"
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 * 1024
# A snappy element of 3 bytes copies at most 64; a claim beyond that is a lie.
_SNAPPY_RATIO_MAX = 64 // 3 + 1
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# One lz4 sequence byte stands for at most 255 bytes.
_LZ4_RATIO_MAX = 256
_LZ4_STEP_BYTES = 1024 * 1024
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
# The window that zstd itself accepts by default; the memory is touched only as it fills.
_ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024


def compress(compression_type: int, data: Buffer, magic: int = 2) -> bytes:
    """`data` under the codec, as records of format `magic` carry it."""
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
        import zstandard

        return zstandard.ZstdCompressor(write_content_size=False).compress(data)
    raise CorruptDataError(f"Unknown compression type id: {compression_type}")


def decompress(
    compression_type: int,
    data: Buffer,
    limit: int = DEFAULT_DECOMPRESSED_BYTES_MAX,
    magic: int = 2,
) -> bytes:
    """All of `data` decompressed; CorruptDataError if it is damaged, ends early or comes to more
    than `limit` bytes."""
    plain, is_complete = _decompress(compression_type, data, limit, magic)
    if not is_complete:
        raise CorruptDataError(
            f"{CompressionType(compression_type).label} data decompress to more than {limit} bytes"
        )
    return plain


def decompress_prefix(
    compression_type: int, data: Buffer, length: int, magic: int = 2
) -> tuple[bytes, bool]:
    """The first `length` bytes of what `data` hold, and whether that is all of it."""
    return _decompress(compression_type, data, length, magic)


def _decompress(compression_type: int, data: Buffer, limit: int, magic: int) -> tuple[bytes, bool]:
    if compression_type == NONE:
        return bytes(data[:limit]), len(data) <= limit
    decoder = _DECODERS.get(compression_type)
    if decoder is None:
        raise CorruptDataError(f"Unknown compression type id: {compression_type}")
    if magic == 0 and compression_type == LZ4:
        data = _with_lz4_checksum(data, covers_magic=False)
    return decoder(data, limit)


def _decompress_gzip(data: Buffer, limit: int) -> tuple[bytes, bool]:
    inflater, failure = _inflater()
    parts: list[bytes] = []
    left = limit
    rest: Buffer = data
    # Bytes behind the last member are padding, as gzip readers have it.
    while rest and (not parts or rest[:2] == _GZIP_MAGIC):
        stream = inflater(wbits=31)
        try:
            # One byte more than wanted tells "exactly the limit" from "too much".
            part = stream.decompress(rest, left + 1)
        except failure as error:
            raise CorruptDataError(f"gzip data are damaged: {error}") from None
        if len(part) > left:
            parts.append(part[:left])
            return b"".join(parts), False
        parts.append(part)
        left -= len(part)
        if not stream.eof:
            raise CorruptDataError("gzip data end early")
        rest = stream.unused_data
    if not parts:
        raise CorruptDataError("gzip data are empty")
    return parts[0] if len(parts) == 1 else b"".join(parts), True


def _inflater() -> tuple[Callable[..., Any], Any]:
    """The inflating half of isal where it is installed, for it is twice as fast as zlib."""
    try:
        from isal import isal_zlib  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return zlib.decompressobj, zlib.error
    return isal_zlib.decompressobj, isal_zlib.error


def _decompress_snappy(data: Buffer, limit: int) -> tuple[bytes, bool]:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _snappy_block(memoryview(data), limit)
    view = memoryview(data)
    position = len(_XERIAL_HEADER)
    end = len(view)
    if end < position:
        raise CorruptDataError("snappy data end inside their header")
    parts: list[bytes] = []
    left = limit
    while position < end:
        if view[position : position + 8] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)  # One stream appended to another.
            continue
        if end - position < 4:
            raise CorruptDataError("snappy data end inside a block's length")
        length = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if length > end - position:
            raise CorruptDataError("snappy data end inside a block")
        part, fits = _snappy_block(view[position : position + length], left)
        parts.append(part)
        if not fits:
            return b"".join(parts), False
        left -= len(part)
        position += length
    return b"".join(parts), True


def _snappy_block(block: memoryview, limit: int) -> tuple[bytes, bool]:
    """One raw block, cut at `limit`; its announced length is checked before it is believed."""
    import snappy  # type: ignore[import-untyped]

    announced = shift = position = 0
    while True:
        if position >= len(block) or shift > 28:
            raise CorruptDataError("snappy block has no valid length")
        byte = block[position]
        announced |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            break
        shift += 7
    if announced > len(block) * _SNAPPY_RATIO_MAX:
        raise CorruptDataError(f"snappy block of {len(block)} bytes claims to hold {announced}")
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
    """Independent blocks of 64 KiB and no content size: all that Kafka's own reader takes."""
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        bytes(data),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return _with_lz4_checksum(frame, covers_magic=True) if magic == 0 else frame


def _with_lz4_checksum(frame: Buffer, *, covers_magic: bool) -> bytes:
    """The frame with its header's checksum made anew, over the magic number too or not."""
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
    """xxHash32 with seed 0 of fewer than 16 bytes, which is all that a frame header has."""
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
    import zstandard

    view = memoryview(data)
    parts: list[bytes] = []
    left = limit
    position = 0
    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    try:
        while position < len(view) or not parts:
            end, most = _zstd_frame(view, position)
            with reader.stream_reader(view[position:end], read_size=128 * 1024) as stream:
                part = stream.read(min(left + 1, most + 1))
            if len(part) > left:
                parts.append(part[:left])
                return b"".join(parts), False
            parts.append(part)
            left -= len(part)
            position = end
    except zstandard.ZstdError as error:
        raise CorruptDataError(f"zstd data are damaged: {error}") from None
    return parts[0] if len(parts) == 1 else b"".join(parts), True


def _zstd_frame(view: memoryview, position: int) -> tuple[int, int]:
    """Where the frame at `position` ends, and the most that its blocks can hold (RFC 8878)."""
    import zstandard

    end = len(view)
    # A frame header is at most 18 bytes long.
    head = bytes(view[position : position + 18])
    has_checksum = zstandard.get_frame_parameters(head).has_checksum
    position += zstandard.frame_header_size(head)
    most = 0
    while True:
        if position + 3 > end:
            raise CorruptDataError("zstd data end early")
        block = int.from_bytes(view[position : position + 3], "little")
        kind = block >> 1 & 3
        size = block >> 3
        most += size if kind < 2 else _ZSTD_BLOCK_BYTES_MAX
        # A run-length block (kind 1) is one byte however long it says it is.
        position += 3 + (1 if kind == 1 else size)
        if block & 1:
            break
    position += 4 if has_checksum else 0
    if position > end:
        raise CorruptDataError("zstd data end early")
    return position, most


_DECODERS: dict[int, Callable[[Buffer, int], tuple[bytes, bool]]] = {
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
