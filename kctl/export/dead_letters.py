"""Dead letters: records whose values cannot be decoded, in Parquet files of a directory of their
own.

A task writes the letters of its split below that directory's `_kctl/tmp`, and its row of the
table's manifest names the file. So a record is in the table or among its dead letters, once, by the
same line, whatever crashes.

    <letters>/_kctl/dead_letters.json     the table whose dead letters these are
    <letters>/<topic>-<range>.parquet     topic, partition, offset, timestamp, key, value, headers,
                                          reason
"""

import json
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from kctl.arrow_files.files import Files
from kctl.errors import UsageError
from kctl.export.options import TableFormat
from kctl.export.rows import RAW_TYPES, raw_table
from kctl.export.writers import TableWriter, open_writer
from kctl.records.columnar import RecordColumns

_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_SCHEMA = pa.schema([*((name, RAW_TYPES[name]) for name in _COLUMNS), ("reason", pa.string())])
_DIRECTORY = "_kctl"
_MARK = f"{_DIRECTORY}/dead_letters.json"


def claim(letters: str, out: str, run: str) -> None:
    """Make `letters` the directory of the dead letters of the table at `out`.

    `run` names the table if nothing has named it before. UsageError if the directory holds
    something else, or the dead letters of another table.
    """
    files, root = Files.of(out)
    own = f"{root}/{_MARK}"
    is_named = files.find(own) is not None
    table = json.loads(files.read(own))["table"] if is_named else run
    is_marked = _is_marked(letters, table)
    # The table's own mark comes first, so that what is marked as a table's is known to it.
    if not is_named:
        files.write(own, json.dumps({"table": table}).encode())
    if not is_marked:
        files, root = Files.of(letters)
        files.write(f"{root}/{_MARK}", json.dumps({"table": table, "out": out}).encode())


def _is_marked(letters: str, table: str) -> bool:
    """Return whether the directory is marked as that of `table`; UsageError if it cannot be."""
    files, root = Files.of(letters)
    if files.find(f"{root}/{_MARK}") is None:
        # An interrupted first run may have left only the directory.
        if any(facts.name != _DIRECTORY for facts in files.list(root)):
            raise UsageError(
                f"{letters} is not empty and holds no dead letters",
                hint="choose a new directory with --dead-letters",
            )
        return False
    found = json.loads(files.read(f"{root}/{_MARK}"))
    if found["table"] != table:
        raise UsageError(
            f"{letters} holds the dead letters of another table: {found['out']}",
            hint="choose another directory with --dead-letters",
        )
    return True


class LetterFile:
    """The dead letters of one split; the file exists once there is one."""

    def __init__(self, letters: str, path: str) -> None:
        """Write to `path` in the directory `letters`."""
        self._files, self._root = Files.of(letters)
        self.path = path
        self.rows = 0
        self._writer: TableWriter | None = None

    def add(self, columns: RecordColumns, topic: str, partition: int, reasons: list[str]) -> None:
        """Write records, and why the value of each cannot be decoded."""
        raw = raw_table(columns, topic, partition, _COLUMNS)
        arrays: list[Any] = [*raw.columns, pa.array(reasons, pa.string())]
        if self._writer is None:
            target = f"{self._root}/{self.path}"
            self._files.make_parent(target)
            self._writer = open_writer(TableFormat.PARQUET, self._files.create(target), _SCHEMA)
        self._writer.write(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
        self.rows += len(columns)

    def close(self) -> int:
        """Complete the file and return its size in bytes; 0 if there is none."""
        if self._writer is None:
            return 0
        self._writer.close()
        facts = self._files.find(f"{self._root}/{self.path}")
        return facts.size if facts is not None else 0
