"""The columns of a table whose values' schema has got a newer version: columns are only added."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.export.json_schema import is_json_schema, json_schema_columns
from kctl.export.manifest import evolve_table, table_schema_id
from kctl.export.options import ExportOptions, FieldFormat
from kctl.export.wire_formats import WireFormat
from kctl.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RegisteredSchemas:
    """The schemas that a registry has now, as ExportOptions has them."""

    # None: the table keeps its own.
    newest: str | None
    # All versions by id.
    writers: tuple[tuple[int, str], ...]
    wire: WireFormat | None = None


SchemaReader = Callable[[], RegisteredSchemas]


def current_options(out: str, options: ExportOptions, schemas: SchemaReader) -> ExportOptions:
    """Return the options with the schemas that a registry has now, and note in the table, if there
    is one, the columns that the newest schema adds.

    It is called after the logs' ends are known: the schemas of all records before them are there.
    UsageError if the table has other options; what `schemas` raises.
    """
    found = schemas()
    newest, writers = found.newest, found.writers
    known, merged_id = options.value_schema, options.schema_id
    if merged_id is None:
        existing, merged_id = table_schema_id(out)
        # A first run begins with the newest version.
        known = known if existing or newest is None else newest
    schema = known
    if known is not None and newest is not None:
        for text in _since(merged_id, writers):
            schema = evolved_schema(options.value_format, schema or known, text)
    last_id = writers[-1][0] if writers else None
    evolved = replace(
        options, value_schema=schema, value_writers=writers, value_wire=found.wire,
        schema_id=last_id,
    )  # fmt: skip
    if schema != options.value_schema or last_id != merged_id:
        evolve_table(out, options, evolved)
    return evolved


def _since(merged_id: int | None, writers: Sequence[tuple[int, str]]) -> list[str]:
    """Return the versions after the one that the table has; the newest, if that is not known."""
    ids = [number for number, _text in writers]
    first = ids.index(merged_id) + 1 if merged_id in ids else len(ids) - 1
    return [text for _number, text in writers[max(first, 0) :]]


def evolved_schema(kind: FieldFormat, known: str, newest: str) -> str:
    """Return the schema of a table that has `known` after a version `newest`: at least its
    columns, with their types."""
    if kind is FieldFormat.AVRO:
        from kctl.export.avro_evolution import merged_avro

        return merged_avro(known, newest)
    if kind is FieldFormat.PROTOBUF and newest != known:
        from kctl.export.protobuf import protobuf_columns

        if extends(protobuf_columns(newest), protobuf_columns(known)):
            return newest
    # An older table may have fields that were inferred.
    is_json = kind is FieldFormat.JSON and is_json_schema(json.loads(known))
    if is_json and extends(json_schema_columns(newest), json_schema_columns(known)):
        return newest
    return known


def extends(new: pa.DataType, old: pa.DataType) -> bool:
    """Return whether the type has all that `old` has, and perhaps further fields of structs."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        fields = {it.name: it.type for it in new}
        return all(it.name in fields and extends(fields[it.name], it.type) for it in old)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return extends(new.value_type, old.value_type)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return bool(new.key_type == old.key_type) and extends(new.item_type, old.item_type)
    return bool(new == old)


def has_columns(schema: pa.Schema, wanted: pa.Schema) -> bool:
    """Return whether `schema` has the columns of `wanted`, with all of their fields."""
    return extends(pa.struct(list(schema)), pa.struct(list(wanted)))
