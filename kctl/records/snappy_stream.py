"""Decompresses one raw snappy block piece by piece, within bounded memory and work.

The snappy library decompresses a block in one call only. A block that announces more than
AT_ONCE_BYTES is therefore split between elements: each piece becomes a separate block that begins
with a literal, the preceding 64 KiB, so that copies find the bytes that they refer to.

The format lets a copy refer back further. No known compressor writes that (they work on 64 KiB at
a time), and it is reported as damage.

Invariant: the pieces, joined, are what the block holds, or CorruptDataError is raised.

Format: format_description.txt of google/snappy
"""

from collections.abc import Iterator
from typing import NamedTuple

from kctl.errors import CorruptDataError

# Bytes that a block may announce to be decompressed in one call, about 5 ms.
AT_ONCE_BYTES = 2 * 1024 * 1024
# Elements of one piece, walked within a millisecond.
ELEMENTS_PER_PIECE = 2_000
# How far back copies refer.
_HISTORY_BYTES = 64 * 1024
# A snappy element of 3 bytes copies at most 64; an announced length beyond that is invalid.
_RATIO_MAX = 64 // 3 + 1
_LITERAL = 0
# The size of a copy element in bytes, by the lowest two bits of its tag.
_COPY_BYTES = (0, 2, 3, 5)
# A literal whose length is in the two bytes after its tag.
_LITERAL_OF_TWO_BYTES = 61 << 2


class _Piece(NamedTuple):
    """Elements of a block: where they end, and the number of bytes they decompress to."""

    end: int
    size: int


def announced_length(block: memoryview) -> tuple[int, int]:
    """Return the decompressed size that `block` announces, and where its elements begin.

    CorruptDataError if a block of its size cannot hold so many bytes.
    """
    length = shift = position = 0
    while True:
        if position >= len(block) or shift > 28:
            raise CorruptDataError("snappy block has no valid length")
        byte = block[position]
        length |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            break
        shift += 7
    if length > len(block) * _RATIO_MAX:
        raise CorruptDataError(f"snappy block of {len(block)} bytes claims to hold {length}")
    return length, position


def block_chunks(block: memoryview, chunk_bytes: int) -> Iterator[bytes]:
    """Yield `block` decompressed, about `chunk_bytes` at a time; CorruptDataError if damaged."""
    announced, position = announced_length(block)
    if announced <= AT_ONCE_BYTES:
        plain = _uncompress(bytes(block))
        yield plain[:chunk_bytes]
        for start in range(chunk_bytes, len(plain), chunk_bytes):
            yield plain[start : start + chunk_bytes]
        return
    total = 0
    history = b""
    while position < len(block):
        start, length = _literal(block, position)
        if length > chunk_bytes:
            position = start + length
            if position > len(block):
                raise CorruptDataError("snappy block ends inside a literal")
            parts = [
                (at, min(at + chunk_bytes, position)) for at in range(start, position, chunk_bytes)
            ]
            for at, end in parts:
                yield bytes(block[at:end])
            history = (history + block[max(start, position - _HISTORY_BYTES) : position])[
                -_HISTORY_BYTES:
            ]
            total += length
            continue
        piece = _next_piece(block, position, chunk_bytes)
        plain = _with_history(history, block[position : piece.end], piece.size)
        yield plain
        history = (history + plain)[-_HISTORY_BYTES:]
        position = piece.end
        total += piece.size
    if total != announced:
        raise CorruptDataError(f"snappy block holds {total} bytes and announces {announced}")


def _literal(block: memoryview, position: int) -> tuple[int, int]:
    """Return where the bytes of the literal at `position` begin and their number; 0 for a copy."""
    tag = block[position]
    if tag & 3 != _LITERAL:
        return position, 0
    length = tag >> 2
    position += 1
    if length < 60:
        return position, length + 1
    width = length - 59
    return position + width, int.from_bytes(block[position : position + width], "little") + 1


def _next_piece(block: memoryview, position: int, chunk_bytes: int) -> _Piece:
    """Return the elements from `position` on that decompress to at most `chunk_bytes`
    and 64 more."""
    size, end = 0, len(block)
    for _ in range(ELEMENTS_PER_PIECE):
        if size >= chunk_bytes or position >= end:
            break
        tag = block[position]
        kind = tag & 3
        if kind == _LITERAL:
            start, length = _literal(block, position)
            if size and size + length > chunk_bytes:
                break
            position = start + length
        else:
            length = 4 + (tag >> 2 & 7) if kind == 1 else 1 + (tag >> 2)
            position += _COPY_BYTES[kind]
        size += length
    if position > end:
        raise CorruptDataError("snappy block ends inside an element")
    return _Piece(position, size)


def _with_history(history: bytes, elements: memoryview, size: int) -> bytes:
    """Return the `size` bytes that `elements` decompress to, after `history`."""
    parts = [_varint(len(history) + size)]
    if history:
        parts += (
            bytes((_LITERAL_OF_TWO_BYTES,)), (len(history) - 1).to_bytes(2, "little"), history
        )  # fmt: skip
    return _uncompress(b"".join((*parts, elements)))[len(history) :]


def _uncompress(block: bytes) -> bytes:
    import snappy  # type: ignore[import-untyped]

    try:
        plain: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        raise CorruptDataError(f"snappy block is damaged: {error}") from None
    return plain


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
