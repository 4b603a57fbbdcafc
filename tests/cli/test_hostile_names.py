"""Names of other parties, with line breaks, escapes and marks of direction, in all that is printed.

Every table that a command is recorded with is shown with hostile text in each of its cells and
headings: no name begins a line of its own, moves the cursor, or turns the direction of writing.
"""

import csv
import io
import json

import pytest
import yaml

from kctl.cli.bars import Bar, bar_lines, shortened
from kctl.cli.output import Output, OutputFormat, Table
from kctl.metrics.family import Sample, gauge
from kctl.metrics.parse import parse_metrics
from kctl.metrics.text import render
from kctl.runtime.terminal_text import for_log_line
from tests.cli.table_snapshots import RECORDED
from tests.cli.top_snapshots import HOSTILE

# No tab: it is the only such character that a terminal may get.
NAMES = {
    "escapes": HOSTILE,
    "line breaks": "a\nINJECTED\r\nINJECTED\x0b\x0c\x85\u2028INJECTED\u2029z",
    "controls": "".join(map(chr, [*range(9), *range(10, 32), *range(127, 160)])),
    "invisible": "a\u200b\u200e\u202e\u2066\ufeff\u061cb",
    "bytes": "a\udc80\udcffb",
    "quotes": "a\"b'c\\d,e;f=g{h}",
}
TABLES = sorted(RECORDED.glob("*.json"))


def hostile(value, name):
    """Return a recorded value with `name` in place of each of its texts."""
    if isinstance(value, str):
        return name
    if isinstance(value, list):
        return [hostile(it, name) for it in value]
    if isinstance(value, dict):
        return {f"{name}{key}": hostile(it, name) for key, it in value.items()}
    return value


def tables_with(path, name):
    return [
        Table(
            it["columns"],
            [{key: hostile(value, name) for key, value in row.items()} for row in it["rows"]],
            f"group {name}:" if it["heading"] else "",
        )
        for it in json.loads(path.read_text())
    ]


def shown(tables, output_format, *, is_terminal, width=80):
    data = io.BytesIO()
    output = Output(
        output_format, data=data, color=False, is_terminal=is_terminal, width=width,
        messages=io.StringIO(),
    )  # fmt: skip
    rows = [row for table in tables for row in table.rows]
    output.show(rows, name=tables[0].columns[0], tables=tables)
    return data.getvalue().decode("utf-8", "surrogateescape")


def test_there_are_tables_to_look_at():
    assert len(TABLES) > 40


@pytest.mark.parametrize("kind", NAMES)
def test_no_name_leaves_its_cell_or_heading(kind):
    for path in TABLES:
        tables = tables_with(path, NAMES[kind])
        plain = tables_with(path, "x" * 9)
        for is_terminal in (True, False):
            text = shown(tables, OutputFormat.TABLE, is_terminal=is_terminal, width=100_000)
            lines = text.split("\n")
            assert all(line.isprintable() for line in lines), path.name
            assert not any(line.startswith("INJECTED") for line in lines), path.name
            expected = shown(plain, OutputFormat.TABLE, is_terminal=is_terminal, width=100_000)
            assert len(lines) == expected.count("\n") + 1, path.name


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("output_format", ["json", "ndjson", "yaml", "csv"])
def test_documents_are_whole_and_harmless_on_a_terminal(kind, output_format):
    name = NAMES[kind]
    tables = [Table(["topic", "lag"], [{"topic": name, "lag": 1}])]
    on_terminal = shown(tables, OutputFormat(output_format), is_terminal=True)
    allowed = {"\n", "\r"} if output_format == "csv" else {"\n"}
    assert all(c.isprintable() or c in allowed for c in on_terminal)
    text = shown(tables, OutputFormat(output_format), is_terminal=False)
    if output_format == "csv":
        [_, row] = csv.reader(io.StringIO(text, newline=""))
        assert row == [name, "1"]
    elif kind != "bytes":
        found = {"json": json.loads, "ndjson": json.loads, "yaml": yaml.safe_load}
        document = found[output_format](text)
        assert (document if isinstance(document, dict) else document[0])["topic"] == name


@pytest.mark.parametrize("kind", NAMES)
def test_bars_log_lines_and_messages_are_one_harmless_line(kind):
    name = NAMES[kind]
    [line] = bar_lines([Bar(name, 1, name)], 200)
    assert line.isprintable()
    assert for_log_line(name).isprintable()
    assert shortened(for_log_line(name), 10).isprintable()
    messages = io.StringIO()
    Output(messages=messages).say(f"group {name}")
    assert all(c.isprintable() or c == "\n" for c in messages.getvalue())


@pytest.mark.parametrize("kind", NAMES)
def test_labels_are_one_line_and_different_names_stay_apart(kind):
    family = gauge("lag", "Lag.", "group")
    names = [NAMES[kind], NAMES[kind] + "\n", for_log_line(NAMES[kind])]
    work = render(iter([Sample(family, (it,), 1) for it in dict.fromkeys(names)]))
    try:
        while True:
            next(work)
    except StopIteration as done:
        text = b"".join(done.value).decode()
    assert all(line.isprintable() for line in text.split("\n"))
    samples = parse_metrics(text).of("lag")
    assert len({it.labels["group"] for it in samples}) == len(samples) == len(set(names))
