"""Records to produce, from lines of text or of JSON, taken as they arrive.

A source hands out chunks: what is there now, up to a size. So a file goes in big batches, and a
line typed or piped slowly goes at once.
"""

import base64
import json
import os
import select
from collections.abc import Callable, Iterator
from typing import Any

from kctl.admin.producer import Headers, NewRecord
from kctl.cli.units import parse_instant_ms
from kctl.errors import KctlError

# Handed out at once at most.
CHUNK_BYTES_MAX = 1 << 20
# No broker takes a record of that size, and no memory should be filled by a lost newline.
LINE_BYTES_MAX = 100 << 20
Parse = Callable[[bytes], NewRecord]


def line_chunks(descriptor: int) -> Iterator[list[bytes]]:
    """Whole lines from `descriptor` without their ends (LF or CRLF), in chunks."""
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
    """What can be read without waiting, but something; whether that was the end."""
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
    """Lines as values, or as key, `separator` and value; `null` stands for no value or key."""
    mark = None if null is None else null.encode()
    divider = None if separator is None else separator.encode()

    def parse(line: bytes) -> NewRecord:
        key, value = template.key, line
        if divider is not None:
            key_part, found, value = line.partition(divider)
            if not found:
                raise KctlError(f"no key separator {separator!r} in it")
            key = None if key_part == mark else key_part
        content = None if value == mark else value
        return NewRecord(key, content, template.headers, template.partition, template.timestamp)

    return parse


def json_parser(template: NewRecord, now_ms: int) -> Parse:
    """Lines as JSON objects: key, value, headers, partition, timestamp; `key_base64` and
    `value_base64` for bytes. What is absent comes from `template`."""

    def parse(line: bytes) -> NewRecord:
        try:
            document = json.loads(line)
        except ValueError as error:
            raise KctlError(f"not JSON: {error}") from None
        if not isinstance(document, dict):
            raise KctlError("not a JSON object")
        partition = document.get("partition", template.partition)
        if partition is not None and not isinstance(partition, int):
            raise KctlError(f"partition {partition!r} is not a number")
        return NewRecord(
            _content(document, "key", template.key),
            _content(document, "value", None),
            _headers(document["headers"]) if document.get("headers") else template.headers,
            partition,
            _timestamp(document.get("timestamp"), template.timestamp, now_ms),
        )

    return parse


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
    """`{name: value}`, `[[name, value], ...]`, or what `consume -o ndjson` prints:
    `[{"name", "value" or "value_base64"}, ...]`."""
    if isinstance(value, dict):
        return tuple((str(name), _to_bytes(content)) for name, content in value.items())
    headers = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and "name" in item:
            headers.append((str(item["name"]), _content(item, "value", None)))
        elif isinstance(item, list) and len(item) == 2:
            headers.append((str(item[0]), _to_bytes(item[1])))
        else:
            raise KctlError(f"not a header: {item!r}")
    return tuple(headers)


def _timestamp(value: Any, default: int | None, now_ms: int) -> int | None:
    if value is None:
        return default
    if isinstance(value, int):
        return value
    return parse_instant_ms(str(value), now_ms)
