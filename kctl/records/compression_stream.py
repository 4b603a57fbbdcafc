"""Codecs in pieces: decompresses and compresses a bounded number of bytes at a time.

A few compressed bytes may stand for gigabytes. `decompressed_chunks` therefore yields chunks of at
most CHUNK_BYTES, and its caller decides after each whether to continue, to let other work run, or
to stop. `StreamCompressor` is the inverse.

Memory: a chunk, and what the codec itself needs: 32 KiB (gzip), one block (lz4: 4 MiB at most;
snappy: 2 MiB), or the window (zstd: 128 MiB at most, touched only as it fills). Before it allocates
more than `kctl.work.HELD_BYTES_MAX` it yields EXCLUSIVE, an empty chunk.

Invariant: the chunks of `decompressed_chunks`, joined, are what `decompress` returns.

Kafka 2.7: org.apache.kafka.common.record.CompressionType (wrapForInput, wrapForOutput)
"""

import zlib
from collections.abc import Iterator
from typing import Any

from kctl.errors import CorruptDataError
from kctl.protocol.primitives import Buffer
from kctl.records.compression import (
    GZIP,
    INPUT_BYTES,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Sliceable,
    compress,
    gzip_chunks,
    split_snappy,
    with_lz4_checksum,
)
from kctl.records.snappy_stream import block_chunks
from kctl.records.zstd_stream import compressor, zstd_chunks
from kctl.work import EXCLUSIVE, Work

# Bytes of one chunk, which every codec produces within a millisecond.
CHUNK_BYTES = 128 * 1024
# Chunks that a prefix may be made of: data may decompress to very many empty chunks.
PREFIX_CHUNKS_MAX = 32
# The largest block size in a frame's block descriptor.
_LZ4_BLOCKS_OF_4_MIB = 7
# Bytes of a long record that are compressed in one step: gzip takes milliseconds for them.
WRITTEN_PER_STEP = 256 * 1024
# A body up to this size is compressed in one call, as `compress` does it.
_AT_ONCE_BYTES = 256 * 1024


def decompressed_chunks(
    compression_type: int,
    data: Buffer | Sliceable,
    magic: int = 2,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[bytes]:
    """Yield `data` decompressed, at most `chunk_bytes` at a time.

    An empty chunk stands for work without a result. `magic` is the format of the batch.
    CorruptDataError where `data` are damaged or end early.
    """
    view: Sliceable = data
    if isinstance(data, bytes | bytearray | memoryview):
        view = memoryview(data)
    if compression_type == NONE:
        return _slices(view, chunk_bytes)
    if compression_type == GZIP:
        return gzip_chunks(view, chunk_bytes)
    if compression_type == SNAPPY:
        return _snappy_chunks(view, chunk_bytes)
    if compression_type == LZ4:
        if magic == 0:
            view = memoryview(with_lz4_checksum(view[0 : len(view)], covers_magic=False))
        return _lz4_chunks(view, chunk_bytes)
    if compression_type == ZSTD:
        return zstd_chunks(memoryview(view[0 : len(view)]), chunk_bytes)
    raise CorruptDataError(f"Unknown compression type id: {compression_type}")


def decompress_prefix(
    compression_type: int, data: Buffer, length: int, magic: int = 2
) -> tuple[bytes, bool]:
    """Return about the first `length` decompressed bytes of `data`, and whether that is all of it.

    It is less where PREFIX_CHUNKS_MAX chunks hold less.
    """
    parts: list[bytes] = []
    left = length
    for number, part in enumerate(decompressed_chunks(compression_type, data, magic, length + 1)):
        if len(part) > left or number == PREFIX_CHUNKS_MAX:
            parts.append(part[:left])
            return b"".join(parts), False
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts), True


def _slices(view: Sliceable, chunk_bytes: int) -> Iterator[bytes]:
    for start in range(0, len(view), chunk_bytes):
        yield bytes(view[start : start + chunk_bytes])


