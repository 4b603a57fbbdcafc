"""The columns of Avro types: an Arrow type for each, and how a value that fastavro read becomes its
value.

Unions are mapped as Spark's from_avro maps them: null and one other type is a nullable column, int
and long are one long, float and double one double, and any other union is a struct with the fields
member0, member1, ... for its types except null, of which the value's own is set. A type that
contains itself is text where it recurs: its value as JSON. So is a record without fields that is
inside another.
"""

import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.dump.shapes import plain
from kctl.errors import UsageError

_PLAIN: dict[str, pa.DataType] = {
    "string": pa.string(), "bytes": pa.binary(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "null": pa.null(),
}  # fmt: skip
LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
}
# Unions of numbers whose values all fit one of the types.
_WIDEST = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
# The Python types of values by their Avro types; a bool is an int as well, a datetime a date.
_PYTHON: dict[str, type] = {
    "string": str, "bytes": bytes, "int": int, "long": int, "float": float, "double": float,
    "boolean": bool, "array": list, "map": dict, "record": dict, "enum": str, "fixed": bytes,
    "date": date, "timestamp-millis": datetime, "timestamp-micros": datetime, "decimal": Decimal,
}  # fmt: skip
# Converts a value that fastavro read to that of the column; None: it is the same.
Convert = Callable[[Any], Any] | None


def avro_columns(schema: Any) -> tuple[pa.DataType, Convert]:
    """Return the Arrow type of a schema that fastavro has parsed, and the conversion of its values.

    A conversion takes values read with `return_named_type` and its override, and raises ValueError
    for one that is of no type of a union. UsageError if a type has no column.
    """
    if isinstance(schema, dict) and schema["type"] == "record" and not schema.get("fields"):
        raise UsageError(f"Avro record {schema['name']} has no fields and so no columns")
    return _Columns().of(schema)


def without_names(value: Any) -> Any:
    """Return a value without the names that fastavro puts before the named types of unions."""
    if isinstance(value, tuple):
        return without_names(value[1])
    if isinstance(value, dict):
        return {name: without_names(item) for name, item in value.items()}
    return [without_names(item) for item in value] if isinstance(value, list) else value


class _Columns:
    """Maps types; named types are known once they have been defined."""

    def __init__(self) -> None:
        # None: the type is being defined, and refers to itself.
        self._named: dict[str, tuple[pa.DataType, Convert] | None] = {}
        # The named types' schemas.
        self._schemas: dict[str, Any] = {}

    def of(self, schema: Any) -> tuple[pa.DataType, Convert]:
        """Return the Arrow type of a schema and its conversion; UsageError if it has none."""
        if isinstance(schema, list):
            return self._union([branch for branch in schema if branch != "null"])
        if isinstance(schema, str):
            return self._by_name(schema)
        return self._complex(schema)

    def _by_name(self, name: str) -> tuple[pa.DataType, Convert]:
        if name in _PLAIN:
            return _PLAIN[name], None
        if name not in self._named:
            raise UsageError(f"Avro type {name} has no column: it is not defined")
        return self._named[name] or (pa.string(), _as_text)

    def _union(self, branches: list[Any]) -> tuple[pa.DataType, Convert]:
        if not branches:
            return pa.null(), None
        if len(branches) == 1:
            return self.of(branches[0])
        if all(isinstance(it, str) for it in branches):
            widest = _WIDEST.get(frozenset(branches))
            if widest is not None:
                return _PLAIN[widest], None
        members = [self.of(branch) for branch in branches]
        # After `of`, which has learned the named types.
        described = [self._schemas.get(it, it) if isinstance(it, str) else it for it in branches]
        names = [f"member{number}" for number in range(len(members))]

        def convert(value: Any) -> Any:
            if value is None:
                return None
            number = _branch(described, value)
            inner = value[1] if isinstance(value, tuple) else value
            change = members[number][1]
            return {names[number]: inner if change is None else change(inner)}

        kinds = [kind for kind, _change in members]
        return pa.struct(list(zip(names, kinds, strict=True))), convert

    def _complex(self, schema: dict[str, Any]) -> tuple[pa.DataType, Convert]:
        kind = schema["type"]
        logical = schema.get("logicalType")
        if "name" in schema:
            self._schemas[schema["name"]] = schema
        if logical in LOGICAL or logical == "decimal":
            made = LOGICAL.get(logical)
            if made is None:
                made = pa.decimal128(schema["precision"], schema.get("scale", 0))
            if "name" in schema:
                self._named[schema["name"]] = made, None
            return made, None
        if kind == "array":
            item, change = self.of(schema["items"])
            return pa.list_(item), change and _each(change)
        if kind == "map":
            item, change = self.of(schema["values"])
            return pa.map_(pa.string(), item), change and _each_value(change)
        if kind not in ("record", "enum", "fixed"):
            return self.of(kind)
        self._named[schema["name"]] = None
        found: tuple[pa.DataType, Convert]
        if kind == "record":
            found = self._record(schema)
        else:
            found = pa.string() if kind == "enum" else pa.binary(schema["size"]), None
        self._named[schema["name"]] = found
        return found

    def _record(self, schema: dict[str, Any]) -> tuple[pa.DataType, Convert]:
        if not schema.get("fields"):
            # Files of tables have no structs without fields.
            return pa.string(), _as_text
        members = {field["name"]: self.of(field["type"]) for field in schema["fields"]}
        changes = {name: change for name, (_kind, change) in members.items() if change is not None}

        def convert(value: Any) -> Any:
            if value is None:
                return None
            return value | {name: change(value[name]) for name, change in changes.items()}

        kind = pa.struct([(name, kind) for name, (kind, _change) in members.items()])
        return kind, convert if changes else None


def _as_text(value: Any) -> str | None:
    return None if value is None else json.dumps(plain(without_names(value)), ensure_ascii=False)


def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda found: None if found is None else [change(it) for it in found]


def _each_value(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda found: None if found is None else {k: change(it) for k, it in found.items()}


def _branch(branches: list[Any], value: Any) -> int:
    """Return the number of the union's type that `value` has; ValueError if it has none."""
    if isinstance(value, tuple):
        for number, branch in enumerate(branches):
            if isinstance(branch, dict) and branch.get("name") == value[0]:
                return number
    bare = value[1] if isinstance(value, tuple) else value
    exact = [n for n, branch in enumerate(branches) if _is_of(branch, bare, type(bare))]
    fitting = exact or [n for n, it in enumerate(branches) if type(bare) is int and _is_float(it)]
    if not fitting:
        raise ValueError("a value of no type of its union")
    return fitting[0]


def _is_of(branch: Any, value: Any, kind: type) -> bool:
    """Return whether a value that was read without a name can be of the type."""
    plain_kind = branch if isinstance(branch, str) else branch["type"]
    logical = None if isinstance(branch, str) else branch.get("logicalType")
    if _PYTHON.get(logical or plain_kind) is not kind:
        return False
    if plain_kind == "record":
        return {field["name"] for field in branch["fields"]} == set(value)
    if plain_kind == "enum":
        return value in branch["symbols"]
    return plain_kind != "fixed" or logical is not None or len(value) == branch["size"]


def _is_float(branch: Any) -> bool:
    return branch in ("float", "double")
