"""Zigzag variable-length integers as v2 records use them, read and written one at a time.

Hot loops decode the one-byte case themselves and come here only for longer ones.

Kafka 2.7: org.apache.kafka.common.utils.ByteUtils (readVarint, readVarlong).
"""

from typing import Final

from kctl.errors import CorruptDataError

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10
_INT_MAX: Final = 2**31 - 1
_INT_MIN: Final = -(2**31)
_U32: Final = 2**32 - 1
_U64: Final = 2**64 - 1


def read_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return a 32-bit integer and the position after it; CorruptDataError if it is too long, and
    IndexError where the data end."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise CorruptDataError(f"Varint at byte {position - MAX_VARINT_BYTES} is too long")
    value &= _U32
    return (value >> 1) ^ -(value & 1), position


def read_varlong(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return a 64-bit integer and the position after it; errors as in `read_varint`."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise CorruptDataError(f"Varlong at byte {position - MAX_VARLONG_BYTES} is too long")
    value &= _U64
    return (value >> 1) ^ -(value & 1), position


def write_varint(out: bytearray, value: int) -> None:
    """Append `value`, a 32-bit or a 64-bit integer: both have the same encoding."""
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def varint_size(value: int) -> int:
    """Return the number of bytes that `write_varint` appends for `value`."""
    value = (value << 1) ^ (value >> 63)
    return max(1, -(-value.bit_length() // 7))
