"""Tables as rows of records: reads Parquet, ORC, CSV and JSON lines files in chunks.

The columns are those of `kctl export`: key, value, topic, partition, timestamp, headers,
and offset, which only determines an order. A key or value may be bytes or text; numbers become
their digits, structs and lists JSON. `key_base64`, `value_base64` and `value_raw` are used where
the column itself is null. Other columns are ignored; `unknown_columns` names them. A table with
neither a key nor a value column is rejected.

A field of CSV without quotes and without content is an empty value, not a null one: a null value is
a tombstone, which deletes its key from a compacted topic. `null_text` is the text that means null
instead. An empty key without quotes is no key; in all other columns, such a field is null.
"""

import base64
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from kctl.arrow_files.files import FileFacts, Files
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.records.columnar_arrow import HEADERS

# Approximate bytes of a table processed at once.
CHUNK_BYTES = 16 * 1024 * 1024
_ROWS_MAX = 65_536
# Approximate size of the parts into which a large Parquet file is divided.
_PART_BYTES = 256 * 1024 * 1024

ROWS = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()),
        ("partition", pa.int32()), ("timestamp", pa.int64()), ("headers", HEADERS),
        ("offset", pa.int64()),
    ]
)  # fmt: skip
# Columns of `kctl export` that records do not have.
_NOT_IMPORTED = ("timestampType", "leaderEpoch", "producerId", "producerEpoch")
_WANTED = (*ROWS.names, "key_base64", "value_base64", "value_raw")
_HEADERS_HINT = 'e.g. [{"name": "trace", "value": "abc"}]'


class TableFormat(StrEnum):
    """The format of a file."""

    PARQUET = "parquet"
    ORC = "orc"
    CSV = "csv"
    NDJSON = "ndjson"


