"""Record: one record, and its v2 encoding.

A v2 record is `length attributes timestampDelta offsetDelta keyLength key valueLength value
headerCount (keyLength key valueLength value)*`. All numbers are zigzag varints except the
attributes, which are one unused byte; a null has length -1.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecord; KIP-82, KIP-98
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.records.varint import read_varint, read_varlong, write_varint

__all__ = ["Record"]

Header = tuple[str, bytes | None]

# Zigzag varints from 0 to below this take one byte.
_SHORT = 64


class Record(NamedTuple):
    """A record as readers see it, in whatever format it was stored."""

    offset: int
    # Milliseconds since 1970; -1: none (v0 has none).
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def decode_records(
    data: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None = None,
) -> Iterator[Record]:
    """Yield the `count` records in `data` (decompressed, without the batch header).

    `append_timestamp`, the batch's LogAppendTime, overrides every record's timestamp. Raises
    CorruptDataError where a length is invalid; the records before it are valid.
    """
    position = 0
    end = len(data)
    for number in range(count):
        try:
            record, position = decode_record(data, position, base_offset, base_timestamp)
        except IndexError:
            raise CorruptDataError(
                f"Record {number} of {count} ends after its batch of {end} bytes"
            ) from None
        if append_timestamp is not None:
            record = record._replace(timestamp=append_timestamp)
        yield record
    if position != end:
        raise CorruptDataError(
            f"{end - position} bytes are left in the batch after its {count} records"
        )


def decode_record(
    data: bytes, start: int, base_offset: int, base_timestamp: int
) -> tuple[Record, int]:
    """Return the record at `start` and where it ends; raise CorruptDataError or IndexError."""
    size, position = read_varint(data, start)
    body = position
    end = body + size
    if size < 0 or end > len(data):
        raise CorruptDataError(f"Record at byte {start} has length {size}: not within its batch")
    position += 1
    delta = data[position]
    if delta < 0x80:
        timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
        position += 1
    else:
        delta, position = read_varlong(data, position)
        timestamp = base_timestamp + delta
    delta = data[position]
    if delta < 0x80:
        offset = base_offset + ((delta >> 1) ^ -(delta & 1))
        position += 1
    else:
        delta, position = read_varint(data, position)
        offset = base_offset + delta
    key, position = _read_nullable(data, position, end)
    value, position = _read_nullable(data, position, end)
    headers: tuple[Header, ...] = ()
    if data[position]:
        headers, position = _decode_headers(data, position, end)
    else:
        position += 1
    if position != end:
        raise CorruptDataError(
            f"Record at byte {start} should have {size} bytes, but has {position - body}"
        )
    return Record(offset, timestamp, key, value, headers), end


def _read_nullable(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length = data[position]
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        length, position = read_varint(data, position)
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise CorruptDataError(f"Field of {length} bytes at byte {position} leaves its record")
    return data[position:stop], stop


def _decode_headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position)
    # Every header takes at least two bytes.
    if count < 0 or count * 2 > end - position:
        raise CorruptDataError(f"Found invalid number of record headers {count}")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_nullable(data, position, end)
        if key is None:
            raise CorruptDataError(f"Header before byte {position} has no key")
        value, position = _read_nullable(data, position, end)
        # Java replaces bytes that are not UTF-8 in the same way.
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


# The number of headers, none, as a varint.
_NO_HEADERS = b"\0"


def encode_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header] = (),
) -> None:
    """Append one v2 record to `out`."""
    if (
        key is not None
        and value is not None
        and not headers
        and len(key) < _SHORT
        and len(value) < _SHORT
        and 0 <= timestamp_delta < _SHORT
        and 0 <= offset_delta < _SHORT
    ):
        # All numbers except the record's size take one byte.
        write_varint(out, len(key) + len(value) + 6)
        out += bytes((0, timestamp_delta << 1, offset_delta << 1, len(key) << 1))
        out += key
        out.append(len(value) << 1)
        out += value
        out.append(0)
        return
    head = bytearray(1)  # The attributes.
    write_varint(head, timestamp_delta)
    write_varint(head, offset_delta)
    _write_nullable(head, key)
    # A long value is copied once, from the record to `out`.
    if value is None:
        value = b""
        head.append(1)
    else:
        write_varint(head, len(value))
    tail: bytes | bytearray = _NO_HEADERS
    pairs = list(headers)
    if pairs:
        tail = bytearray()
        write_varint(tail, len(pairs))
        for name, content in pairs:
            _write_nullable(tail, name.encode())
            _write_nullable(tail, content)
    write_varint(out, len(head) + len(value) + len(tail))
    out += head
    out += value
    out += tail


def _write_nullable(out: bytearray, field: bytes | None) -> None:
    if field is None:
        out.append(1)
        return
    write_varint(out, len(field))
    out += field
