"""Output of documents in all formats."""

import io
import shutil

import pytest

from kctl.cli.output import DocumentStream, Output, OutputFormat, Table, terminal_width
from kctl.cli.table_text import table_lines, text_width

DOCUMENTS = [
    {"name": "a", "size": 10, "flags": [1, 2], "open": True, "note": None},
    {"name": "bb", "size": 9, "flags": [], "open": False, "note": "x,y"},
]
COLUMNS = ["name", "size", "flags", "open", "note"]


def printed(output_format, documents=DOCUMENTS, **more):
    data = io.BytesIO()
    output = Output(OutputFormat(output_format), data=data, messages=io.StringIO(), color=False)
    output.show(documents, COLUMNS, name="name", **more)
    return data.getvalue().decode()


def test_a_table_has_aligned_columns_with_numbers_to_the_right():
    assert printed("table") == (
        "NAME  SIZE  FLAGS  OPEN   NOTE\n"
        "a       10  1,2    true   -\n"
        "bb       9  -      false  x,y\n"
    )


def test_json_and_yaml_hold_whole_documents():
    import json

    import yaml

    assert json.loads(printed("json")) == DOCUMENTS
    assert yaml.safe_load(printed("yaml")) == DOCUMENTS


def test_ndjson_is_one_document_a_line():
    assert printed("ndjson").splitlines()[0] == (
        '{"name": "a", "size": 10, "flags": [1, 2], "open": true, "note": null}'
    )


def test_csv_has_a_header_and_quotes():
    assert printed("csv").splitlines() == [
        "name,size,flags,open,note",
        'a,10,"1,2",true,',
        'bb,9,-,false,"x,y"',
    ]


def test_names_are_one_a_line():
    assert printed("name") == "a\nbb\n"


@pytest.mark.parametrize(
    ("output_format", "expected"),
    [
        ("table", "NAME  SIZE  FLAGS  OPEN  NOTE\n"),
        ("json", "[]\n"),
        ("ndjson", ""),
        ("yaml", "[]\n"),
        ("csv", "name,size,flags,open,note\n"),
        ("name", ""),
    ],
)
def test_an_empty_result_is_a_result(output_format, expected):
    assert printed(output_format, []) == expected


def test_several_tables_are_shown_under_headings_but_as_one_csv():
    tables = [Table(["name"], [{"name": "a"}], "first"), Table(["name"], [{"name": "b"}], "second")]

    assert printed("table", tables=tables) == "first\nNAME\na\n\nsecond\nNAME\nb\n"
    assert printed("csv", tables=tables) == "name\na\nb\n"


def test_control_characters_in_a_cell_cannot_move_the_cursor():
    text = printed("table", [{**DOCUMENTS[0], "name": "evil\x1b[2J\n"}])

    assert "\x1b" not in text
    assert r"evil\x1b[2J\n" in text


def test_color_is_for_terminals_and_only_for_headings():
    data = io.BytesIO()
    Output(OutputFormat.TABLE, data=data, color=True).show(DOCUMENTS, ["name"], name="name")

    assert data.getvalue().decode() == "\x1b[1mNAME\x1b[0m\na\nbb\n"


@pytest.mark.parametrize("output_format", ["json", "yaml"])
def test_a_stream_ends_as_a_whole_document(output_format):
    import yaml

    data = io.BytesIO()
    output = Output(OutputFormat(output_format), data=data, color=False)
    stream = DocumentStream(output, COLUMNS, "name")
    for document in DOCUMENTS:
        stream.add(document)
    stream.close()
    output.flush()

    assert yaml.safe_load(data.getvalue()) == DOCUMENTS


