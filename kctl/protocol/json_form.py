"""Converts messages to JSON and back, with Kafka's names of fields, in camel case.

Numbers, texts and booleans are JSON's own; bytes and record data are base64, and topic ids the 22
characters that Kafka shows. A tagged field at its
default is left out, as Kafka's own converters do. When reading, a field that is left out has its
default; an unknown field, a field that the version lacks, and a value of the wrong type are
UsageErrors that name the field by its path.

Pure. Kafka 2.7: the generated *JsonConverter classes.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeVar

from kctl.errors import UsageError, close_name
from kctl.protocol.error_codes import RefusedCode
from kctl.protocol.schema import Field, Message, Struct

MessageT = TypeVar("MessageT", bound=Message)

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS = {"uint16": 16, "uint32": 32}
_UUID_BYTES = 16
_KINDS = {
    "bool": "true or false",
    "string": "a text",
    "float64": "a number",
    "bytes": "a text in base64",
    "records": "a text in base64",
    "uuid": "an id of 22 characters",
    "array": "a list",
    "struct": "an object",
}


def json_name(name: str) -> str:
    """Return Kafka's name of a field.

    >>> json_name("allow_auto_topic_creation")
    'allowAutoTopicCreation'
    """
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def to_json(message: Struct, version: int) -> dict[str, Any]:
    """Return the fields that `message` has in `version`, as values that `json.dumps` accepts."""
    shown = {}
    for field in type(message).fields:
        if not field.is_in(version):
            continue
        value = getattr(message, field.name)
        if field.tag is not None and value == getattr(type(message)(), field.name):
            continue
        shown[json_name(field.name)] = _shown(field.kind, value, version)
    return shown


def _shown(kind: str, value: Any, version: int) -> Any:
    if kind == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, Struct):
        return to_json(value, version)
    if isinstance(value, list):
        return [_shown("", element, version) for element in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    # Also for a RefusedCode, which YAML does not know.
    return int(value) if type(value) is RefusedCode else value


def from_json(cls: type[MessageT], version: int, document: object) -> MessageT:
    """Return the message of class `cls` that `document`, parsed JSON, describes in `version`.

    Raise UsageError for an unknown field or a wrong value, with the way out as its hint.
    """
    message: MessageT = _struct(cls, version, document, "")
    return message


def _struct(cls: type[Any], version: int, document: object, path: str) -> Any:
    place = path or cls.__name__
    if not isinstance(document, dict):
        raise _wrong(place, "struct", document)
    fields = {json_name(field.name): field for field in cls.fields}
    values = {}
    for key, value in document.items():
        field = fields.get(key)
        if field is None:
            raise _unknown(key, [it for it in fields if fields[it].is_in(version)], place)
        if not field.is_in(version):
            raise UsageError(
                f"{place} has no field {key} in version {version}",
                hint=f"versions with it: {field.versions}; see --version",
            )
        values[field.name] = _value(field, version, value, f"{path}.{key}".removeprefix("."))
    return cls(**values)


def _unknown(key: str, known: Sequence[str], place: str) -> UsageError:
    near = close_name(key, known)
    hint = f"did you mean {near}?" if near else f"fields: {', '.join(known) or 'none'}"
    return UsageError(f"{place} has no field {key}", hint=hint)


def _value(field: Field, version: int, value: object, path: str) -> Any:
    if value is None:
        if not field.is_nullable_in(version):
            raise UsageError(
                f"{path} cannot be null in version {version}",
                hint="leave it out for its default",
            )
        return None
    if field.kind == "struct":
        return _struct(_struct_class(field), version, value, path)
    if field.kind == "array":
        if not isinstance(value, list):
            raise _wrong(path, field.kind, value)
        return [
            _element(field, version, element, f"{path}[{index}]")
            for index, element in enumerate(value)
        ]
    return _scalar(field.kind, value, path)


def _element(field: Field, version: int, value: object, path: str) -> Any:
    if isinstance(field.element, str):
        return _scalar(field.element, value, path)
    return _struct(_struct_class(field), version, value, path)


def _struct_class(field: Field) -> type[Struct]:
    assert isinstance(field.element, type)
    return field.element


def _scalar(kind: str, value: object, path: str) -> Any:
    if kind in _BITS or kind in _UNSIGNED_BITS:
        return _integer(kind, value, path)
    if kind == "float64" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "uuid" and isinstance(value, str):
        return _uuid(value, path)
    if kind in ("bytes", "records") and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise UsageError(f"{path} is not base64: {error}", hint="use base64") from None
    raise _wrong(path, kind, value)


def _integer(kind: str, value: object, path: str) -> int:
    if kind in _BITS:
        half = 1 << _BITS[kind] - 1
        least, most = -half, half - 1
    else:
        least, most = 0, (1 << _UNSIGNED_BITS[kind]) - 1
    if type(value) is not int or not least <= value <= most:
        text = f"{path} must be a whole number from {least} to {most}, not {_excerpt(value)}"
        raise UsageError(text, hint=f"the field is an {kind}")
    return value


def _uuid(value: str, path: str) -> bytes:
    try:
        decoded = base64.urlsafe_b64decode(value + "==")
    except binascii.Error:
        decoded = b""
    if len(decoded) != _UUID_BYTES:
        raise _wrong(path, "uuid", value)
    return decoded


def _wrong(path: str, kind: str, value: object) -> UsageError:
    return UsageError(
        f"{path} must be {_KINDS[kind]}, not {_excerpt(value)}", hint=f"the field is of type {kind}"
    )


def _excerpt(value: object) -> str:
    """Return the start of a value as JSON, for a message."""
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:40] + "..."