_SUFFIXES = {
    ".parquet": TableFormat.PARQUET, ".orc": TableFormat.ORC, ".csv": TableFormat.CSV,
    ".ndjson": TableFormat.NDJSON, ".jsonl": TableFormat.NDJSON, ".json": TableFormat.NDJSON,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TablePart:
    """A file or some of its row groups: what one task reads."""

    url: str
    table_format: TableFormat
    # Bytes of the whole file.
    size: int
    modified_ns: int = 0
    # None: the whole file.
    row_groups: tuple[int, ...] | None = None
    # Of CSV: the text of a null key or value; None: no value is null.
    null_text: str | None = None


def find_parts(
    sources: Sequence[str],
    table_format: TableFormat | None = None,
    null_text: str | None = None,
) -> list[TablePart]:
    """Return the parts of the tables in `sources`, in the order of their names.

    Of a directory these are all files below it, except names that begin with `_` or `.`. UsageError
    if there are none, or if a file is not a table.
    """
    parts: list[TablePart] = []
    for source in sources:
        files, path = Files.of(source)
        facts = files.find(path)
        if facts is None:
            raise UsageError(f"{source}: no such file or directory")
        found = _below(files, path) if facts.is_directory else [facts]
        if not found:
            raise UsageError(f"{source}: no table files found")
        for each in found:
            parts += _parts_of(files, each, table_format, null_text)
    return parts


def unknown_columns(parts: Sequence[TablePart]) -> list[str]:
    """Return the columns that are not imported because their names mean nothing to an import.

    Of JSON lines, the first 16 MiB of each file are read. UsageError, which names the file, if it
    cannot be read.
    """
    found: dict[str, None] = {}
    for part in {it.url: it for it in parts}.values():
        found |= dict.fromkeys(_as_table(part, lambda: _columns(part)))  # noqa: B023
    return [name for name in found if name not in (*_WANTED, *_NOT_IMPORTED)]


def _columns(part: TablePart) -> list[str]:
    if part.table_format is TableFormat.PARQUET:
        return list(_parquet(part).schema_arrow.names)
    if part.table_format is TableFormat.ORC:
        from pyarrow import orc

        return list(orc.ORCFile(_open(part)).schema.names)
    if part.table_format is TableFormat.CSV:
        from pyarrow import csv

        return list(csv.open_csv(_open(part), csv.ReadOptions(block_size=CHUNK_BYTES)).schema.names)
    lines = _open(part).read(CHUNK_BYTES).split(b"\n")
    documents = _documents(lines if len(lines) == 1 else lines[:-1], 0)
    return list(dict.fromkeys(name for document in documents for name in document))


def _below(files: Files, path: str) -> list[FileFacts]:
    for name, lake in (("_delta_log", "Delta Lake"), ("metadata/version-hint.text", "Iceberg")):
        if files.find(f"{path}/{name}") is not None:
            raise UsageError(
                f"{path} is a {lake} table: only its log shows which files are current",
                hint="name the files",
            )
    return [
        facts
        for facts in files.list(path, recursive=True)
        if not facts.is_directory
        and not any(name[0] in "_." for name in facts.path[len(path) :].strip("/").split("/"))
    ]


def _parts_of(
    files: Files, facts: FileFacts, table_format: TableFormat | None, null_text: str | None
) -> Iterator[TablePart]:
    known = table_format or _SUFFIXES.get(f".{facts.name.rpartition('.')[2].lower()}")
    url = files.url(facts.path)
    if known is None:
        raise UsageError(
            f"{url}: unknown table format", hint="--format parquet, orc, csv or ndjson"
        )
    if known is not TableFormat.CSV:
        null_text = None
    whole = TablePart(url, known, facts.size, facts.modified_ns, null_text=null_text)
    if known is not TableFormat.PARQUET or facts.size < _PART_BYTES:
        yield whole
        return
    metadata = _as_table(whole, lambda: _parquet(whole)).metadata
    groups: list[int] = []
    size = 0
    for number in range(metadata.num_row_groups):
        groups.append(number)
        size += metadata.row_group(number).total_byte_size
        if size >= _PART_BYTES or number + 1 == metadata.num_row_groups:
            yield TablePart(url, known, facts.size, facts.modified_ns, tuple(groups))
            groups, size = [], 0


def read_rows(part: TablePart, now_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield rows with the columns of ROWS; `now_ms` is the timestamp of rows without one.

    UsageError, which names the file, if it cannot be read.
    """
    reader = _READERS[part.table_format]
    batches = _as_table(part, lambda: reader(part))
    while True:
        batch = _as_table(part, lambda: next(batches, None))
        if batch is None:
            return
        if batch.num_rows:
            yield _as_table(part, lambda: _as_rows(part, batch, now_ms))  # noqa: B023 - at once


def read_places(part: TablePart) -> Iterator[pa.RecordBatch]:
    """Yield the columns topic and partition of the rows, null where there is no such column."""
    if part.table_format is TableFormat.PARQUET:
        batches = _as_table(part, lambda: _read_parquet(part, ("topic", "partition")))
    else:
        batches = _as_table(part, lambda: _READERS[part.table_format](part))
    while (batch := _as_table(part, lambda: next(batches, None))) is not None:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        found = [
            _as_table(part, lambda: columns[name].cast(ROWS.field(name).type))  # noqa: B023
            if name in columns
            else pa.nulls(batch.num_rows, ROWS.field(name).type)
            for name in ("topic", "partition")
        ]
        yield pa.RecordBatch.from_arrays(found, ["topic", "partition"])


def _as_table(part: TablePart, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (
        pa.ArrowException, ValueError, OverflowError, RecursionError, OSError, UsageError,
    ) as error:  # fmt: skip
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{part.url}: {text}", hint=getattr(error, "hint", None)) from None


def _open(part: TablePart) -> pa.BufferReader:
    files, path = Files.of(part.url)
    return pa.BufferReader(pa.py_buffer(files.map(path)))


def _parquet(part: TablePart) -> Any:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    return pq.ParquetFile(_open(part))


def _read_parquet(part: TablePart, wanted: Sequence[str] = _WANTED) -> Iterator[pa.RecordBatch]:
    file = _parquet(part)
    names = [name for name in file.schema_arrow.names if name in wanted]
    size = sum(
        file.metadata.row_group(number).total_byte_size
        for number in range(file.metadata.num_row_groups)
    )
    row_bytes = size // max(1, file.metadata.num_rows) + 1
    rows = max(16, min(_ROWS_MAX, CHUNK_BYTES // row_bytes))
    groups = None if part.row_groups is None else list(part.row_groups)
    if not names:
        yield _without_columns(_row_count(file, groups))
        return
    yield from file.iter_batches(batch_size=rows, row_groups=groups, columns=names)


def _without_columns(rows: int) -> pa.RecordBatch:
    """Return a batch of rows of which no column is wanted: without any, it would have no rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], [""])


