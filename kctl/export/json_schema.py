"""JSON Schema values: the columns of a schema, and a decoder that reads each value with json.

Objects with properties are structs, other objects whose values have a schema are maps, arrays are
lists. `null` beside one other type is a nullable column; integer and number together are a double.
Strings of the formats date-time and date are timestamps and dates. What has no table form is text:
its JSON; so are types that contain themselves, where they recur. Constraints of the schema are not
checked: a value is decoded if each of its fields has the type of its column.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.errors import UsageError
from kctl.export.decoding import Decode, EachDecoder
from kctl.export.schema_registry import CONFLUENT_BYTES

# The member of a schema that has the schemas it refers to, by their names.
_REFERENCES = "kctl:references"
# What a schema without a draft is of.
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE_DEPTH_MAX = 100
_SURROGATE = re.compile("[\ud800-\udfff]")
# Takes a value other than null, and its path; raises ValueError for one of another type.
_Convert = Callable[[Any, str], Any]
_Column = tuple[pa.DataType, _Convert]


def is_json_schema(document: Any) -> bool:
    """Return whether a JSON document is a JSON Schema, not a list of fields and their types."""
    if not isinstance(document, dict):
        return False
    kinds = document.get("type")
    is_object = kinds == "object" or (isinstance(kinds, list) and "object" in kinds)
    return is_object or any(
        isinstance(document.get(name), kind)
        for name, kind in (("$schema", str), ("$ref", str), ("allOf", list))
    )


def registered_json_schema(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the JSON Schema `text` of a registry with the schemas it refers to, names and texts,
    in a form that `is_json_schema` accepts; UsageError for invalid JSON."""
    document = _parsed(text)
    if not is_json_schema(document):
        document["$schema"] = _DRAFT
    if references:
        document[_REFERENCES] = {name: _parsed(other) for name, other in references}
    return json.dumps(document)


def json_schema_columns(text: str) -> pa.DataType:
    """Return the Arrow type of a JSON Schema's values; UsageError if they have no columns."""
    return _root(text)[0]


def json_schema_decoder(
    text: str, writers: Iterable[tuple[int, str]] = ()
) -> tuple[Decode, pa.DataType]:
    """Return a decoder for values of the schema `text`, and the Arrow type of the decoded column.

    If there are `writers`, by their ids in a registry, a value with another id is not decoded.
    UsageError for a schema without columns.
    """
    kind, convert = _root(text)
    known = {number for number, _writer in writers}

    def read(data: bytes) -> Any:
        if data[:1] == b"\0":
            number = int.from_bytes(data[1:CONFLUENT_BYTES], "big")
            if known and number not in known:
                raise ValueError(f"unknown schema id {number}")
            data = data[CONFLUENT_BYTES:]
        return convert(json.loads(data), "value")

    return EachDecoder(read, kind, (ValueError, RecursionError)), kind


def _parsed(text: str) -> Any:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"Not a JSON Schema: {error}") from None
    if not isinstance(document, dict):
        raise UsageError("Not a JSON Schema: not an object")
    return document


def _root(text: str) -> _Column:
    document = _parsed(text)
    found = _Columns(document).of(document, document, ())
    if not pa.types.is_struct(found[0]):
        raise UsageError(
            "The JSON Schema is not that of an object with properties, so it has no columns",
            hint="--value string keeps the JSON text",
        )
    return found


