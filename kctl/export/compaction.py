"""Compaction: merges the small Parquet files of a followed table, without reading the log again.

A Compactor remembers the small rows of the manifest, partition by partition. It merges adjacent
ones when together they reach the wanted size, or when MERGED_MAX of one level are there: files of
a slow topic are merged in levels, so that a record is rewritten a logarithmic number of times.

The merged row replaces the others by one line of the manifest. After a crash at any point, opening
the manifest completes the step, or it has not happened.
"""

from collections.abc import Container, Sequence

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.arrow_files.files import Files
from kctl.errors import CorruptDataError, StorageError, UsageError
from kctl.export.evolution import has_columns
from kctl.export.manifest import Manifest, ManifestRow, WrittenFile, leave_out, tmp_path
from kctl.export.options import ExportOptions, TableFormat
from kctl.export.splits import range_name
from kctl.export.writers import open_writer
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

# Rows of one level that are merged although they are smaller than the wanted size together.
MERGED_MAX = 32
# Rows of Parquet in memory at once, besides the writer's row group.
_BATCH_ROWS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Small:
    """A row of the manifest whose files may be merged, and how often they were."""

    row: ManifestRow
    level: int

    @property
    def size(self) -> int:
        """Return the bytes of its files."""
        return sum(each.size for each in self.row.files)


def next_merge(rows: Sequence[Small], wanted_bytes: int) -> tuple[int, int] | None:
    """Return [first, end) of the rows to merge next; None if there are none. Rows are sorted by
    their offsets."""
    start = total = 0
    for number, small in enumerate(rows):
        if number > start and rows[number - 1].row.end_offset != small.row.first_offset:
            start, total = number, 0
        total += small.size
        if total >= wanted_bytes:
            if number > start:
                return start, number + 1
            start, total = number + 1, 0
            continue
        first = number + 1 - MERGED_MAX
        if first >= start and len({it.level for it in rows[first : number + 1]}) == 1:
            return first, number + 1
    return None


class Compactor:
    """Merges the small files of one table."""

    def __init__(self, out: str, options: ExportOptions, wanted_bytes: int) -> None:
        """UsageError for a format whose files are not merged."""
        if options.table_format is not TableFormat.PARQUET:
            raise UsageError(
                "--compact-to merges Parquet files only",
                hint="Delta and Iceberg have their own OPTIMIZE; for others, use a longer --every",
            )
        self._files, self._root = Files.of(out)
        self._options = options
        self._wanted_bytes = wanted_bytes
        self._small: dict[TopicPartition, list[Small]] = {}

    def add(self, row: ManifestRow, level: int = 0) -> None:
        """Remember a committed row."""
        small = Small(row, level)
        if small.size < self._wanted_bytes and not row.damages and not row.letters:
            rows = self._small.setdefault(TopicPartition(row.topic, row.partition), [])
            rows.append(small)
            rows.sort(key=lambda it: it.row.first_offset)

    def leave_out(self, expired: Container[str]) -> None:
        """Forget files that expired; their rows keep their offsets."""
        leave_out((it.row for rows in self._small.values() for it in rows), expired)

    def merge(self, manifest: Manifest, attempt: str) -> bool:
        """Do one merge; return whether there was one. StorageError if it cannot be written."""
        for rows in self._small.values():
            found = next_merge(rows, self._wanted_bytes)
            if found is not None:
                chosen = rows[found[0] : found[1]]
                row = self._merged([it.row for it in chosen], attempt)
                manifest.replace([it.row for it in chosen], row)
                del rows[found[0] : found[1]]
                self.add(row, 1 + max(it.level for it in chosen))
                return True
        return False

    def _merged(self, rows: Sequence[ManifestRow], attempt: str) -> ManifestRow:
        first, last = rows[0], rows[-1]
        merged = ManifestRow(first.topic, first.partition, first.first_offset, last.end_offset)
        merged.rows = sum(it.rows for it in rows)
        merged.log_bytes = sum(it.log_bytes for it in rows)
        merged.undecodable = sum(it.undecodable for it in rows)
        stem = range_name(first.topic, first.partition, first.first_offset, last.end_offset)
        by_directory: dict[str, list[WrittenFile]] = {}
        for row in rows:
            for each in row.files:
                by_directory.setdefault(each.path[: each.path.rfind("/") + 1], []).append(each)
        for number, (directory, parts) in enumerate(sorted(by_directory.items())):
            path = f"{directory}{stem}.{self._options.table_format.suffix}"
            merged.files.append(self._write(path, tmp_path(attempt, str(number)), parts))
        return merged

    def _write(self, path: str, tmp: str, parts: Sequence[WrittenFile]) -> WrittenFile:
        from pyarrow import parquet

        target = f"{self._root}/{tmp}"
        self._files.make_parent(target)
        count = 0
        try:
            # Views are of mapped files; their rows are read one batch at a time.
            views = [self._files.map(f"{self._root}/{part.path}") for part in parts]
            files = [parquet.ParquetFile(pa.BufferReader(pa.py_buffer(it))) for it in views]
            schema = _widest([file.schema_arrow for file in files])
            writer = open_writer(
                self._options.table_format, self._files.create(target), schema,
                self._options.compression,
            )  # fmt: skip
            for file in files:
                for batch in file.iter_batches(_BATCH_ROWS):
                    writer.write(batch if batch.schema == schema else batch.cast(schema))
                    count += batch.num_rows
        except pa.ArrowException as error:
            raise StorageError(f"{path}: cannot merge: {error}") from None
        writer.close()
        if count != sum(part.rows for part in parts):
            raise CorruptDataError(f"{path}: its parts do not have the rows that the manifest has")
        facts = self._files.find(target)
        return WrittenFile(path, tmp, count, facts.size if facts is not None else 0)


def _widest(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the schema that has the columns of all: a table gains columns, and loses none."""
    widest = schemas[0]
    for schema in schemas[1:]:
        if not has_columns(widest, schema):
            widest = schema
    return widest
