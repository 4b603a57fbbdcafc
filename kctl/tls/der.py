"""DER: walks ASN.1 values in their distinguished encoding. Lengths never reach beyond the bytes."""

from typing import NamedTuple

from kctl.errors import CorruptDataError

SEQUENCE, SET, OBJECT_IDENTIFIER, OCTET_STRING = 0x30, 0x31, 0x06, 0x04
_LONG_LENGTH = 0x80
# Nothing here is larger than 16 MB.
_LENGTH_BYTES_MAX = 3


class Der(NamedTuple):
    """One value."""

    tag: int
    content: bytes
    # Tag, length and content.
    encoded: bytes


def values(data: bytes) -> list[Der]:
    """Return the values that follow each other in `data`; raise CorruptDataError."""
    found = []
    position = 0
    while position < len(data):
        start = position
        tag, first = data[position], data[position + 1] if position + 1 < len(data) else 0xFF
        position += 2
        length = first
        if first >= _LONG_LENGTH:
            count = first - _LONG_LENGTH
            if not 0 < count <= _LENGTH_BYTES_MAX:
                raise CorruptDataError("a length that DER does not allow")
            length = int.from_bytes(data[position : position + count])
            position += count
        end = position + length
        if end > len(data):
            raise CorruptDataError("a value ends after the bytes")
        found.append(Der(tag, data[position:end], data[start:end]))
        position = end
    return found


def children(data: bytes) -> list[Der]:
    """Return the values inside the first value of `data`."""
    found = values(data)
    if not found:
        raise CorruptDataError("an empty value")
    return values(found[0].content)


def octets(value: Der) -> bytes:
    """Return the bytes of an OCTET STRING."""
    if value.tag != OCTET_STRING:
        raise CorruptDataError(f"tag {value.tag:#x} where an OCTET STRING belongs")
    return value.content


def object_identifier(content: bytes) -> str:
    """Return the dotted form of an OBJECT IDENTIFIER."""
    numbers = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise CorruptDataError("an empty OBJECT IDENTIFIER")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))
