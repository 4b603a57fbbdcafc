"""Tables of every format are read as rows; invalid tables are rejected by name."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet
import pytest

from kctl.errors import UsageError
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.options import ExportOptions, TableFormat
from kctl.table_import.tables import ROWS, find_parts, read_places, read_rows, unknown_columns

NOW_MS = 1_700_000_000_000


def rows_of(path, null_text=None):
    parts = find_parts([str(path)], null_text=null_text)
    return [row for part in parts for batch in read_rows(part, NOW_MS) for row in batch.to_pylist()]


@pytest.mark.parametrize("table_format", [it for it in TableFormat if not it.is_lake])
def test_exported_table_is_read_as_it_was(golden, tmp_path, table_format):
    def rows_as(wanted):
        out = tmp_path / wanted.value
        export_logs(ExportRequest([str(golden)], str(out), ExportOptions(wanted), ["v2-*", "tx*"]),
                    run_here)  # fmt: skip
        return sorted(
            rows_of(out, null_text=""), key=lambda it: (it["topic"], it["partition"], it["offset"])
        )

    found = rows_as(table_format)
    assert len(found) > 1000
    assert found == rows_as(TableFormat.PARQUET)
    assert any(row["headers"] for row in found)


@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/version-hint.text"])
def test_directory_of_a_lake_is_rejected(tmp_path, log):
    (tmp_path / log).parent.mkdir()
    (tmp_path / log).touch()
    (tmp_path / "perhaps-removed.parquet").touch()
    with pytest.raises(UsageError, match="only its log shows"):
        find_parts([str(tmp_path)])


def test_text_numbers_and_structs_become_bytes(tmp_path):
    pa.parquet.write_table(
        pa.table({"key": [1, None], "value": [{"a": 1, "b": [True]}, None], "more": ["x", "y"],
                  "timestamp": [datetime(2026, 1, 2, tzinfo=UTC), None]}),
        tmp_path / "t.parquet",
    )  # fmt: skip
    first, second = rows_of(tmp_path / "t.parquet")
    assert (first["key"], first["value"]) == (b"1", b'{"a":1,"b":[true]}')
    assert first["timestamp"] == 1_767_312_000_000
    assert (second["key"], second["value"], second["timestamp"]) == (None, None, NOW_MS)


def test_empty_is_not_null_in_csv(tmp_path):
    (tmp_path / "t.csv").write_text('key,value\n"",\na,"two\nlines"\n')
    assert [(row["key"], row["value"]) for row in rows_of(tmp_path / "t.csv")] == [
        (b"", b""), (b"a", b"two\nlines"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("null_text", "values"),
    [
        (None, [b"", b"", b"NULL", b"\xff"]),
        ("", [None, b"", b"NULL", b"\xff"]),
        ("NULL", [b"", b"", None, b"\xff"]),
    ],
)
def test_a_null_value_in_csv_is_what_was_asked_for(tmp_path, null_text, values):
    text = 'key,value,value_base64,partition\n,,,\na,"",,1\nb,NULL,,\nc,,/w==,\n'
    (tmp_path / "t.csv").write_text(text)
    found = rows_of(tmp_path / "t.csv", null_text)
    assert [row["value"] for row in found] == values
    # An empty key is no key, and an empty partition is none.
    assert [row["key"] for row in found] == [None, b"a", b"b", b"c"]
    assert [row["partition"] for row in found] == [None, 1, None, None]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "orc", "ndjson"])
def test_columns_that_are_not_imported_are_named(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    table = pa.table({"key": ["k"], "vaule": ["v"], "timestampType": [0], "total": [1]})
    if suffix == "csv":
        pa.csv.write_csv(table, path)
    elif suffix == "parquet":
        pa.parquet.write_table(table, path)
    elif suffix == "orc":
        pa.orc.write_table(table, path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    assert unknown_columns(find_parts([str(path)])) == ["vaule", "total"]


def test_json_lines_may_be_sparse(tmp_path):
    lines = [{"value": {"n": 1}}, {"key": "k", "headers": [{"name": "h", "value_base64": "/w=="}]}]
    (tmp_path / "t.ndjson").write_text("\n\n".join(map(json.dumps, lines)))
    first, second = rows_of(tmp_path / "t.ndjson")
    assert (first["key"], first["value"]) == (None, b'{"n":1}')
    assert second["headers"] == [{"key": "h", "value": b"\xff"}]


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("chunk_bytes", [10, 1 << 20])
def test_a_row_without_the_columns_of_others_is_one(tmp_path, monkeypatch, chunk_bytes, end):
    """The last line was left out if nothing followed it."""
    monkeypatch.setattr("kctl.table_import.tables.CHUNK_BYTES", chunk_bytes)
    lines = ['{"id":4}', '{"id":4}', '{"key":"a","value":"b","timestamp":7}', '{"id":5}']
    (tmp_path / "t.ndjson").write_text("\n".join(lines) + end)
    found = rows_of(tmp_path / "t.ndjson")
    none = (None, None, NOW_MS)
    assert [(row["key"], row["value"], row["timestamp"]) for row in found] == [
        none, none, (b"a", b"b", 7), none,
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", ["csv", "parquet", "orc", "ndjson"])
def test_a_file_of_other_columns_is_rejected(tmp_path, suffix):
    """An ORC file and the last line of JSON lines had no rows."""
    path, table = tmp_path / f"t.{suffix}", pa.table({"id": [1, 2]})
    if suffix == "ndjson":
        path.write_text('{"id":1}\n{"id":2}')
    else:
        module = getattr(pa, suffix)
        (module.write_csv if suffix == "csv" else module.write_table)(table, path)
    (part,) = find_parts([str(path)])
    assert sum(batch.num_rows for batch in read_places(part)) == 2
    with pytest.raises(UsageError, match="neither a key nor a value column"):
        rows_of(path)


def test_undecodable_values_come_back_as_their_bytes(tmp_path):
    pa.parquet.write_table(
        pa.table({"value": ["a", None], "value_raw": pa.array([None, b"\xff"])}),
        tmp_path / "t.parquet",
    )
    assert [row["value"] for row in rows_of(tmp_path / "t.parquet")] == [b"a", b"\xff"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "a,b\n1,2\n", "t.csv: neither a key nor a value column"),
        ("t.ndjson", '{"key": "a"}\n{"key": \n', "t.ndjson: line 2"),
        ("t.ndjson", "[1]\n", "line 1: not an object"),
        ("t.ndjson", '{"value": "a", "headers": [1]}\n', "not a header"),
        ("t.ndjson", '{"value": "a", "headers": 5}\n', "not a list of headers: 5"),
        ("t.ndjson", '{"value": "a", "headers": {"a": "b"}}\n', "not a list of headers"),
        ("t.ndjson", '{"value": "a", "headers": [{"name": 5}]}\n', "t.ndjson: "),
        (
            "t.ndjson",
            f'{{"value": "a", "timestamp": {10**23}}}\n',
            "timestamp has a number of more",
        ),
        ("t.ndjson", f'{{"value": {"[" * 10**5}{"]" * 10**5}}}\n', "line 1: nested too deeply"),
        ("t.ndjson", '{"id": 1}', "neither a key nor a value column"),
        ("t.parquet", "no parquet", "t.parquet: "),
        ("t.txt", "x", "unknown table format"),
    ],
)
def test_invalid_table_is_rejected_by_name(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        rows_of(tmp_path / name)


def test_parquet_columns_of_other_types_are_read_or_rejected(tmp_path):
    headers = pa.array(['[{"name":"h","value":"v"}]'], pa.large_string())
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"value": ["a"], "headers": headers}), path)
    assert rows_of(path)[0]["headers"] == [{"key": "h", "value": b"v"}]
    for wrong in ({"value_base64": [5]}, {"value": ["a"], "headers": [5]}):
        pa.parquet.write_table(pa.table(wrong), path)
        with pytest.raises(UsageError, match=r"t\.parquet: "):
            rows_of(path)


def test_hidden_files_are_not_part_of_a_table(tmp_path):
    for name in ("_kctl/x.csv", ".tmp/x.csv", "_SUCCESS", "topic=a/t.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("value\n1\n")
    assert [part.url for part in find_parts([str(tmp_path)])] == [str(tmp_path / "topic=a/t.csv")]


def test_every_column_of_rows_is_wanted():
    assert {"key", "value", "topic", "partition", "timestamp", "headers"} < set(ROWS.names)
