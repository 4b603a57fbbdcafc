"""Formats consumed records: as text by a template, or as documents."""

import base64
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kctl.cli.records.value_options import JsonText
from kctl.cli.units import format_instant
from kctl.client.consumer import FetchedRecord
from kctl.client.record_filter import PathStep, json_at
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
    "partition": lambda it: str(it.partition_name).encode(),
    "offset": lambda it: b"%d" % it.record.offset,
    "timestamp": lambda it: b"%d" % it.record.timestamp,
    "time": lambda it: format_instant(it.record.timestamp).encode(),
    "key": lambda it: _NULL if it.record.key is None else bytes(it.record.key),
    "value": lambda it: _NULL if it.record.value is None else bytes(it.record.value),
    "headers": _headers,
    "key_size": lambda it: b"%d" % (-1 if it.record.key is None else len(it.record.key)),
    "value_size": lambda it: b"%d" % (-1 if it.record.value is None else len(it.record.value)),
}


def _part_of(path: Sequence[PathStep], record: FetchedRecord) -> bytes:
    found = json_at(record.record.value, path)
    return _NULL if found is None else found.encode("utf-8", "surrogateescape")


def template_renderer(template: str, path: Sequence[PathStep] = ()) -> Render:
    r"""Compile a template such as `{key} {value}\n` to a function that renders a record.

    Fields are in braces; `\n`, `\t`, `\r` and `\0` are characters, `{{` and `}}` are braces. With
    `path`, the field `value` is that part of JSON values.
    """
    parts: list[Callable[[FetchedRecord], bytes] | bytes] = []
    pattern = re.compile(r"\\[ntr0\\]|\{\{|\}\}|\{(\w+)\}|[^\\{}]+|.", re.DOTALL)
    for match in pattern.finditer(template):
        text, name = match[0], match[1]
        if name is not None:
            if name not in _FIELDS:
                raise UsageError(
                    f"No field {{{name}}}", hint=f"the fields are {', '.join(_FIELDS)}"
                )
            is_part = bool(path) and name == "value"
            parts.append(partial(_part_of, path) if is_part else _FIELDS[name])
        elif text in ("{", "}"):
            raise UsageError(
                f"A brace is not closed in the template: {template}"
                if text == "{"
                else f"A brace is not opened in the template: {template}",
                hint="fields are {key}, {value}, ...; {{ and }} are braces",
            )
        else:
            parts.append(_ESCAPES.get(text, text).encode("utf-8", "surrogateescape"))

    def render(record: FetchedRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return render


def document(record: FetchedRecord) -> dict[str, Any]:
    """Return a record as a document; `key_base64`, `value_base64` hold bytes that are not UTF-8.

    A decoded value is the document that its JSON text stands for.
    """
    return {
        "topic": record.topic,
        "partition": record.partition_name,
        "offset": record.record.offset,
        "timestamp": record.record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type == 1 else "CreateTime",
        **_content("key", record.record.key),
        **_content("value", record.record.value),
        "headers": [
            {"name": name, **_content("value", value)} for name, value in record.record.headers
        ],
    }


def _content(name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    if isinstance(data, JsonText):
        return {name: json.loads(data)}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
