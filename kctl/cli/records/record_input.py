"""Parses records to produce from lines of text or JSON, as they arrive.

A chunk has the lines that are available now, up to a size. A file is therefore sent in large
batches, and a line that is typed or piped slowly is sent at once.
"""

import base64
import json
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kctl.cli.records.value_options import Encode
from kctl.cli.units import parse_instant_ms
from kctl.client.producer import Headers, NewRecord
from kctl.counts import INT64_MAX
from kctl.errors import KctlError

# The size of a chunk.
CHUNK_BYTES_MAX = 1 << 20
# Brokers accept no records of this size. The limit bounds memory if a newline is missing.
LINE_BYTES_MAX = 100 << 20
Parse = Callable[[bytes], NewRecord]
# The number of a line in the input, from 1 on, and the line.
InputLine = tuple[int, bytes]


def numbered_lines(descriptor: int, first_line: int = 1) -> Iterator[list[InputLine]]:
    """Yield the chunks of `line_chunks` from line `first_line` on, each line with its number."""
    number = 1
    for chunk in line_chunks(descriptor):
        if number + len(chunk) > first_line:
            passed = max(0, first_line - number)
            yield list(enumerate(chunk[passed:], number + passed))
        number += len(chunk)


def line_chunks(descriptor: int) -> Iterator[list[bytes]]:
    """Yield chunks of whole lines from `descriptor`, without their ends (LF or CRLF)."""
    rest = b""
    while True:
        data, is_end = _read_available(descriptor)
        *lines, rest = (rest + data).split(b"\n")
        if is_end and rest:
            lines.append(rest)
        if len(rest) > LINE_BYTES_MAX:
            raise KctlError(f"A line of more than {LINE_BYTES_MAX} bytes")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
        if is_end:
            return


def _read_available(descriptor: int) -> tuple[bytes, bool]:
    """Wait for data and return all that is available, and whether the input has ended."""
    parts: list[bytes] = []
    size = 0
    while size < CHUNK_BYTES_MAX:
        if parts and not select.select([descriptor], [], [], 0)[0]:
            break
        part = os.read(descriptor, CHUNK_BYTES_MAX - size)
        if not part:
            return b"".join(parts), True
        parts.append(part)
        size += len(part)
    return b"".join(parts), False


def text_parser(template: NewRecord, separator: str | None, null: str | None) -> Parse:
    """Return a parser of lines that are values, or key, `separator` and value.

    The text `null` means a null key or value.
    """
    mark = None if null is None else null.encode()
    divider = None if separator is None else separator.encode()

    def parse(line: bytes) -> NewRecord:
        key, value = template.key, line
        if divider is not None:
            key_part, found, value = line.partition(divider)
            if not found:
                raise KctlError(f"no key separator {separator!r}")
            key = None if key_part == mark else key_part
        content = None if value == mark else value
        return NewRecord(key, content, template.headers, template.partition, template.timestamp)

    return parse


def encoding_parser(parse: Parse, encode: Encode) -> Parse:
    """Return a parser that takes the value found by `parse` for JSON, and encodes the document."""

    def parse_and_encode(line: bytes) -> NewRecord:
        record = parse(line)
        if record.value is None:
            return record
        return replace(record, value=encode(_json(record.value)))

    return parse_and_encode


def json_parser(template: NewRecord, now_ms: int, encode: Encode | None = None) -> Parse:
    """Return a parser of JSON objects with key, value, headers, partition and timestamp.

    `key_base64` and `value_base64` hold bytes. Absent fields come from `template`. The document in
    `value` is encoded by `encode`; null is a tombstone. The parser raises KctlError, and
    UnicodeEncodeError for a lone surrogate, which JSON can hold and UTF-8 cannot.
    """

    def parse(line: bytes) -> NewRecord:
        document = _json(line)
        if not isinstance(document, dict):
            raise KctlError("not a JSON object")
        partition = document.get("partition", template.partition)
        if partition is not None and not isinstance(partition, int):
            raise KctlError(f"partition {partition!r} is not a number")
        return NewRecord(
            _content(document, "key", template.key),
            _value(document, encode),
            _headers(document["headers"]) if document.get("headers") else template.headers,
            partition,
            _timestamp(document.get("timestamp"), template.timestamp, now_ms),
        )

    return parse


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KctlError(f"not JSON: {error}") from None


def _value(document: dict[str, Any], encode: Encode | None) -> bytes | None:
    if encode is None or document.get("value") is None:
        return _content(document, "value", None)
    return encode(document["value"])


def _content(document: dict[str, Any], name: str, default: bytes | None) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return _decode_base64(encoded)
    if name not in document:
        return default
    return _to_bytes(document[name])


def _to_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _decode_base64(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except ValueError:
        raise KctlError(f"not base64: {text!r}") from None


def _headers(value: Any) -> Headers:
    """Convert `{name: value}`, `[[name, value], ...]`, or the form that `consume -o ndjson` prints:
    `[{"name", "value" or "value_base64"}, ...]`."""
    if isinstance(value, dict):
        return tuple((_name(name), _to_bytes(content)) for name, content in value.items())
    headers = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and "name" in item:
            headers.append((_name(item["name"]), _content(item, "value", None)))
        elif isinstance(item, list) and len(item) == 2:
            headers.append((_name(item[0]), _to_bytes(item[1])))
        else:
            raise KctlError(f"not a header: {item!r}")
    return tuple(headers)


def _name(value: Any) -> str:
    name = str(value)
    name.encode()  # Raises UnicodeEncodeError here, where the line is known.
    return name


def _timestamp(value: Any, default: int | None, now_ms: int) -> int | None:
    if value is None:
        return default
    if isinstance(value, int):
        if abs(value) > INT64_MAX:
            raise KctlError(f"timestamp {value} has more than 64 bits")
        return value
    return parse_instant_ms(str(value), now_ms)
