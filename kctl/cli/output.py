"""Output: the only place that writes data to stdout; words and progress go to stderr.

Data is a list of documents (plain dicts with stable snake_case keys). JSON, YAML and ndjson show
documents whole; table and csv show chosen columns of them; `name` shows one key a line. An empty
result is a result: it prints an empty list, a lone header, or nothing.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, TextIO

Document = Mapping[str, object]
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class OutputFormat(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    YAML = "yaml"
    CSV = "csv"
    NAME = "name"


@dataclass(slots=True)
class Table:
    """Rows to show under one heading; cells are looked up in each row by the column's name."""

    columns: Sequence[str]
    rows: Sequence[Document]
    heading: str = ""


class Output:
    """One command's stdout and stderr."""

    def __init__(
        self,
        output_format: OutputFormat = OutputFormat.TABLE,
        *,
        data: BinaryIO | None = None,
        words: TextIO | None = None,
        color: bool | None = None,
    ) -> None:
        self.format = output_format
        self._data = data if data is not None else sys.stdout.buffer
        self._words = words if words is not None else sys.stderr
        if color is None:
            color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._color = color

    def show(
        self,
        documents: Sequence[Document],
        columns: Sequence[str] = (),
        *,
        name: str,
        tables: Sequence[Table] | None = None,
    ) -> None:
        """Print `documents`; `tables` (all with the same columns) where their rows differ from
        the documents, `name` is the key that names a document."""
        if tables is None:
            tables = [Table(columns, documents)]
        if self.format is OutputFormat.JSON:
            self.write(_json(list(documents), indent=2) + "\n")
        elif self.format is OutputFormat.NDJSON:
            self.write("".join(_json(document) + "\n" for document in documents))
        elif self.format is OutputFormat.YAML:
            self.write(_yaml(list(documents)))
        elif self.format is OutputFormat.NAME:
            names = dict.fromkeys(_cell(document[name]) for document in documents)
            self.write("".join(f"{text}\n" for text in names))
        elif self.format is OutputFormat.CSV:
            self.write(_csv(tables))
        else:
            self._show_tables(tables)

    def show_one(self, document: Document, tables: Sequence[Table], *, name: str) -> None:
        """Print a single thing: an object, not a list, in JSON and YAML."""
        if self.format is OutputFormat.JSON:
            self.write(_json(document, indent=2) + "\n")
        elif self.format is OutputFormat.YAML:
            self.write(_yaml(document))
        else:
            self.show([document], name=name, tables=tables)

    def write(self, data: str | bytes) -> None:
        """Data as it is, at once."""
        self.write_buffered(data)
        self.flush()

    def write_buffered(self, data: str | bytes | memoryview) -> None:
        """Data as it is, when the buffer is full or at `flush`: for streams of records."""
        self._data.write(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._data.flush()

    def say(self, words: str) -> None:
        """A line for the person, never for the next program."""
        print(words, file=self._words, flush=True)

    def plan(self, table: Table) -> None:
        """What is about to happen, shown before the question."""
        self.say("\n".join(table_lines(table)))

    def _show_tables(self, tables: Iterable[Table]) -> None:
        blocks = []
        for table in tables:
            lines = table_lines(table)
            if self._color and lines:
                lines[0] = f"{_BOLD}{lines[0]}{_PLAIN}"
            if table.heading:
                lines.insert(0, table.heading)
            blocks.append("".join(f"{line}\n" for line in lines))
        self.write("\n".join(blocks))


class DocumentStream:
    """Documents one at a time, in any format but a table, for what has no end."""

    def __init__(self, output: Output, columns: Sequence[str], name: str) -> None:
        self._output = output
        self._columns = columns
        self._name = name
        self._is_first = True

    def add(self, document: Document) -> None:
        """Print one; it leaves with the next flush."""
        kind = self._output.format
        if kind is OutputFormat.JSON:
            text = ("[\n" if self._is_first else ",\n") + _json(document)
        elif kind is OutputFormat.YAML:
            text = _yaml([document])
        elif kind is OutputFormat.CSV:
            text = _csv([Table(self._columns, [document])], with_header=self._is_first)
        elif kind is OutputFormat.NAME:
            text = f"{_cell(document[self._name])}\n"
        else:
            text = _json(document) + "\n"
        self._is_first = False
        self._output.write_buffered(text)

    def close(self) -> None:
        """End a JSON list."""
        if self._output.format is OutputFormat.JSON:
            self._output.write("[]\n" if self._is_first else "\n]\n")


def table_lines(table: Table) -> list[str]:
    """Heading row and rows, aligned."""
    if not table.columns:
        return []
    header = [column.upper().replace("_", "-") for column in table.columns]
    raw = [[row.get(column) for column in table.columns] for row in table.rows]
    cells = [[_cell(value) for value in row] for row in raw]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    numeric = [
        any(_is_number(row[i]) for row in raw)
        and all(_is_number(row[i]) or row[i] is None for row in raw)
        for i in range(len(header))
    ]
    return [_line(row, widths, numeric) for row in [header, *cells]]


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "  ".join(padded).rstrip()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    """One value as a person reads it: lists with commas, nothing as a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_cell(item)}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ",".join(_cell(item) for item in value) or "-"
    # A control character in a name must not move the cursor of who reads the table.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


def _csv_cell(value: object) -> str:
    return "" if value is None else str(value) if isinstance(value, str) else _cell(value)


def _json(value: object, indent: int | None = None) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=indent)


def _yaml(value: object) -> str:
    import yaml

    return str(yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True))


def _plain(value: object) -> object:
    """Only dicts and lists below: what a YAML writer knows."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _csv(tables: Sequence[Table], *, with_header: bool = True) -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if tables and with_header:
        writer.writerow(tables[0].columns)
    for table in tables:
        for row in table.rows:
            writer.writerow([_csv_cell(row.get(column)) for column in table.columns])
    return text.getvalue()