def _snappy_chunks(view: Sliceable, chunk_bytes: int) -> Iterator[bytes]:
    for block in split_snappy(view):
        if block:
            yield from block_chunks(block, chunk_bytes)
        else:
            yield b""


def _lz4_chunks(view: Sliceable, chunk_bytes: int) -> Iterator[bytes]:
    import lz4.frame  # type: ignore[import-untyped]

    if view[5:6] and view[5:6][0] >> 4 & 7 == _LZ4_BLOCKS_OF_4_MIB:
        yield EXCLUSIVE
    context = lz4.frame.create_decompression_context()
    position = 0
    while True:
        try:
            chunk, used, is_end = lz4.frame.decompress_chunk(
                context, view[position : position + INPUT_BYTES], max_length=chunk_bytes
            )
        except (RuntimeError, ValueError) as error:
            raise CorruptDataError(f"lz4 data are damaged: {error}") from None
        position += used
        if chunk:
            yield chunk
        if is_end:
            return
        if not chunk and not used:
            raise CorruptDataError("lz4 data end early")


class StreamCompressor:
    """Compresses a body that arrives in pieces, for records of format `magic`.

    A body of at most 256 KiB gets the same bytes as from `compress`.
    """

    def __init__(self, compression_type: int, magic: int = 2) -> None:
        self._type = compression_type
        self._magic = magic
        self._waiting = bytearray()
        self._parts: list[bytes] = []
        self._packer: Any = None
        # Compressed bytes so far.
        self.size = 0

    def write(self, data: Buffer) -> None:
        """Add more of the body."""
        self._waiting += data
        if self._packer is not None or len(self._waiting) > _AT_ONCE_BYTES:
            self._compress_waiting()

    def writing(self, data: bytearray) -> Work[None]:
        """Add `data` to the body in steps of at most WRITTEN_PER_STEP bytes, with a `yield` between
        them, and clear it."""
        view = memoryview(data)
        for start in range(0, len(view), WRITTEN_PER_STEP):
            if start:
                yield
            self.write(view[start : start + WRITTEN_PER_STEP])
        view.release()
        data.clear()

    def forget(self) -> None:
        """Drop what has been compressed, which is too much already; `size` continues to count."""
        self._parts.clear()

    def finish(self) -> bytes:
        """Return the compressed body."""
        if self._packer is None:
            data = compress(self._type, self._waiting, self._magic)
            self.size += len(data)
            return data
        if self._type == SNAPPY:
            self._add(compress(SNAPPY, self._waiting)[len(self._packer) :])
        else:
            self._add(self._packer.compress(bytes(self._waiting)))
            self._add(self._packer.flush())
        data = b"".join(self._parts)
        if self._type == LZ4 and self._magic == 0 and data:
            data = with_lz4_checksum(data, covers_magic=True)
        return data

    def _add(self, part: bytes) -> None:
        self.size += len(part)
        if part:
            self._parts.append(part)

    def _compress_waiting(self) -> None:
        waiting = self._waiting
        if self._type == SNAPPY:
            # Whole blocks only: the frame is then the one that `compress` makes.
            if self._packer is None:
                self._packer = compress(SNAPPY, b"")
                self._add(self._packer)
            length = len(waiting) // _AT_ONCE_BYTES * _AT_ONCE_BYTES
            self._add(compress(SNAPPY, waiting[:length])[len(self._packer) :])
            del waiting[:length]
            return
        if self._packer is None:
            self._packer = _packer(self._type)
            if self._type == LZ4:
                self._add(self._packer.begin())
        self._add(self._packer.compress(bytes(waiting)))
        waiting.clear()


def _packer(compression_type: int) -> Any:
    if compression_type == GZIP:
        return zlib.compressobj(wbits=31)
    if compression_type == LZ4:
        import lz4.frame

        return lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False
        )
    if compression_type == ZSTD:
        return compressor()
    raise CorruptDataError(f"Unknown compression type id: {compression_type}")
