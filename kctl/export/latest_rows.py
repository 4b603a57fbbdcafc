"""The latest record of each key in a lake: tasks write changes, and the driver merges them.

A change is a row of the table with two more columns: the record's offset, and whether its value is
null, which deletes the row of its key. Files of changes are in `_kctl/changes`, where no reader of
the table looks, and are deleted once they are merged. A row is identified by its topic, partition
and key. Records without a key have no row.

Invariant: the changes of a partition are merged in the order of their offsets (`in_order`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

from kctl.arrow_files.files import Files
from kctl.errors import StorageError
from kctl.export.manifest import DIRECTORY, ManifestRow, WrittenFile
from kctl.export.options import IDENTITY
from kctl.records.columnar import RecordColumns

CHANGES = f"{DIRECTORY}/changes/"
OFFSET = "_kctl_offset"
DELETED = "_kctl_deleted"
# Changes of one version of the table: what the merge holds in memory.
MERGED_ROWS_MAX = 500_000
MERGED_BYTES_MAX = 128 * 1024 * 1024


def change_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of changes to a table with this schema."""
    return pa.schema([*schema, pa.field(OFFSET, pa.int64()), pa.field(DELETED, pa.bool_())])


def as_changes(batch: pa.RecordBatch, columns: RecordColumns) -> pa.RecordBatch:
    """Return the batch, decoded from `columns`, as changes."""
    deleted = pa.array(columns.value_lengths < 0)
    arrays = [*batch.columns, pa.array(columns.offsets, pa.int64()), deleted]
    return pa.RecordBatch.from_arrays(arrays, schema=change_schema(batch.schema))


def with_keys(columns: RecordColumns) -> RecordColumns:
    """Return the records that have a key."""
    return columns.take(columns.key_lengths >= 0)


def groups(rows: Iterable[ManifestRow]) -> Iterator[list[ManifestRow]]:
    """Yield rows in the order of their offsets, as many as one version of the table merges."""
    group: list[ManifestRow] = []
    count = size = 0
    for row in sorted(rows, key=lambda it: it.range):
        bytes_of_row = max(row.log_bytes, sum(each.size for each in row.files))
        is_full = count + row.rows > MERGED_ROWS_MAX or size + bytes_of_row > MERGED_BYTES_MAX
        if group and is_full:
            yield group
            group, count, size = [], 0, 0
        group.append(row)
        count, size = count + row.rows, size + bytes_of_row
    if group:
        yield group


def read_changes(
    files: Files, root: str, written: Sequence[WrittenFile], schema: pa.Schema
) -> pa.Table:
    """Return the last change of each key in these files, with the columns of `schema`, a table's,
    and DELETED; StorageError if a file cannot be read.
    """
    wanted = change_schema(schema)
    parts = [_last(_in_columns(_read(files, f"{root}/{it.path}"), wanted)) for it in written]
    whole = pa.concat_tables(parts) if parts else wanted.empty_table()
    return _last(whole).drop_columns([OFFSET])


def _last(changes: pa.Table) -> pa.Table:
    """Return the last change of each key."""
    last = changes.group_by(list(IDENTITY)).aggregate([(OFFSET, "max")])
    last = last.rename_columns({f"{OFFSET}_max": OFFSET})
    return changes if len(last) == len(changes) else changes.filter(_is_in(changes, last))


def _is_in(whole: pa.Table, last: pa.Table) -> pa.Array:
    """Return a mask of the changes that are the last ones, by their offsets: these are unique in a
    partition."""
    place = ["topic", "partition", OFFSET]
    marked = last.select(place).append_column("_last", pa.array(np.ones(len(last), np.bool_)))
    numbered = whole.select(place).append_column("_row", pa.array(np.arange(len(whole))))
    found = numbered.join(marked, place, join_type="inner")["_row"].to_numpy()
    keep = np.zeros(len(whole), np.bool_)
    keep[found] = True
    return pa.array(keep)


def _read(files: Files, path: str) -> pa.Table:
    try:
        return parquet.read_table(pa.BufferReader(files.read(path)))
    except pa.ArrowException as error:
        raise StorageError(f"{path}: cannot read changes: {error}") from None


def _in_columns(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """Return the table with the columns that the lake's table has now: changes that were written
    before a schema was extended lack some."""
    arrays: list[Any] = []
    for column in wanted:
        found = table.schema.get_field_index(column.name)
        if found < 0:
            arrays.append(pa.nulls(len(table), column.type))
        else:
            arrays.append(table.column(found).cast(column.type))
    return pa.table(arrays, schema=wanted)
