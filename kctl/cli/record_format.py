"""Consumed records as text: a template, or documents for every other format."""

import base64
import re
from collections.abc import Callable
from typing import Any

from kctl.admin.consumer import FetchedRecord
from kctl.cli.units import format_instant
from kctl.errors import UsageError

Render = Callable[[FetchedRecord], bytes]
_ESCAPES = {
    "\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\", "{{": "{", "}}": "}",
}  # fmt: skip
_NULL = b"null"


def _headers(record: FetchedRecord) -> bytes:
    pairs = [name.encode() + b"=" + (value or b"") for name, value in record.record.headers]
    return b",".join(pairs)


_FIELDS: dict[str, Callable[[FetchedRecord], bytes]] = {
    "topic": lambda it: it.topic.encode(),
    "partition": lambda it: b"%d" % it.partition,
    "offset": lambda it: b"%d" % it.record.offset,
    "timestamp": lambda it: b"%d" % it.record.timestamp,
    "time": lambda it: format_instant(it.record.timestamp).encode(),
    "key": lambda it: _NULL if it.record.key is None else bytes(it.record.key),
    "value": lambda it: _NULL if it.record.value is None else bytes(it.record.value),
    "headers": _headers,
    "key_size": lambda it: b"%d" % (-1 if it.record.key is None else len(it.record.key)),
    "value_size": lambda it: b"%d" % (-1 if it.record.value is None else len(it.record.value)),
}


def template_renderer(template: str) -> Render:
    r"""`{key} {value}`: fields in braces, `\n` and `\t` for the characters, `{{` for a brace."""
    parts: list[Callable[[FetchedRecord], bytes] | bytes] = []
    pattern = re.compile(r"\\[ntr0\\]|\{\{|\}\}|\{(\w+)\}|[^\\{}]+|.", re.DOTALL)
    for match in pattern.finditer(template):
        text, name = match[0], match[1]
        if name is not None:
            if name not in _FIELDS:
                raise UsageError(f"No field {{{name}}}", hint=f"there are {', '.join(_FIELDS)}")
            parts.append(_FIELDS[name])
        else:
            parts.append(_ESCAPES.get(text, text).encode("utf-8", "surrogateescape"))

    def render(record: FetchedRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return render


def document(record: FetchedRecord) -> dict[str, Any]:
    """A record as JSON can hold it: bytes that are not UTF-8 go to `key_base64`,
    `value_base64`."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.record.offset,
        "timestamp": record.record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type == 1 else "CreateTime",
        **_content("key", record.record.key),
        **_content("value", record.record.value),
        "headers": [
            {"name": name, **_content("value", value)} for name, value in record.record.headers
        ],
    }


def _content(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
