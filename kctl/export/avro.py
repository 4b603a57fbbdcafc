"""Avro values: the columns of a schema, and a decoder that reads each value with fastavro.

Confluent's serializer puts five bytes before a value: a NUL and the id of the writer's schema in a
registry. If the registry's schemas are given, the value is read with its writer's schema and
resolved to the reader's, as Avro specifies. Otherwise the five bytes are skipped, if present, and
the value is read with the given schema. The logical types date, timestamp-millis, timestamp-micros
and decimal have their own column types; values of other logical types keep their underlying type.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.errors import UsageError, missing_extra
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
    """Return a decoder for the Avro schema `text`, and the Arrow type of the decoded column.

    `writers` are (id, schema) pairs from a registry. UsageError for an invalid schema or one
    without columns.
    """
    read, schema = _reader(text, writers)
    kind = _Columns().of(schema)
    return decode_each(read, kind, (ValueError,)), kind


def avro_reader(text: str, writers: Iterable[tuple[int, str]] = ()) -> Callable[[bytes], Any]:
    """Return a function from bytes to an Avro value; it raises ValueError for bytes that are not
    one.

    `writers` are (id, schema) pairs from a registry. UsageError for an invalid schema.
    """
    return _reader(text, writers)[0]


def _reader(text: str, writers: Iterable[tuple[int, str]]) -> tuple[Callable[[bytes], Any], Any]:
    """Return a function from bytes to a value, and the parsed schema of these values."""
    fastavro, schema = parsed_schema(text)
    by_id = {number: parsed_schema(writer)[1] for number, writer in writers}
    return lambda data: _read(fastavro, schema, data, by_id), schema


# Exceptions that fastavro raises for bytes that are not a value of the schema.
_UNREADABLE = (
    ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, StopIteration,
    ArithmeticError, MemoryError,
)  # fmt: skip


def parsed_schema(text: str) -> tuple[Any, Any]:
    """Return the module fastavro and the schema `text` as it parses it; UsageError for an invalid
    schema."""
    try:
        import fastavro  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise missing_extra("Avro values need fastavro", "avro") from None
    try:
        return fastavro, fastavro.parse_schema(_without_other_logical_types(json.loads(text)))
    except (ValueError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise UsageError(f"Not an Avro schema: {error}") from None


def _read(fastavro: Any, schema: Any, data: bytes, by_id: dict[int, Any]) -> Any:
    """Return the value that takes up all of `data`; ValueError if there is none."""
    starts = [(0, schema)]
    if data[:1] == b"\0" and len(data) >= CONFLUENT_BYTES:
        # Without these five bytes, a value may also begin with a NUL.
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
    raise ValueError("not a value of the schema, or followed by other bytes")


class _Columns:
    """Maps Avro types to Arrow types; named types are known once they have been defined."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType | None] = {}

    def of(self, schema: Any) -> pa.DataType:
        """Return the Arrow type of a schema; UsageError if it has none."""
        if isinstance(schema, list):
            others = [branch for branch in schema if branch != "null"]
            if len(others) != 1:
                raise UsageError("Only Avro unions of null and one other type have a column")
            return self.of(others[0])
        if isinstance(schema, str):
            return self._by_name(schema)
        return self._complex(schema)

    def _by_name(self, name: str) -> pa.DataType:
        found = _PLAIN.get(name) or self._named.get(name)
        if found is None:
            raise UsageError(f"Avro type {name} has no column: it is unknown or recursive")
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
            raise UsageError(f"Avro record {schema['name']} has no fields and so no columns")
        if kind == "record":
            made = pa.struct([(it["name"], self.of(it["type"])) for it in schema["fields"]])
        else:
            made = pa.string() if kind == "enum" else pa.binary(schema["size"])
        self._named[schema["name"]] = made
        return made


def _without_other_logical_types(schema: Any) -> Any:
    """Return the schema without the logical types that have no column type."""
    if isinstance(schema, list):
        return [_without_other_logical_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_other_logical_types(item) for name, item in schema.items()}
    if isinstance(kept.get("logicalType"), str) and kept["logicalType"] not in (
        *_LOGICAL,
        "decimal",
    ):
        del kept["logicalType"]
    return kept