def _row_count(file: Any, groups: list[int] | None) -> int:
    numbers = range(file.metadata.num_row_groups) if groups is None else groups
    return sum(file.metadata.row_group(number).num_rows for number in numbers)


def _read_orc(part: TablePart) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(_open(part))
    names = [name for name in file.schema.names if name in _WANTED]
    if not names:
        yield _without_columns(file.nrows)
        return
    for number in range(file.nstripes):
        stripe = file.read_stripe(number, names)
        for start in range(0, stripe.num_rows, _ROWS_MAX):
            yield stripe.slice(start, _ROWS_MAX)


def _read_csv(part: TablePart) -> Iterator[pa.RecordBatch]:
    from pyarrow import csv

    # Everything is read as text; an empty field without quotes is null.
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(_WANTED, pa.string()), null_values=[""],
        strings_can_be_null=True, quoted_strings_can_be_null=False,
    )  # fmt: skip
    read = csv.ReadOptions(block_size=CHUNK_BYTES)
    parse = csv.ParseOptions(newlines_in_values=True)
    for batch in csv.open_csv(_open(part), read, parse, convert):
        names = [name for name in batch.schema.names if name in _WANTED]
        yield batch.select(names)


def _read_ndjson(part: TablePart) -> Iterator[pa.RecordBatch]:
    # The columns of all chunks so far; a later chunk may have none of them.
    names: set[str] = set()
    # Rows before the first that has a column.
    leading = 0
    for documents in _json_chunks(_open(part)):
        names.update(name for document in documents for name in document if name in _WANTED)
        if names:
            yield _json_rows([*[{}] * leading, *documents], names)
            leading = 0
        else:
            leading += len(documents)
    if leading:
        yield _without_columns(leading)


def _json_chunks(file: pa.BufferReader) -> Iterator[list[dict[str, Any]]]:
    rest = b""
    row = 0
    while block := file.read(CHUNK_BYTES):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        yield _documents(lines, row)
        row += len(lines)
    yield _documents([rest], row)


def _json_rows(documents: list[dict[str, Any]], names: Collection[str]) -> pa.RecordBatch:
    chosen = [name for name in _WANTED if name in names]
    columns = [_json_column(name, [it.get(name) for it in documents]) for name in chosen]
    return pa.RecordBatch.from_arrays(columns, chosen)


