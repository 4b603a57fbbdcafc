"""Values: decodes keys and values; bytes that cannot be decoded are kept and counted.

A decoded column `value` is followed by `value_raw`: null where decoding succeeded, and the original
bytes where it failed (then `value` is null). Text formats cannot hold bytes and have `value_base64`
instead. Null values are null in both columns and count as decoded.

Arrow parses JSON, one chunk per call, into a struct whose fields are given or inferred from a
sample. Fields that the schema does not name are dropped; values that do not match it are not
decoded.
"""

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute as pc

from kctl.errors import UsageError
from kctl.export.decoding import Decode, Decoded, EachDecoder
from kctl.export.json_schema import is_json_schema, json_schema_decoder
from kctl.export.options import REGISTERED_FORMATS, ExportOptions, FieldFormat, TableFormat
from kctl.export.rows import RAW_TYPES
from kctl.export.schema_registry import CONFLUENT_BYTES
from kctl.export.wire_formats import WireReader
from kctl.lazy_dataclass import dataclass

# Values that inference examines.
SAMPLE_VALUES_MAX = 20_000
# Objects and lists inside each other; inference leaves out values with more.
_SAMPLE_DEPTH_MAX = 100


@dataclass(slots=True)
class Decoder:
    """Converts raw columns to those of the table, and counts the values that cannot be decoded."""

    schema: pa.Schema
    is_text: bool
    fields: dict[str, Decode] = field(default_factory=dict)
    # Reads values that do not have Confluent's bytes; it needs the headers.
    wire: WireReader | None = None
    undecodable: int = 0
    # Marks the values of the newest batch that could not be decoded; None: there are none.
    failed: pa.Array | None = None

    def table(self, raw: pa.RecordBatch, headers: pa.Array | None = None) -> pa.RecordBatch:
        """Return the table's columns; `failed` marks its undecodable values.

        `headers` are those of the records, which `wire` needs.
        """
        self.failed = None
        if not self.fields and not self.is_text:
            return raw
        arrays: list[Any] = []
        for name in raw.schema.names:
            column = raw.column(name)
            if name not in self.fields:
                arrays.append(_as_text(name, column) if self.is_text else column)
                continue
            if name == "value" and self.wire is not None:
                decoded, failed = self._unwrapped(self.wire, column, headers)
            else:
                decoded, failed = self.fields[name](column)
            if name == "value":
                self.failed = failed
            arrays += [decoded, self._rest(column, failed)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _unwrapped(self, wire: WireReader, column: pa.Array, headers: pa.Array) -> Decoded:
        plain, refused = _with_confluent_bytes(wire, column, headers)
        decoded, failed = self.fields["value"](plain)
        if refused is None or failed is None:
            return decoded, failed if refused is None else refused
        return decoded, pc.or_(refused, failed)

    def reason(self, data: bytes, headers: Iterable[dict[str, Any]] | None = None) -> str:
        """Return why the value of a record, which `failed` marks, could not be decoded."""
        decode = self.fields["value"]
        if self.wire is not None:
            try:
                data = self.wire.value(data, headers)
            except ValueError as error:
                return str(error)
        if isinstance(decode, EachDecoder):
            return decode.reason(data)
        return "not UTF-8" if decode is _decode_string else _json_reason(data)

    def _rest(self, column: pa.Array, failed: pa.Array | None) -> pa.Array:
        kind = pa.string() if self.is_text else pa.binary()
        if failed is None:
            return pa.nulls(len(column), kind)
        self.undecodable += pc.sum(failed).as_py() or 0
        rest = pc.if_else(failed, column, pa.scalar(None, pa.binary()))
        if not self.is_text:
            return rest
        return pa.array(
            [None if it is None else base64.b64encode(it).decode() for it in rest.to_pylist()],
            pa.string(),
        )


def make_decoder(options: ExportOptions) -> Decoder:
    """Return the decoder for `options`; UsageError for an invalid schema or a missing library."""
    is_text = options.table_format.is_text
    decoder = Decoder(pa.schema([]), is_text)
    if options.value_wire is not None and options.value_format in REGISTERED_FORMATS:
        decoder.wire = WireReader(options.value_wire)
    columns: list[tuple[str, pa.DataType]] = []
    for name in options.stored_columns:
        kind = RAW_TYPES[name]
        if name in ("key", "value"):
            decode, decoded_kind = _field(name, options)
            if decode is not None:
                decoder.fields[name] = decode
                columns.append((name, decoded_kind))
                columns.append(
                    (f"{name}_base64", pa.string()) if is_text else (f"{name}_raw", pa.binary())
                )
                continue
        columns.append((name, _text_type(name, kind) if is_text else kind))
    decoder.schema = pa.schema(columns)
    return decoder


def _field(name: str, options: ExportOptions) -> tuple[Decode | None, pa.DataType]:
    kind = options.key_format if name == "key" else options.value_format
    if kind is FieldFormat.RAW and options.table_format.is_text:
        kind = FieldFormat.STRING
    if kind is FieldFormat.STRING:
        return _decode_string, pa.string()
    if kind is FieldFormat.JSON:
        text = options.value_schema or "{}"
        if options.table_format is TableFormat.CSV:
            raise UsageError(
                "CSV cannot hold nested values", hint="--value string keeps the JSON text"
            )
        if is_json_schema_text(text):
            return json_schema_decoder(text, options.value_writers)
        struct = json_type(text)
        return _json_decoder(struct), struct
    if kind is FieldFormat.AVRO:
        from kctl.export.avro import avro_decoder

        return avro_decoder(options.value_schema or "", options.value_writers)
    if kind is FieldFormat.PROTOBUF:
        from kctl.export.protobuf import protobuf_decoder

        return protobuf_decoder(options.value_schema or "", options.value_writers)
    return None, RAW_TYPES[name]


def _text_type(name: str, kind: pa.DataType) -> pa.DataType:
    if name == "headers":
        return pa.string()
    return pa.int64() if name == "timestamp" else kind


def _as_text(name: str, column: pa.Array) -> pa.Array:
    """Convert a column for CSV and JSON: timestamps to milliseconds, headers to JSON."""
    if name == "timestamp":
        return column.view(pa.int64())
    if name != "headers":
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    return pa.array(
        [None if pairs is None else json.dumps([_header(it) for it in pairs], ensure_ascii=False)
         for pairs in column.to_pylist()],
        pa.string(),
    )  # fmt: skip


def _with_confluent_bytes(wire: WireReader, values: pa.Array, headers: pa.Array) -> Decoded:
    """Return values in Confluent's form, and a mask of those that have none, which are null."""
    found: list[bytes | None] = []
    refused: list[bool] = []
    for data, pairs in zip(values.to_pylist(), headers.to_pylist(), strict=True):
        try:
            found.append(None if data is None else wire.value(data, pairs))
            refused.append(False)
        except ValueError:
            found.append(None)
            refused.append(True)
    return pa.array(found, pa.binary()), pa.array(refused) if any(refused) else None


def _header(pair: dict[str, Any]) -> dict[str, Any]:
    value = pair["value"]
    if value is None:
        return {"name": pair["key"], "value": None}
    try:
        return {"name": pair["key"], "value": value.decode()}
    except UnicodeDecodeError:
        return {"name": pair["key"], "value_base64": base64.b64encode(value).decode()}


def _decode_string(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        pass
    texts = [None if it is None else _utf8(it) for it in column.to_pylist()]
    decoded = pa.array(texts, pa.string())
    return decoded, pc.and_(column.is_valid(), decoded.is_null())


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


_JSON_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(), "int64": pa.int64(), "int32": pa.int32(), "double": pa.float64(),
    "float": pa.float32(), "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("ms", "UTC"),
}  # fmt: skip


def json_type(text: str) -> pa.DataType:
    """Return the struct type of a JSON schema, e.g. `{"id": "int64", "tags": ["string"]}`."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"The schema is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(
            "The schema must be an object of field names",
            hint='e.g. {"id": "int64", "name": "string", "tags": ["string"]}',
        )
    return _json_type(document)


def _json_type(document: Any) -> pa.DataType:
    if document == {}:
        raise UsageError("An object without fields has no column", hint="omit the field")
    if isinstance(document, dict):
        return pa.struct([(name, _json_type(kind)) for name, kind in document.items()])
    if isinstance(document, list) and len(document) == 1:
        return pa.list_(_json_type(document[0]))
    if isinstance(document, str) and document in _JSON_TYPES:
        return _JSON_TYPES[document]
    raise UsageError(f"No type {document}", hint=f"types: {', '.join(_JSON_TYPES)}")


def is_json_schema_text(text: str) -> bool:
    """Return whether a text that describes JSON values is a JSON Schema, not fields and types."""
    try:
        return is_json_schema(json.loads(text))
    except ValueError:
        return False


def infer_json_schema(values: Iterable[bytes | None]) -> str:
    """Infer the schema of sample values, in the form that `json_type` reads; "{}" without JSON
    objects. Values that are no JSON, or nested too deeply for columns, are left out."""
    merged: Any = None
    for value in values:
        if value is None:
            continue
        try:
            document = json.loads(value[CONFLUENT_BYTES:] if value[:1] == b"\0" else value)
            kind = _kind_of(document)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            merged = _merged(merged, kind)
    return json.dumps({} if merged is None else _settled(merged))


def _kind_of(value: Any, depth: int = 0) -> Any:
    if depth > _SAMPLE_DEPTH_MAX:
        raise ValueError("nested too deeply for columns")
    if isinstance(value, dict):
        return {name: _kind_of(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        kind: Any = None
        for item in value:
            kind = _merged(kind, _kind_of(item, depth + 1))
        return [kind]
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "int64" if -(2**63) <= value < 2**63 else "double"
    return "double" if isinstance(value, float) else None if value is None else "string"


def _merged(first: Any, second: Any) -> Any:
    """Return a type that holds both; else "string", or the first if one of the two is nested."""
    if first is None or first == second:
        return second
    if second is None:
        return first
    if isinstance(first, dict) and isinstance(second, dict):
        names = first | second
        return {name: _merged(first.get(name), second.get(name)) for name in names}
    if isinstance(first, list) and isinstance(second, list):
        return [_merged(first[0], second[0])]
    if not isinstance(first, str) or not isinstance(second, str):
        return first
    return "double" if {first, second} == {"int64", "double"} else "string"


def _settled(kind: Any) -> Any:
    """Replace types seen only as null by string, and drop objects that were always empty."""
    if isinstance(kind, dict):
        settled = {name: _settled(item) for name, item in kind.items()}
        return {name: item for name, item in settled.items() if item is not None} or None
    if isinstance(kind, list):
        item = _settled(kind[0])
        return None if item is None else [item]
    return kind or "string"


def _json_decoder(struct: pa.DataType) -> Decode:
    from pyarrow import json as arrow_json

    parse = arrow_json.ParseOptions(
        explicit_schema=pa.schema(list(struct)), newlines_in_values=True,
        unexpected_field_behavior="ignore",
    )  # fmt: skip

    def read(values: pa.Array) -> pa.Array:
        """Decode values, none of which is null; ArrowInvalid if one is not such an object."""
        # Each value begins and ends like an object, so equal counts mean one object in each value.
        if not pc.all(pc.match_substring_regex(values, r"(?s)^\s*\{.*\}\s*$")).as_py():
            raise pa.ArrowInvalid("not an object")
        all_in_one = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        joined = pc.binary_join(all_in_one, pa.scalar(b"\n", pa.binary()))[0].as_buffer()
        block = arrow_json.ReadOptions(block_size=max(1 << 20, joined.size + 1))
        table = arrow_json.read_json(pa.BufferReader(joined), block, parse)
        if table.num_rows != len(values):
            raise pa.ArrowInvalid("not one object per value")
        found = pa.concat_arrays(table.to_struct_array().chunks).cast(struct)
        # Arrow takes text that is not UTF-8; no reader of the table does.
        found.validate(full=True)
        return found

    def decode(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        present = _without_confluent_bytes(column.drop_null())
        if not len(present):
            return pa.nulls(len(column), struct), None
        try:
            whole = read(present)
            failed = None
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
            whole, failed = _by_halves(column, present, read, struct)
        if len(present) == len(column):
            return whole, failed
        return _spread(whole, column), failed

    return decode


def _json_reason(data: bytes) -> str:
    try:
        document = json.loads(data[CONFLUENT_BYTES:] if data[:1] == b"\0" else data)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(document, dict):
        return "not a JSON object"
    return "a JSON object whose fields do not have the types of the columns"


def _without_confluent_bytes(values: pa.Array) -> pa.Array:
    """Remove the bytes that Confluent's serializer puts before values; JSON never begins with a
    NUL."""
    has_them = pc.starts_with(values, b"\0")
    if not pc.any(has_them).as_py():
        return values
    return pc.if_else(has_them, pc.binary_slice(values, CONFLUENT_BYTES), values)


def _spread(whole: pa.Array, column: pa.Array) -> pa.Array:
    """Return decoded values at the places where `column` is not null."""
    places = pc.cumulative_sum(column.is_valid().cast(pa.int32()))
    indexes = pc.if_else(column.is_valid(), pc.subtract(places, 1), pa.scalar(None, pa.int32()))
    return whole.take(indexes)


def _by_halves(
    column: pa.Array, present: pa.Array, read: Callable[[pa.Array], pa.Array], struct: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Decode as many values as possible: whatever fails is halved and tried again."""
    parts: list[pa.Array] = []
    failed_places: list[int] = []

    def attempt(start: int, end: int) -> None:
        piece = present.slice(start, end - start)
        try:
            parts.append(read(piece))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
            if end - start == 1:
                parts.append(pa.nulls(1, struct))
                failed_places.append(start)
                return
            middle = (start + end) // 2
            attempt(start, middle)
            attempt(middle, end)

    attempt(0, len(present))
    failed = [False] * len(present)
    for place in failed_places:
        failed[place] = True
    flags = pa.array(failed)
    if len(present) < len(column):
        flags = pc.fill_null(_spread(flags, column), fill_value=pa.scalar(value=False))
    return pa.concat_arrays(parts), flags