class _Columns:
    """Maps the schemas of one document, and of those that it refers to."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._others: dict[str, Any] = document.get(_REFERENCES, {})

    def of(self, schema: Any, base: Any, outer: tuple[int, ...]) -> _Column:
        """Return the column of a schema in the document `base`, inside the schemas `outer`."""
        schema, base = self._resolved(schema, base)
        if not isinstance(schema, dict) or id(schema) in outer:
            return _TEXT
        outer = (*outer, id(schema))
        for name in ("oneOf", "anyOf"):
            if isinstance(schema.get(name), list):
                return self._one_of(schema[name], base, outer)
        if isinstance(schema.get("allOf"), list):
            return self._object(self._properties(schema, base), outer)
        kinds = schema.get("type", _kinds_of(schema))
        kinds = [it for it in (kinds if isinstance(kinds, list) else [kinds]) if it != "null"]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if len(kinds) != 1:
            return _TEXT
        return self._typed(kinds[0], schema, base, outer)

    def _typed(self, kind: Any, schema: Any, base: Any, outer: tuple[int, ...]) -> _Column:
        if kind == "object":
            properties = self._properties(schema, base)
            values = schema.get("additionalProperties")
            if properties or not isinstance(values, dict) or not values:
                return self._object(properties, outer)
            item, change = self.of(values, base, outer)
            return pa.map_(pa.string(), item), _map_of(change)
        if kind == "array":
            if not isinstance(schema.get("items"), dict):
                return _TEXT
            item, change = self.of(schema["items"], base, outer)
            return pa.list_(item), _list_of(change)
        if kind == "string":
            return _FORMATS.get(str(schema.get("format")), _PLAIN["string"])
        return _PLAIN.get(str(kind), _TEXT)

    def _one_of(self, branches: list[Any], base: Any, outer: tuple[int, ...]) -> _Column:
        rest = [it for it in branches if not _is_null(self._resolved(it, base)[0])]
        return self.of(rest[0], base, outer) if len(rest) == 1 else _TEXT

    def _properties(self, schema: Any, base: Any) -> dict[str, tuple[Any, Any]]:
        """Return the properties, each with its document; those of all parts for `allOf`."""
        found: dict[str, tuple[Any, Any]] = {}
        for part in schema.get("allOf") or ():
            inner, place = self._resolved(part, base)
            if isinstance(inner, dict) and inner is not schema:
                found |= self._properties(inner, place)
        own = schema.get("properties")
        return found | {name: (it, base) for name, it in (own or {}).items()}

    def _object(self, properties: dict[str, tuple[Any, Any]], outer: tuple[int, ...]) -> _Column:
        if not properties:
            return _TEXT
        members = {name: self.of(*place, outer) for name, place in properties.items()}

        def convert(value: Any, path: str) -> Any:
            _expect(isinstance(value, dict), path, "an object")
            return {
                name: None if value.get(name) is None else change(value[name], f"{path}.{name}")
                for name, (_kind, change) in members.items()
            }

        return pa.struct([(name, kind) for name, (kind, _change) in members.items()]), convert

    def _resolved(self, schema: Any, base: Any) -> tuple[Any, Any]:
        """Follow `$ref`; UsageError if it leads nowhere."""
        for _ in range(_REFERENCE_DEPTH_MAX):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema, base
            name, _, pointer = schema["$ref"].partition("#")
            try:
                base = self._others[name] if name else base
                schema = base
                for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
                    key = part.replace("~1", "/").replace("~0", "~")
                    schema = schema[int(key)] if isinstance(schema, list) else schema[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise UsageError(
                    f"The JSON Schema refers to {name}#{pointer}, which is not there",
                    hint="references of a registry and within the schema are read",
                ) from None
        raise UsageError("References of the JSON Schema refer to each other")


def _kinds_of(schema: dict[str, Any]) -> Any:
    """Return the type of a schema that names none, if it shows."""
    if isinstance(schema.get("properties"), dict):
        return "object"
    values = [schema["const"]] if "const" in schema else schema.get("enum") or [None, 0]
    return "string" if all(it is None or isinstance(it, str) for it in values) else None


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (
        schema.get("type") == "null" or ("const" in schema and schema["const"] is None)
    )


def _expect(is_right: bool, path: str, what: str) -> None:
    if not is_right:
        raise ValueError(f"{path} is not {what}")


def _as_text(value: Any, path: str) -> str:
    return _string(json.dumps(value, ensure_ascii=False), path)


def _string(value: Any, path: str) -> str:
    _expect(isinstance(value, str), path, "a string")
    text = str(value)
    # JSON can express half of a surrogate pair, and UTF-8 cannot.
    _expect(text.isascii() or not _SURROGATE.search(text), path, "a string of Unicode characters")
    return text


def _integer(value: Any, path: str) -> int:
    # JSON Schema counts 1.0 as an integer.
    is_whole = isinstance(value, float) and value.is_integer()
    _expect(is_whole or type(value) is int, path, "an integer")
    _expect(-(2**63) <= value < 2**63, path, "an integer of 64 bits")
    return int(value)


def _number(value: Any, path: str) -> float:
    _expect(type(value) in (int, float), path, "a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{path} is not a number that a double holds") from None


def _boolean(value: Any, path: str) -> bool:
    _expect(isinstance(value, bool), path, "a boolean")
    return bool(value)


def _date_time(value: Any, path: str) -> datetime:
    try:
        found = datetime.fromisoformat(_string(value, path))
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(f"{path} is not a date-time with its offset from UTC")
    return found


def _date(value: Any, path: str) -> date:
    try:
        return date.fromisoformat(_string(value, path))
    except ValueError:
        raise ValueError(f"{path} is not a date") from None


def _list_of(change: _Convert) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        _expect(isinstance(value, list), path, "an array")
        return [
            None if it is None else change(it, f"{path}[{number}]")
            for number, it in enumerate(value)
        ]

    return convert


def _map_of(change: _Convert) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        _expect(isinstance(value, dict), path, "an object")
        return [
            (_string(name, path), None if it is None else change(it, f"{path}.{name}"))
            for name, it in value.items()
        ]

    return convert


_TEXT: _Column = (pa.string(), _as_text)
_PLAIN: dict[str, _Column] = {
    "string": (pa.string(), _string),
    "integer": (pa.int64(), _integer),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), _boolean),
}
_FORMATS: dict[str, _Column] = {
    "date-time": (pa.timestamp("us", "UTC"), _date_time),
    "date": (pa.date32(), _date),
}
