"""Variable-length integers and tagged fields, for which `struct` has no format letter.

Unsigned varints carry seven bits a byte, lowest first, at most five bytes (KIP-482); the signed
ones of records are in `kctl.records.varint`. Readers take a buffer and a position, and return the
value and the position after it; a buffer that ends too early raises IndexError, which the codec
translates.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

from kctl.errors import CorruptDataError

Buffer = bytes | bytearray | memoryview
# An unknown tagged field: its number and its bytes as received.
UnknownTag = tuple[int, bytes]

# Tagged fields that one struct may carry (CVE-2026-111115: millions of empty ones stall a broker).
TAGS_MAX: Final = 1_000
# A string's largest length in bytes; Kafka reads no longer one, compact or not.
STRING_BYTES_MAX: Final = 0x7FFF
UVARINT_BYTES_MAX: Final = 5
UVARINT_MAX: Final = 0xFFFF_FFFF

# The encodings of 0 to 127, which are nearly all that occur.
SMALL_UVARINTS: Final = tuple(bytes((value,)) for value in range(128))


def write_uvarint(value: int) -> bytes:
    """Encode `value` (0 to 2^32-1) in one to five bytes."""
    if value < 128:
        return SMALL_UVARINTS[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned varint; CorruptDataError beyond five bytes."""
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return continue_uvarint(buffer, position + 1, first)


def continue_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Return the rest of a varint whose byte before `position` was `first`, 128 or more."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & UVARINT_MAX, position
    raise CorruptDataError(f"a varint of more than {UVARINT_BYTES_MAX} bytes")


def write_tags(tags: Sequence[UnknownTag]) -> bytes:
    """Encode the tagged-field section of a struct: count, then number, size and
    bytes, by number."""
    encoded = [write_uvarint(len(tags))]
    for number, payload in sorted(tags, key=lambda tag: tag[0]):
        encoded += (write_uvarint(number), write_uvarint(len(payload)), payload)
    return b"".join(encoded)


def check_tag_count(count: int, remaining: int) -> None:
    """Raise CorruptDataError for a count of tags above TAGS_MAX, or that cannot fit."""
    if count > TAGS_MAX or count * 2 > remaining:
        raise CorruptDataError(f"{count} tagged fields with {remaining} bytes left")


def read_tag_header(buffer: Buffer, position: int) -> tuple[int, int, int]:
    """Return (number, position of the first byte, position after the last byte) of a
    tagged field."""
    number, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    end = position + size
    if end > len(buffer):
        raise CorruptDataError(f"tagged field {number} of {size} bytes reaches past the end")
    return number, position, end


def read_unknown_tags(
    buffer: Buffer, position: int, count: int
) -> tuple[tuple[UnknownTag, ...], int]:
    """Read `count` unknown tagged fields (the count is read already)."""
    check_tag_count(count, len(buffer) - position)
    tags = []
    for _ in range(count):
        number, start, end = read_tag_header(buffer, position)
        tags.append((number, bytes(buffer[start:end])))
        position = end
    return tuple(tags), position


def uuid_text(data: bytes) -> str:
    """Return the 16 bytes of a UUID as Kafka prints them: base64 for URLs, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()
