"""write_split: exports one split. It reads and decodes the records, writes files, and returns a
row.

The same function runs in this process, in a process pool and on Spark's executors. It writes only
below `_kctl/tmp`, under the unique name of its attempt, so it may die or run twice at any time;
only what the driver commits is part of the table.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute as pc

from kctl.arrow_files.files import Files
from kctl.errors import CorruptDataError, StorageError, storage_failure
from kctl.export.dead_letters import LetterFile
from kctl.export.latest_rows import CHANGES, as_changes, change_schema, with_keys
from kctl.export.manifest import ManifestRow, WrittenFile, leave_row, tmp_path
from kctl.export.options import HIVE_NULL, ExportOptions, OnUndecodable
from kctl.export.rows import LatestPerKey, SplitReader, raw_table
from kctl.export.splits import Split, range_name
from kctl.export.values import make_decoder
from kctl.export.writers import TableWriter, open_writer
from kctl.records.columnar import RecordColumns

# Files that a split writes at once. Beyond that (records of many hours, not in order), the oldest
# file is completed; later records of its hour go to another file.
_OPEN_FILES_MAX = 64
# Bytes of rows buffered for all of these files together.
_HELD_BYTES_MAX = 192 * 1024 * 1024
_FAIL = OnUndecodable.FAIL
_MS = {"date": 86_400_000, "hour": 3_600_000}


def write_split(
    split: Split,
    options: ExportOptions,
    out: str,
    attempt: str,
    progress: Callable[[int], object] = lambda _bytes: None,
) -> ManifestRow:
    """Write the split's files below `out` and return their manifest row; nothing is committed.

    CorruptDataError for damage if the options ask for it; StorageError if a file cannot be read or
    written.
    """
    sink = TableSink(options, out, attempt, split.topic, split.partition)
    wanted = None
    if options.replaces_partitions:
        wanted = LatestPerKey()
        for columns in SplitReader(split, options).chunks():
            wanted.add(columns)
    reader = SplitReader(split, options, progress)
    try:
        for columns in reader.chunks():
            chosen = columns if wanted is None else columns.take(wanted.of(columns))
            if len(chosen):
                sink.add(chosen)
        row = sink.finish(split.first_offset, split.end_offset)
    except pa.ArrowException as error:
        raise StorageError(f"{out}: cannot write {split.name}: {error}") from None
    row.log_bytes, row.damages = reader.bytes_read, reader.damages
    files, root = Files.of(out)
    leave_row(files, root, attempt, row)
    return row


class TableSink:
    """Writes decoded records of one partition to files below tmp."""

    def __init__(
        self, options: ExportOptions, out: str, attempt: str, topic: str, partition: int
    ) -> None:
        self._options = options
        self._files, self._root = Files.of(out)
        self._attempt = attempt
        self._topic, self._partition = topic, partition
        self._decoder = make_decoder(options)
        self._names = options.stored_columns
        # Directory to its open file, the oldest first.
        self._open: dict[str, _OpenFile] = {}
        self._closed: list[_OpenFile] = []
        self._letters: LetterFile | None = None
        if options.dead_letters is not None:
            self._letters = LetterFile(options.dead_letters, tmp_path(attempt, "letters"))
        self._schema = self._decoder.schema
        if options.merges_changes:
            self._schema = change_schema(self._schema)
        self.bytes_in = 0
        self.rows = 0

    def add(self, columns: RecordColumns) -> None:
        """Write records to the files of their directories."""
        self.bytes_in += int(columns.value_lengths.sum() + columns.key_lengths.sum())
        merges = self._options.merges_changes
        for directory, chosen in self._by_directory(with_keys(columns) if merges else columns):
            raw = raw_table(chosen, self._topic, self._partition, self._names)
            decoded = self._decoder.table(raw, self._headers(chosen))
            batch = as_changes(decoded, chosen) if merges else decoded
            batch = self._without_refused(chosen, batch)
            self.rows += batch.num_rows
            if batch.num_rows:
                self._file(directory).write(batch)
            if sum(each.writer.held for each in self._open.values()) > _HELD_BYTES_MAX:
                max(self._open.values(), key=lambda each: each.writer.held).flush()

    def _without_refused(self, columns: RecordColumns, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch without dead letters, which are written; CorruptDataError for a value
        that cannot be decoded if the options ask for it."""
        failed = self._decoder.failed
        if failed is None or not (self._letters or self._options.on_undecodable is _FAIL):
            return batch
        refused = columns.take(failed.to_numpy(zero_copy_only=False))
        if self._letters is None:
            raise CorruptDataError(
                f"{self._topic}-{self._partition} offset {refused.offsets[0]}: the value cannot be "
                f"decoded: {self._reasons(refused, 1)[0]}",
                hint="--dead-letters DIR writes such records to a table of their own; "
                "--on-undecodable keep leaves their bytes in the column value_raw",
            )
        reasons = self._reasons(refused, len(refused))
        self._letters.add(refused, self._topic, self._partition, reasons)
        return batch.filter(pc.invert(failed))

    def _headers(self, columns: RecordColumns) -> "pa.Array | None":
        """Return the headers of records if their values cannot be decoded without."""
        if self._decoder.wire is None:
            return None
        return columns.to_arrow(("headers",)).column(0)

    def _reasons(self, columns: RecordColumns, count: int) -> list[str]:
        """Return why the first `count` values cannot be decoded."""
        headers = self._headers(columns)
        return [
            self._decoder.reason(
                columns.value(at) or b"", None if headers is None else headers[at].as_py()
            )
            for at in range(count)
        ]

    def finish(self, first_offset: int, end_offset: int) -> ManifestRow:
        """Complete the files, which hold the records of [first_offset, end_offset), and return
        their row."""
        for each in self._open.values():
            each.close()
        stem = range_name(self._topic, self._partition, first_offset, end_offset)
        row = ManifestRow(self._topic, self._partition, first_offset, end_offset)
        for each in sorted(
            [*self._closed, *self._open.values()], key=lambda it: (it.directory, it.number)
        ):
            more = f"-{each.number}" if each.number else ""
            path = f"{each.directory}{stem}{more}.{self._options.table_format.suffix}"
            facts = self._files.find(f"{self._root}/{each.path}")
            size = facts.size if facts is not None else 0
            row.files.append(WrittenFile(path, each.path, each.rows, size))
        row.rows = self.rows
        row.undecodable = self._decoder.undecodable
        if self._letters is not None and self._letters.rows:
            size, rows = self._letters.close(), self._letters.rows
            row.letters = [WrittenFile(f"{stem}.parquet", self._letters.path, rows, size)]
            row.letters_at = self._options.dead_letters or ""
        self._open.clear()
        return row

    def _by_directory(self, columns: RecordColumns) -> list[tuple[str, RecordColumns]]:
        """Return the records by the directory that `partition_by` assigns them to, in order."""
        if self._options.merges_changes:
            return [(CHANGES, columns)]
        keys = self._options.partition_by
        finest = "hour" if "hour" in keys else "date" if "date" in keys else None
        if finest is None:
            return [(self._directory(None), columns)]
        # Records without a timestamp have a separate directory.
        spans = np.where(columns.timestamps < 0, -1, columns.timestamps // _MS[finest])
        found = []
        for span in np.unique(spans).tolist():
            when = None if span < 0 else np.datetime64(span * _MS[finest], "ms")
            found.append((self._directory(when, is_timed=True), columns.take(spans == span)))
        return found

    def _directory(self, when: Any, *, is_timed: bool = False) -> str:
        values = {"topic": self._topic}
        if is_timed:
            text = str(when) if when is not None else HIVE_NULL
            values["date"] = text[:10] if when is not None else text
            values["hour"] = text[11:13] if when is not None else text
        return "".join(f"{key}={values[key]}/" for key in self._options.partition_by)

    def _file(self, directory: str) -> "_OpenFile":
        if directory in self._open:
            return self._open[directory]
        if len(self._open) >= _OPEN_FILES_MAX:
            oldest = next(iter(self._open))
            closed = self._open.pop(oldest)
            closed.close()
            self._closed.append(closed)
        number = sum(each.directory == directory for each in self._closed)
        path = tmp_path(self._attempt, f"{directory}{number}")
        target = f"{self._root}/{path}"
        self._files.make_parent(target)
        stream = self._files.create(target)
        writer = open_writer(
            self._options.table_format, stream, self._schema, self._options.compression
        )
        self._open[directory] = opened = _OpenFile(directory, number, path, target, writer)
        return opened


class _OpenFile:
    """A file that is being written, and its number of rows."""

    def __init__(
        self, directory: str, number: int, path: str, target: str, writer: TableWriter
    ) -> None:
        self.directory = directory
        self.number = number
        self.path = path
        # The same file, on its file system.
        self._target = target
        self.rows = 0
        self.writer = writer

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        self._do(lambda: self.writer.write(batch))

    def flush(self) -> None:
        """Write the buffered rows."""
        self._do(self.writer.flush)

    def close(self) -> None:
        """Complete the file."""
        self._do(self.writer.close)

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            # An object store reports at any of these that it does not take the data.
            raise storage_failure(self._target, error) from None