def _documents(lines: list[bytes], first_line: int) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    for number, line in enumerate(lines, first_line + 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            raise UsageError(f"line {number}: {error}") from None
        except RecursionError:
            raise UsageError(f"line {number}: nested too deeply") from None
        if not isinstance(document, dict):
            raise UsageError(f"line {number}: not an object")
        documents.append(document)
    return documents


def _json_column(name: str, values: list[Any]) -> pa.Array:
    if name in ("partition", "timestamp", "offset"):
        try:
            return pa.array(values)
        except OverflowError:
            raise UsageError(f"the column {name} has a number of more than 64 bits") from None
    texts = [it if it is None or isinstance(it, str) else _json(it) for it in values]
    return pa.array(texts, pa.string())


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


_READERS: dict[TableFormat, Callable[[TablePart], Iterator[pa.RecordBatch]]] = {
    TableFormat.PARQUET: _read_parquet,
    TableFormat.ORC: _read_orc,
    TableFormat.CSV: _read_csv,
    TableFormat.NDJSON: _read_ndjson,
}


def _as_rows(part: TablePart, batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if not columns.keys() & {"key", "value", "key_base64", "value_base64", "value_raw"}:
        raise UsageError(
            "neither a key nor a value column",
            hint="columns: key, value, topic, partition, timestamp, headers",
        )
    count = batch.num_rows
    found = {name: pa.nulls(count, ROWS.field(name).type) for name in ROWS.names}
    for name in ("key", "value"):
        found[name] = _bytes_of(columns, name, count)
    if part.table_format is TableFormat.CSV:
        found |= _csv_nulls(found, columns.keys(), part.null_text)
    for name in ("partition", "offset", "topic"):
        if name in columns:
            found[name] = columns[name].cast(ROWS.field(name).type)
    times = columns.get("timestamp")
    milliseconds = pa.nulls(count, pa.int64()) if times is None else _milliseconds(times)
    found["timestamp"] = pc.fill_null(milliseconds, pa.scalar(now_ms, pa.int64()))
    if "headers" in columns:
        found["headers"] = _headers(columns["headers"])
    return pa.RecordBatch.from_arrays(list(found.values()), schema=ROWS)


def _bytes_of(columns: dict[str, pa.Array], name: str, count: int) -> pa.Array:
    found = _as_bytes(columns[name]) if name in columns else pa.nulls(count, pa.binary())
    encoded = columns.get(f"{name}_base64")
    if encoded is not None and encoded.null_count < count:
        texts = _as_bytes(encoded).to_pylist()
        decoded = [None if it is None else base64.b64decode(it, validate=True) for it in texts]
        found = pc.coalesce(found, pa.array(decoded, pa.binary()))
    raw = columns.get(f"{name}_raw")
    return found if raw is None else pc.coalesce(found, _as_bytes(raw))


def _csv_nulls(
    found: dict[str, pa.Array], names: Collection[str], null_text: str | None
) -> dict[str, pa.Array]:
    """Return key and value with the nulls that `null_text` asks for."""
    value = found["value"]
    if null_text != "" and "value" in names:
        value = pc.fill_null(value, pa.scalar(b"", pa.binary()))
    if not null_text:
        return {"value": value}
    nulls = pa.array([null_text.encode()], pa.binary())
    none = pa.scalar(None, pa.binary())
    return {
        name: pc.if_else(pc.is_in(column, nulls), none, column)
        for name, column in (("key", found["key"]), ("value", value))
    }


def _as_bytes(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _as_bytes(column.dictionary_decode())
    if pa.types.is_nested(kind):
        texts = [None if it is None else _json(it).encode() for it in column.to_pylist()]
        return pa.array(texts, pa.binary())
    if not (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
    ):  # fmt: skip
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def _milliseconds(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        # Finer timestamps are truncated.
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64())


def _headers(column: pa.Array) -> pa.Array:
    """Convert to lists of key and value; text is JSON with name and value or value_base64."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        lists = [None if not it else json.loads(it) for it in column.to_pylist()]
    elif column.type == HEADERS:
        return column
    else:
        lists = column.to_pylist()
    return pa.array([None if not it else _header_list(it) for it in lists], HEADERS)


def _header_list(pairs: Any) -> list[dict[str, Any]]:
    if not isinstance(pairs, list):
        raise UsageError(f"not a list of headers: {_json(pairs)}", hint=_HEADERS_HINT)
    return [_header(pair) for pair in pairs]


def _header(pair: Any) -> dict[str, Any]:
    try:
        name = pair["name"] if "name" in pair else pair["key"]
        value = pair.get("value")
        if value is None and pair.get("value_base64") is not None:
            value = base64.b64decode(pair["value_base64"], validate=True)
    except (KeyError, TypeError, AttributeError):
        raise UsageError(f"not a header: {_json(pair)}", hint=_HEADERS_HINT) from None
    return {"key": name, "value": value.encode() if isinstance(value, str) else value}
