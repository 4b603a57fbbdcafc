"""Avro values: a schema's columns, and a decoder that asks fastavro for each value.

Confluent's five bytes before a value (a NUL and the schema's number in a registry) tell the one
that it was written by, if the registry's are known; it is then resolved to the one given, as
Avro defines it. Otherwise they are skipped if they are there, and the schema is the one given.
Logical types that have a column of their own are date, timestamp-millis, timestamp-micros and
decimal; of others the plain value is kept.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.errors import UsageError
from kctl.export.decoding import Decode, decode_each
from kctl.export.schema_registry import CONFLUENT_BYTES

_PLAIN: dict[str, pa.DataType] = {
    "string": pa.string(), "bytes": pa.binary(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "null": pa.null(),
}  # fmt: skip
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
}


def avro_decoder(text: str, writers: Iterable[tuple[int, str]] = ()) -> tuple[Decode, pa.DataType]:
    """A function from binary values to (decoded values, which of them are not decoded or None),
    and the type of what it makes; `writers` are schemas by their numbers in a registry.

    UsageError for a schema that is none or has no columns.
    """
    read, schema = _reader(text, writers)
    kind = _Columns().of(schema)
    return decode_each(read, kind, (ValueError,)), kind


def avro_reader(text: str) -> Callable[[bytes], Any]:
    """A function from bytes to the value, of any schema; it raises ValueError for bytes that are
    none. UsageError for a schema that is none."""
    return _reader(text, ())[0]


def _reader(text: str, writers: Iterable[tuple[int, str]]) -> tuple[Callable[[bytes], Any], Any]:
    """The function, and the schema that its values have."""
    try:
        import fastavro  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise UsageError("Avro values need fastavro", hint="pip install 'kctl[avro]'") from None
    try:
        schema = _parsed(fastavro, text)
        by_id = {number: _parsed(fastavro, writer) for number, writer in writers}
    except (ValueError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise UsageError(f"Not an Avro schema: {error}") from None
    return lambda data: _read(fastavro, schema, data, by_id), schema


# What fastavro raises over bytes that are no such value.
_UNREADABLE = (
    ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, StopIteration,
    ArithmeticError, MemoryError,
)  # fmt: skip


def _parsed(fastavro: Any, text: str) -> Any:
    return fastavro.parse_schema(_without_odd_types(json.loads(text)))


def _read(fastavro: Any, schema: Any, data: bytes, by_id: dict[int, Any]) -> Any:
    """One value, all of whose bytes it takes."""
    starts = [(0, schema)]
    if data[:1] == b"\0" and len(data) >= CONFLUENT_BYTES:
        # Perhaps a value of its own that begins with a NUL.
        number = int.from_bytes(data[1:CONFLUENT_BYTES], "big")
        starts.insert(0, (CONFLUENT_BYTES, by_id.get(number, schema)))
    for start, writer in starts:
        stream = pa.BufferReader(data)
        stream.seek(start)
        try:
            found = fastavro.schemaless_reader(stream, writer, schema)
        except _UNREADABLE:
            continue
        if stream.tell() == len(data):
            return found
    raise ValueError("no such value, or bytes are left behind it")


class _Columns:
    """Avro types to Arrow types; named types are known once they were defined."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}

    def of(self, schema: Any) -> pa.DataType:
        """The column of a type; UsageError if there is none."""
        if isinstance(schema, list):
            others = [branch for branch in schema if branch != "null"]
            if len(others) != 1:
                raise UsageError("Of Avro's unions only those of null and one type have a column")
            return self.of(others[0])
        if isinstance(schema, str):
            return self._by_name(schema)
        return self._complex(schema)

    def _by_name(self, name: str) -> pa.DataType:
        found = _PLAIN.get(name) or self._named.get(name)
        if found is None:
            raise UsageError(f"Avro type {name} has no column: it is unknown, or holds itself")
        return found

    def _complex(self, schema: dict[str, Any]) -> pa.DataType:
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind == "array":
            return pa.list_(self.of(schema["items"]))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"]))
        if kind not in ("record", "enum", "fixed"):
            return self.of(kind)
        self._named[schema["name"]] = None
        if kind == "record" and not schema.get("fields"):
            raise UsageError(f"Avro record {schema['name']} has no fields, so no columns")
        if kind == "record":
            made = pa.struct([(it["name"], self.of(it["type"])) for it in schema["fields"]])
        else:
            made = pa.string() if kind == "enum" else pa.binary(schema["size"])
        self._named[schema["name"]] = made
        return made


def _without_odd_types(schema: Any) -> Any:
    """The schema without the logical types for which there is no column."""
    if isinstance(schema, list):
        return [_without_odd_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_odd_types(item) for name, item in schema.items()}
    if isinstance(kept.get("logicalType"), str) and kept["logicalType"] not in (
        *_LOGICAL,
        "decimal",
    ):
        del kept["logicalType"]
    return kept
