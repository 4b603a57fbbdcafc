"""Avro values: the columns of a schema, and a decoder that reads each value with fastavro.

Confluent's serializer puts five bytes before a value: a NUL and the id of the writer's schema in a
registry. If the registry's schemas are given, the value is read with its writer's schema and
resolved to the reader's, as Avro specifies; a value with another id is not decoded. Otherwise the
five bytes are skipped, if present, and the value is read with the given schema. The logical types
date, timestamp-millis, timestamp-micros and decimal have their own column types; values of other
logical types keep their underlying type.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.errors import UsageError, missing_extra
from kctl.export.avro_columns import LOGICAL, avro_columns
from kctl.export.decoding import Decode, EachDecoder
from kctl.export.schema_registry import CONFLUENT_BYTES


def avro_decoder(text: str, writers: Iterable[tuple[int, str]] = ()) -> tuple[Decode, pa.DataType]:
    """Return a decoder for the Avro schema `text`, and the Arrow type of the decoded column.

    `writers` are (id, schema) pairs from a registry. UsageError for an invalid schema or one
    without columns.
    """
    fastavro, schema = parsed_schema(text)
    kind, convert = avro_columns(schema)
    read = _reader(fastavro, schema, writers, has_names=convert is not None)

    def column_value(data: bytes) -> Any:
        found = read(data)
        return found if convert is None else convert(found)

    return EachDecoder(column_value, kind, (ValueError, RecursionError)), kind


def avro_reader(text: str, writers: Iterable[tuple[int, str]] = ()) -> Callable[[bytes], Any]:
    """Return a function from bytes to an Avro value; it raises ValueError for bytes that are not
    one.

    `writers` are (id, schema) pairs from a registry. UsageError for an invalid schema.
    """
    fastavro, schema = parsed_schema(text)
    return _reader(fastavro, schema, writers)


def _reader(
    fastavro: Any, schema: Any, writers: Iterable[tuple[int, str]], *, has_names: bool = False
) -> Callable[[bytes], Any]:
    """Return a function from bytes to a value; `has_names` puts their names before the values of
    named types in unions."""
    by_id = {number: parsed_schema(writer)[1] for number, writer in writers}
    names = {"return_named_type": has_names, "return_named_type_override": has_names}
    return lambda data: _read(fastavro, schema, data, by_id, names)


def with_references(text: str, references: Sequence[tuple[str, str]]) -> str:
    """Return the Avro schema `text` with the definitions of types from other schemas.

    `references` are the names and texts of these schemas, each after those that it refers to
    itself. A definition stands where the type is first used. UsageError for an invalid schema.
    """
    if not references:
        return text
    fastavro, _ = parsed_schema('"null"')
    named: dict[str, Any] = {}
    try:
        for _name, other in references:
            fastavro.parse_schema(json.loads(other), named_schemas=named)
        others = dict(named)
        schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (ValueError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise UsageError(f"Not an Avro schema: {error}") from None
    return json.dumps(_completed(schema, others, set()))


def _completed(schema: Any, others: dict[str, Any], defined: set[str]) -> Any:
    """Return a parsed schema with the definition of each of `others` where it is first used."""
    if isinstance(schema, list):
        return [_completed(branch, others, defined) for branch in schema]
    if isinstance(schema, str):
        if schema not in others or schema in defined:
            return schema
        schema = others[schema]
    if "name" in schema:
        defined.add(schema["name"])
    made = {name: item for name, item in schema.items() if not name.startswith("__")}
    for key in ("type", "items", "values"):
        if key in made and made[key] not in ("record", "enum", "fixed", "array", "map", "error"):
            made[key] = _completed(made[key], others, defined)
    if "fields" in made:
        made["fields"] = [
            field | {"type": _completed(field["type"], others, defined)} for field in made["fields"]
        ]
    return made


# Exceptions that fastavro raises for bytes that are not a value of the schema.
_UNREADABLE = (
    ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, StopIteration,
    ArithmeticError, MemoryError, RecursionError,
    # pyarrow's, for a negative length.
    SystemError,
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


def _read(
    fastavro: Any, schema: Any, data: bytes, by_id: dict[int, Any], names: dict[str, bool]
) -> Any:
    """Return the value that takes up all of `data`; ValueError if there is none."""
    starts = [(0, schema)]
    if data[:1] == b"\0" and len(data) >= CONFLUENT_BYTES:
        if by_id:
            return _read_registered(fastavro, schema, data, by_id, names)
        # Without these five bytes, a value may also begin with a NUL.
        starts.insert(0, (CONFLUENT_BYTES, schema))
    for start, writer in starts:
        stream = pa.BufferReader(data)
        stream.seek(start)
        try:
            found = fastavro.schemaless_reader(stream, writer, schema, **names)
        except (*_UNREADABLE, fastavro.read.SchemaResolutionError):
            continue
        if stream.tell() == len(data):
            return found
    raise ValueError("not a value of the schema, or followed by other bytes")


def _read_registered(
    fastavro: Any, schema: Any, data: bytes, by_id: dict[int, Any], names: dict[str, bool]
) -> Any:
    """Return the value after Confluent's bytes, which name its writer's schema; ValueError with the
    reason if there is none."""
    number = int.from_bytes(data[1:CONFLUENT_BYTES], "big")
    if number not in by_id:
        raise ValueError(f"unknown schema id {number}")
    stream = pa.BufferReader(data)
    stream.seek(CONFLUENT_BYTES)
    try:
        found = fastavro.schemaless_reader(stream, by_id[number], schema, **names)
    except fastavro.read.SchemaResolutionError as error:
        raise ValueError(f"schema id {number} does not fit the columns: {error}") from None
    except _UNREADABLE:
        raise ValueError(f"not a value of schema id {number}") from None
    if stream.tell() != len(data):
        raise ValueError(f"a value of schema id {number} and other bytes")
    return found


def _without_other_logical_types(schema: Any) -> Any:
    """Return the schema without the logical types that have no column type."""
    if isinstance(schema, list):
        return [_without_other_logical_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_other_logical_types(item) for name, item in schema.items()}
    if isinstance(kept.get("logicalType"), str) and kept["logicalType"] not in (
        *LOGICAL,
        "decimal",
    ):
        del kept["logicalType"]
    return kept
