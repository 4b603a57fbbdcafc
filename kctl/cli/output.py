"""Output: the only module that writes data to stdout. Messages and progress go to stderr.

Data is a list of documents: plain dicts with stable snake_case keys. JSON, YAML and ndjson show
whole documents, table and csv selected columns, `name` the value of one key per line. An empty
result prints an empty list, a header without rows, or nothing.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import BinaryIO, TextIO

from kctl.cli.pipes import write_message
from kctl.cli.table_text import cell_text, header_and_body, table_lines, wrapped_text
from kctl.counts import is_whole_number
from kctl.errors import StorageError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.terminal_text import bytes_for_terminal, for_json, for_terminal

Document = Mapping[str, object]
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_COLUMNS_DEFAULT = 80
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


class OutputFormat(StrEnum):
    """The values of `-o`."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    YAML = "yaml"
    CSV = "csv"
    NAME = "name"


@dataclass(slots=True)
class Table:
    """Rows under one heading; a column's name is the key of its cells in each row."""

    columns: Sequence[str]
    rows: Sequence[Document]
    heading: str = ""


class Output:
    """The stdout and stderr of one command."""

    def __init__(
        self,
        output_format: OutputFormat = OutputFormat.TABLE,
        *,
        data: BinaryIO | None = None,
        messages: TextIO | None = None,
        color: bool | None = None,
        is_terminal: bool | None = None,
        width: int | None = None,
    ) -> None:
        """Print in `output_format`. `data` and `messages` take the place of stdout and stderr.

        `color` and `is_terminal` are found out unless given: to a terminal, unsafe characters are
        escaped. Tables wrap their cells to fit `width` columns: by default those of the terminal,
        or any number if the stream that they go to is not one.
        """
        self.format = output_format
        if is_terminal is None:
            is_terminal = data is None and sys.stdout.isatty()
        self._is_terminal = is_terminal
        self._data = data if data is not None else sys.stdout.buffer
        self._messages = messages if messages is not None else sys.stderr
        if color is None:
            color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._color = color
        if width is None and data is None and is_terminal:
            width = terminal_width()
        self.width = width
        self._plan_width = width
        if width is None and messages is None and sys.stderr.isatty():
            self._plan_width = terminal_width()

    def show(
        self,
        documents: Sequence[Document],
        columns: Sequence[str] = (),
        *,
        name: str,
        tables: Sequence[Table] | None = None,
    ) -> None:
        """Print `documents` in the chosen format.

        `name` is the key that names a document. Table and csv show `columns` of the documents, or
        `tables`, which all have the same columns, if their rows are not the documents.
        """
        if tables is None:
            tables = [Table(columns, documents)]
        if self.format is OutputFormat.JSON:
            self.write(_json(list(documents), indent=2) + "\n")
        elif self.format is OutputFormat.NDJSON:
            self.write("".join(_json(document) + "\n" for document in documents))
        elif self.format is OutputFormat.YAML:
            self.write(_yaml(list(documents)))
        elif self.format is OutputFormat.NAME:
            names = dict.fromkeys(cell_text(document[name]) for document in documents)
            self.write("".join(f"{text}\n" for text in names))
        elif self.format is OutputFormat.CSV:
            self.write(_csv(tables))
        else:
            self._show_tables(tables)

    def show_one(self, document: Document, tables: Sequence[Table], *, name: str) -> None:
        """Print a single document, which JSON and YAML show as an object instead of a list."""
        if self.format is OutputFormat.JSON:
            self.write(_json(document, indent=2) + "\n")
        elif self.format is OutputFormat.YAML:
            self.write(_yaml(document))
        else:
            self.show([document], name=name, tables=tables)

    def write(self, data: str | bytes) -> None:
        """Write `data` and flush; to a terminal, with unsafe characters escaped."""
        self.write_buffered(data)
        self.flush()

    def write_buffered(self, data: str | bytes | memoryview) -> None:
        """Write `data` to the buffer; a full buffer and `flush` pass it on."""
        if self._is_terminal:
            data = for_terminal(data) if isinstance(data, str) else bytes_for_terminal(data)
        self._write_unescaped(data)

    def write_styled(self, text: str) -> None:
        """Write kctl's own text, which may contain styles, and flush."""
        self._write_unescaped(text)
        self.flush()

    def clear_screen(self) -> None:
        """Clear the terminal; write nothing if stdout is not one."""
        if self._is_terminal:
            self._write_unescaped(_CLEAR_SCREEN)

    def _write_unescaped(self, data: str | bytes | memoryview) -> None:
        try:
            self._data.write(
                data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
            )
        except OSError as error:
            raise _not_written(error) from error

    def flush(self) -> None:
        """Pass the buffer to the operating system."""
        try:
            self._data.flush()
        except OSError as error:
            raise _not_written(error) from error

    def say(self, message: str) -> None:
        """Print `message` as a line on stderr; it is lost if stderr has no reader."""
        write_message(self._messages, f"{message}\n")

    def plan(self, table: Table) -> None:
        """Print on stderr what is about to be done."""
        self.say("\n".join(table_lines(table.columns, table.rows, self._plan_width)))

    def _show_tables(self, tables: Iterable[Table]) -> None:
        blocks = []
        for table in tables:
            header, body = header_and_body(table.columns, table.rows, self.width)
            if self._color:
                header = [f"{_BOLD}{line}{_PLAIN}" for line in header]
            # A name in it must not begin a line of its own.
            heading = cell_text(table.heading) if table.heading else ""
            above = wrapped_text(heading, self.width) if heading else []
            blocks.append("".join(f"{line}\n" for line in [*above, *header, *body]))
        self._write_unescaped("\n".join(blocks))
        self.flush()


