"""Writers: write Arrow batches to a file of a table format; `close` completes the file.

Rows are buffered until they fill a row group of bounded size, which bounds a writer's memory.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.export.options import Compression, TableFormat

# Bytes of Arrow data in a row group, and rows in one.
_GROUP_BYTES = 64 * 1024 * 1024
_GROUP_ROWS_MAX = 4 * 1024 * 1024
_DELTA_COLUMNS = ("offset", "timestamp")
# Columns with repeated values; offsets and values rarely repeat.
_DICTIONARY_COLUMNS = (
    "key", "topic", "partition", "timestampType", "leaderEpoch", "producerId", "producerEpoch",
    "position",
)  # fmt: skip
# Columns by which readers select ranges of rows.
_STATISTICS_COLUMNS = ("topic", "partition", "offset", "timestamp")
# About as fast as snappy, with files of 60 % of the size.
_ZSTD_LEVEL = 1


class TableWriter(Protocol):
    """A file that is being written."""

    # Bytes of buffered rows.
    held: int

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        ...

    def flush(self) -> None:
        """Write the buffered rows."""
        ...

    def close(self) -> None:
        """Complete the file."""
        ...


def open_writer(
    table_format: TableFormat,
    stream: Any,
    schema: pa.Schema,
    compression: Compression = Compression.ZSTD,
) -> TableWriter:
    """Return a writer of `table_format` to `stream`, which the writer closes.

    Text formats are not compressed.
    """
    if table_format is TableFormat.PARQUET or table_format.is_lake:
        # Iceberg needs statistics of every column.
        names = schema.names if table_format is TableFormat.ICEBERG else _STATISTICS_COLUMNS
        return _Gathered(stream, schema, _parquet(stream, schema, names, compression))
    if table_format is TableFormat.ORC:
        from pyarrow import orc

        codec = "uncompressed" if compression is Compression.NONE else compression.value
        patient = _PatientStream(stream)
        writer = orc.ORCWriter(patient, compression=codec)
        return _Gathered(
            patient, schema, patient.checked(writer.write), patient.checked(writer.close)
        )
    if table_format is TableFormat.CSV:
        from pyarrow import csv

        sheet = csv.CSVWriter(stream, schema)
        return _Gathered(stream, schema, sheet.write_table, sheet.close)
    return _JsonLines(stream)


def _parquet(
    stream: Any, schema: pa.Schema, statistics: Sequence[str], compression: Compression
) -> Any:
    from pyarrow import parquet

    names = set(schema.names)
    return parquet.ParquetWriter(
        stream,
        schema,
        compression=compression.value,
        compression_level=_ZSTD_LEVEL if compression is Compression.ZSTD else None,
        use_dictionary=[name for name in _DICTIONARY_COLUMNS if name in names],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTA_COLUMNS if name in names},
        write_statistics=_leaves(schema, statistics),
    )


def _leaves(schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return the named columns' leaves, which Parquet counts as columns: members of structs and
    lists."""

    def of(path: str, kind: pa.DataType) -> list[str]:
        if pa.types.is_struct(kind):
            return [leaf for it in kind for leaf in of(f"{path}.{it.name}", it.type)]
        if pa.types.is_list(kind):
            return of(f"{path}.list.element", kind.value_type)
        if pa.types.is_map(kind):
            key, value = of(f"{path}.key_value.key", kind.key_type), kind.item_type
            return [*key, *of(f"{path}.key_value.value", value)]
        return [path]

    return [leaf for it in schema if it.name in names for leaf in of(it.name, it.type)]


class _Gathered:
    """Writes rows in row groups."""

    def __init__(self, stream: Any, schema: pa.Schema, writer: Any, close: Any = None) -> None:
        self._stream = stream
        self._schema = schema
        self._write = writer if close else self._write_group
        self._close = close or writer.close
        self._writer = writer
        self._batches: list[pa.RecordBatch] = []
        self.held = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer the rows; write them when a group is full."""
        self._batches.append(batch)
        self.held += batch.nbytes
        if self.held >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a smaller group."""
        if self._batches:
            self._write(pa.Table.from_batches(self._batches, self._schema))
        self._batches = []
        self.held = 0

    def close(self) -> None:
        """Write the buffered rows and the footer."""
        self.flush()
        self._close()
        self._stream.close()

    def _write_group(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=_GROUP_ROWS_MAX)


class _PatientStream:
    """A stream that accepts all writes and keeps the first error, for Arrow's writer of ORC, which
    ends the process if a write fails while it is closed."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._error: OSError | None = None

    def write(self, data: Any) -> None:
        """Write the data, or nothing after an error."""
        if self._error is not None:
            return
        try:
            self._stream.write(data)
        except OSError as error:
            self._error = error

    def flush(self) -> None:
        """Do nothing: `close` does."""

    def close(self) -> None:
        """Close the stream; OSError if something was not written."""
        if not self.closed:
            self.closed = True
            self._stream.close()
        self._check()

    def checked(self, work: Callable[..., object]) -> Callable[..., None]:
        """Return a function that does `work` and raises the error that a write met."""

        def run(*arguments: object) -> None:
            work(*arguments)
            self._check()

        return run

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


class _JsonLines:
    """Writes one JSON object per line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.held = 0

    def flush(self) -> None:
        """Do nothing: rows are not buffered."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows immediately."""
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
        names = batch.schema.names
        headers = names.index("headers") if "headers" in names else None
        lines = []
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            fields = dict(zip(names, row, strict=True))
            if headers is not None:
                fields["headers"] = json.loads(row[headers]) if row[headers] else []
            lines.append(encode({k: v for k, v in fields.items() if not _is_empty_rest(k, v)}))
        self._stream.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def _is_empty_rest(name: str, value: object) -> bool:
    """Return whether a `_base64` field is null and so omitted, as `kctl consume` does."""
    return value is None and name.endswith("_base64")
