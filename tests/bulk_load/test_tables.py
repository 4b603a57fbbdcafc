"""Tables of every format are the rows that were meant; what is no table is refused by name."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet
import pytest

from kctl.bulk_load.tables import ROWS, find_parts, read_rows
from kctl.errors import UsageError
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.options import ExportOptions, TableFormat

NOW_MS = 1_700_000_000_000


def rows_of(path):
    return [row for part in find_parts([str(path)]) for batch in read_rows(part, NOW_MS)
            for row in batch.to_pylist()]  # fmt: skip


@pytest.mark.parametrize("table_format", [it for it in TableFormat if not it.is_lake])
def test_exported_table_is_read_as_it_was(golden, tmp_path, table_format):
    def rows_as(wanted):
        out = tmp_path / wanted.value
        export_logs(ExportRequest([str(golden)], str(out), ExportOptions(wanted), ["v2-*", "tx*"]),
                    run_here)  # fmt: skip
        return sorted(rows_of(out), key=lambda it: (it["topic"], it["partition"], it["offset"]))

    found = rows_as(table_format)
    assert len(found) > 1000
    assert found == rows_as(TableFormat.PARQUET)
    assert any(row["headers"] for row in found)


@pytest.mark.parametrize("log", ["_delta_log/0.json", "metadata/version-hint.text"])
def test_directory_of_a_lake_is_refused(tmp_path, log):
    (tmp_path / log).parent.mkdir()
    (tmp_path / log).touch()
    (tmp_path / "perhaps-removed.parquet").touch()
    with pytest.raises(UsageError, match="only its log says"):
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
        (b"", None), (b"a", b"two\nlines"),
    ]  # fmt: skip


def test_json_lines_may_be_sparse(tmp_path):
    lines = [{"value": {"n": 1}}, {"key": "k", "headers": [{"name": "h", "value_base64": "/w=="}]}]
    (tmp_path / "t.ndjson").write_text("\n\n".join(map(json.dumps, lines)))
    first, second = rows_of(tmp_path / "t.ndjson")
    assert (first["key"], first["value"]) == (None, b'{"n":1}')
    assert second["headers"] == [{"key": "h", "value": b"\xff"}]


def test_undecodable_values_come_back_as_their_bytes(tmp_path):
    pa.parquet.write_table(
        pa.table({"value": ["a", None], "value_raw": pa.array([None, b"\xff"])}),
        tmp_path / "t.parquet",
    )
    assert [row["value"] for row in rows_of(tmp_path / "t.parquet")] == [b"a", b"\xff"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "a,b\n1,2\n", "t.csv: no column key"),
        ("t.ndjson", '{"key": "a"}\n{"key": \n', "t.ndjson: line 2"),
        ("t.ndjson", "[1]\n", "line 1: not an object"),
        ("t.ndjson", '{"value": "a", "headers": [1]}\n', "not a header"),
        ("t.parquet", "no parquet", "t.parquet: "),
        ("t.txt", "x", "Parquet, ORC, CSV or JSON"),
    ],
)
def test_what_is_no_table_is_refused_by_name(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        rows_of(tmp_path / name)


def test_hidden_files_are_no_part_of_a_table(tmp_path):
    for name in ("_kctl/x.csv", ".tmp/x.csv", "_SUCCESS", "topic=a/t.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("value\n1\n")
    assert [part.url for part in find_parts([str(tmp_path)])] == [str(tmp_path / "topic=a/t.csv")]


def test_every_column_of_rows_is_wanted():
    assert {"key", "value", "topic", "partition", "timestamp", "headers"} < set(ROWS.names)
