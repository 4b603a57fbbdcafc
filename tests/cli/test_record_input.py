"""Parsing of lines into records."""

import os
import threading

import pytest

from kctl.cli.records.record_input import json_parser, line_chunks, text_parser
from kctl.client.producer import NewRecord
from kctl.errors import KctlError

NOW_MS = 1_769_846_400_000


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    ends = {"writing": writing}
    yield reading, ends
    os.close(reading)
    if "writing" in ends:
        os.close(ends.pop("writing"))


def lines_of(data, pipe):
    reading, ends = pipe
    writer = threading.Thread(target=lambda: (os.write(ends["writing"], data), close(ends)))
    writer.start()
    chunks = list(line_chunks(reading))
    writer.join()
    return [line for chunk in chunks for line in chunk]


def close(ends):
    os.close(ends.pop("writing"))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\n\r\nb\r\n", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"\xff\x00\n", [b"\xff\x00"]),
    ],
)
def test_only_the_ends_of_lines_are_removed(pipe, data, lines):
    assert lines_of(data, pipe) == lines


def test_a_line_is_yielded_before_the_next_one_is_written(pipe):
    reading, ends = pipe
    chunks = line_chunks(reading)

    for text in (b"first", b"second"):
        os.write(ends["writing"], text + b"\n")
        assert next(chunks) == [text]


def test_the_parts_of_a_line_are_joined(pipe):
    reading, ends = pipe
    chunks = line_chunks(reading)
    os.write(ends["writing"], b"one\ntw")

    assert next(chunks) == [b"one"]
    os.write(ends["writing"], b"o\n")
    assert next(chunks) == [b"two"]


def test_lines_are_values_with_the_key_and_headers_given():
    template = NewRecord(b"k", None, (("h", b"1"),), 3, 7)

    record = text_parser(template, None, None)(b"value")

    assert record == NewRecord(b"k", b"value", (("h", b"1"),), 3, 7)


def test_nulls_and_separators():
    parse = text_parser(NewRecord(), "::", "NULL")

    assert parse(b"k::v") == NewRecord(b"k", b"v")
    assert parse(b"k::NULL") == NewRecord(b"k", None)
    assert parse(b"NULL::a::b") == NewRecord(None, b"a::b")
    with pytest.raises(KctlError, match="separator"):
        parse(b"no separator")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{}", NewRecord()),
        (b'{"value": "v", "key": "k"}', NewRecord(b"k", b"v")),
        (b'{"value": {"a": [1, "\xc3\xa4"]}}', NewRecord(None, b'{"a":[1,"\xc3\xa4"]}')),
        (b'{"value": 3.5}', NewRecord(None, b"3.5")),
        (b'{"value": null, "key_base64": "/w=="}', NewRecord(b"\xff", None)),
        (b'{"headers": {"a": "1", "b": null}}', NewRecord(headers=(("a", b"1"), ("b", None)))),
        (b'{"headers": [["a", "1"], ["a", "2"]]}', NewRecord(headers=(("a", b"1"), ("a", b"2")))),
        (
            b'{"headers": [{"name": "a", "value_base64": "/w=="}]}',
            NewRecord(headers=(("a", b"\xff"),)),
        ),
        (b'{"partition": 2, "timestamp": 5}', NewRecord(partition=2, timestamp=5)),
        (b'{"timestamp": "2026-01-31T08:00:00Z"}', NewRecord(timestamp=NOW_MS)),
    ],
)
def test_json_records(line, expected):
    assert json_parser(NewRecord(), NOW_MS)(line) == expected


def test_absent_json_fields_come_from_the_options():
    template = NewRecord(b"k", None, (("h", b"1"),), 3, 7)

    assert json_parser(template, NOW_MS)(b'{"value": "v"}') == NewRecord(
        b"k", b"v", (("h", b"1"),), 3, 7
    )


@pytest.mark.parametrize(
    "line",
    [b"", b"nonsense", b"[]", b"3", b'{"partition": "x"}', b'{"value_base64": "?"}',
     b'{"headers": [3]}', b'{"timestamp": "soon"}', b"\xff"],
)  # fmt: skip
def test_malformed_lines_are_rejected(line):
    with pytest.raises(KctlError):
        json_parser(NewRecord(), NOW_MS)(line)