def _not_written(error: OSError) -> Exception:
    """Return the error of a command whose output cannot be written; it is BrokenPipeError if only
    the reader is gone."""
    if isinstance(error, BrokenPipeError):
        return error
    return StorageError(
        f"Cannot write standard output: {error.strerror}",
        hint="what the command has changed stays changed; only its output is incomplete",
    )


def terminal_width(stream: TextIO | None = None) -> int:
    """Return the number of columns of the terminal of `stream`, by default that of stdout, or 80;
    $COLUMNS overrides it.

    As `shutil.get_terminal_size`, whose module loads every codec of archives.
    """
    given = os.environ.get("COLUMNS", "")
    if is_whole_number(given) and int(given):
        return int(given)
    try:
        terminal = stream or sys.__stdout__
        columns = os.get_terminal_size(terminal.fileno()).columns  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        columns = 0
    return columns or _COLUMNS_DEFAULT


class DocumentStream:
    """Prints documents one at a time; ndjson takes the place of tables."""

    def __init__(self, output: Output, columns: Sequence[str], name: str) -> None:
        self._output = output
        self._columns = columns
        self._name = name
        self._is_first = True

    def add(self, document: Document) -> None:
        """Write `document` to the buffer of the output."""
        kind = self._output.format
        if kind is OutputFormat.JSON:
            text = ("[\n" if self._is_first else ",\n") + _json(document)
        elif kind is OutputFormat.YAML:
            text = _yaml([document])
        elif kind is OutputFormat.CSV:
            text = _csv([Table(self._columns, [document])], with_header=self._is_first)
        elif kind is OutputFormat.NAME:
            text = f"{cell_text(document[self._name])}\n"
        else:
            text = _json(document) + "\n"
        self._is_first = False
        self._output.write_buffered(text)

    def close(self) -> None:
        """Complete the output: closes the list of JSON."""
        if self._output.format is OutputFormat.JSON:
            self._output.write("[]\n" if self._is_first else "\n]\n")


def _csv_cell(value: object) -> str:
    return "" if value is None else str(value) if isinstance(value, str) else cell_text(value)


def _json(value: object, indent: int | None = None) -> str:
    import json

    return for_json(json.dumps(value, ensure_ascii=False, indent=indent))


def _yaml(value: object) -> str:
    import yaml

    return str(yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True))


def _plain(value: object) -> object:
    """Convert nested mappings and sequences to dicts and lists, the types that PyYAML accepts."""
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