def test_a_table_wraps_its_widest_cells_to_fit_the_terminal():
    replicas = ",".join(f"{partition}:{partition % 3 + 1}" for partition in range(200))
    rows = [
        {"setting": "leader.replication.throttled.replicas", "value": replicas, "size": 12},
        {"setting": "rate", "value": "a sentence about what a broker would do with it", "size": 3},
        *[{"setting": f"rate of broker {number}", "value": "1", "size": 1} for number in range(9)],
    ]
    columns = ("setting", "value", "size")

    for width in (80, 100, 200):
        lines = table_lines(columns, rows, width)

        assert max(map(len, lines)) <= width
        start, end = lines[0].index("VALUE"), lines[0].index("SIZE")
        values = [line[start:end].strip() for line in lines]
        last = next(i for i, value in enumerate(values) if value.startswith("a sentence"))
        after = values.index("1")
        # Nothing is lost, and numbers and pairs are whole.
        assert "".join(values[1:last]) == replicas
        assert " ".join(values[last:after]) == rows[1]["value"]


def test_a_table_for_a_pipe_is_not_wrapped():
    rows = [{"value": "x," * 500}]

    assert len(table_lines(("value",), rows)) == 2
    assert printed("table", [{"name": "x" * 1000}]).count("\n") == 2


def test_a_word_wider_than_its_column_is_divided():
    lines = table_lines(("path", "n"), [{"path": "x" * 50, "n": 1}], 24)

    assert [len(line) for line in lines[1:]] == [24, 21, 8]
    assert "".join(line.split()[0] for line in lines[1:]) == "x" * 50


def test_a_table_that_fits_is_left_alone():
    table = (("name", "value"), [{"name": "a b", "value": "c, d"}])

    assert table_lines(*table, 80) == table_lines(*table)


def test_headers_are_wrapped_before_numbers():
    columns = ("topic", "committed_offset", "log_end_offset", "member")
    row = {"topic": "t" * 20, "committed_offset": 12345678, "log_end_offset": 5, "member": "m" * 20}

    short = {**row, "topic": "t", "member": None}

    assert table_lines(columns, [row, short], 36) == [
        "TOPIC   COMMITTED-    LOG-  MEMBER",
        "            OFFSET    END-",
        "                    OFFSET",
        "tttttt    12345678       5  mmmmmm",
        "tttttt                      mmmmmm",
        "tttttt                      mmmmmm",
        "tt                          mm",
        "t         12345678       5  -",
    ]


def test_a_row_of_too_many_columns_is_a_block_of_lines():
    rows = [{"topic": "a/b", "partition": 1}, {"topic": "x" * 14, "partition": 2}]

    assert table_lines(("topic", "partition"), rows, 16) == [
        "TOPIC      a/b",
        "PARTITION  1",
        "",
        "TOPIC      xxxxx",
        "           xxxxx",
        "           xxxx",
        "PARTITION  2",
    ]


def test_paths_are_wrapped_after_slashes():
    path = "/var/lib/kafka/data-1/orders-0/00000000000000000000.log"

    lines = table_lines(("path",), [{"path": path}], 26)

    assert lines[1:] == ["/var/lib/kafka/data-1/", "orders-0/", "00000000000000000000.log"]


def test_characters_of_two_columns_count_twice():
    rows = [{"name": "注文" * 10, "n": 1}, {"name": "o" * 20, "n": 22}]

    for width in (20, 30, 200):
        lines = table_lines(("name", "n"), rows, width)
        assert max(map(text_width, lines)) <= width
        assert len({text_width(line) for line in lines if line.endswith(("1", "22"))}) == 1


def test_headings_fit_the_terminal():
    data = io.BytesIO()
    table = Table(("n",), [{"n": 1}], "retention.ms=604800000, " * 10)

    Output(data=data, color=False, width=40).show([], name="n", tables=[table])

    assert max(map(len, data.getvalue().decode().splitlines())) <= 40


def test_only_tables_are_wrapped():
    for kind in ("csv", "json", "ndjson", "name"):
        data = io.BytesIO()
        output = Output(OutputFormat(kind), data=data, color=False, width=20)
        output.show([{"name": "word " * 20}], ["name"], name="name")

        assert "word " * 20 in data.getvalue().decode(), kind


@pytest.mark.parametrize(
    ("columns", "expected"), [("120", 120), ("0", 80), ("", 80), ("-5", 80), ("wide", 80)]
)
def test_the_width_is_that_of_columns_or_80_without_a_terminal(columns, expected, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.__stdout__", None)
    assert terminal_width() == expected
    assert terminal_width() == shutil.get_terminal_size().columns
