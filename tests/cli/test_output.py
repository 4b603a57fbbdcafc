"""How documents are printed."""

import io

import pytest

from kctl.cli.output import DocumentStream, Output, OutputFormat, Table

DOCUMENTS = [
    {"name": "a", "size": 10, "flags": [1, 2], "open": True, "note": None},
    {"name": "bb", "size": 9, "flags": [], "open": False, "note": "x,y"},
]
COLUMNS = ["name", "size", "flags", "open", "note"]


def printed(output_format, documents=DOCUMENTS, **more):
    data = io.BytesIO()
    output = Output(OutputFormat(output_format), data=data, words=io.StringIO(), color=False)
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
