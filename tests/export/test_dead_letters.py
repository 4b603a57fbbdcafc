"""A record whose value cannot be decoded is among the dead letters, once, or stops the export."""

import io
import json

import fastavro
import pyarrow.parquet
import pytest

from kctl.arrow_files.files import Files
from kctl.cli.app import run as kctl
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.options import ExportOptions, FieldFormat
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import rows_of, write_segment
from tests.support.schema_registry import running_registry

USER = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}
WIDE = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def registry():
    with running_registry() as running:
        running.add("users-value", 7, json.dumps(USER))
        yield running


def write(tmp_path, values, first=0, topic="users-0"):
    records = [
        Record(first + n, 1000 + n, b"k%d" % n, value, (("from", b"x"),))
        for n, value in enumerate(values)
    ]
    write_segment(RealDisk(), tmp_path / "logs" / topic, first, [build_batch(records)])


def avro(document, number=7, schema=USER):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), document)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def export(tmp_path, *words):
    return kctl(["export", str(tmp_path / "logs"), "--out", str(tmp_path / "table"), *words])


def letters(tmp_path, *columns):
    found = [
        row for path in sorted((tmp_path / "letters").glob("*.parquet"))
        for row in pyarrow.parquet.read_table(path).to_pylist()
    ]  # fmt: skip
    return [tuple(row[name] for name in columns) for row in found]


def offsets(tmp_path):
    return [row[2] for row in rows_of(tmp_path / "table")]


def test_dead_letters_have_the_record_and_the_reason(registry, tmp_path, capsys):
    registry.add("users-value", 8, json.dumps(WIDE))
    bad = [b"junk", avro({"id": 1}, 99), avro({"id": 1}, 7), avro({"id": 1}) + b"more"]
    write(tmp_path, [avro({"id": "a"}, 8, WIDE), *bad, None])
    words = ("-t", "users", "--value", "avro", "--registry", registry.url, "-o", "json")
    where = ("--dead-letters", str(tmp_path / "letters"))
    assert export(tmp_path, *words, *where) == 0
    assert offsets(tmp_path) == [0, 5]
    found = letters(tmp_path, "topic", "partition", "offset", "key", "value", "reason")
    reasons = [
        "not a value of the schema, or followed by other bytes",
        "unknown schema id 99",
        "schema id 7 does not fit the columns: Schema mismatch: int is not string",
        "schema id 7 does not fit the columns: Schema mismatch: int is not string",
    ]
    assert found == [
        ("users", 0, 1 + n, b"k%d" % (1 + n), value, reason)
        for n, (value, reason) in enumerate(zip(bad, reasons, strict=True))
    ]
    (first, *_) = letters(tmp_path, "timestamp", "headers")
    assert first[0].timestamp() == 1.001
    assert first[1] == [{"key": "from", "value": b"x"}]
    (document,) = json.loads(capsys.readouterr().out)
    assert (document["rows"], document["dead_letters"], document["undecodable"]) == (2, 4, 4)
    assert export(tmp_path, *words, *where) == 0
    assert len(letters(tmp_path, "offset")) == 4


def test_without_a_place_the_export_stops_and_names_the_record_and_the_way_out(
    registry, tmp_path, capsys
):
    write(tmp_path, [avro({"id": 1}), b"\0\0\0\0\11\2"])
    words = ("-t", "users", "--value", "avro", "--registry", registry.url)
    assert export(tmp_path, *words) == 1
    said = capsys.readouterr().err
    assert "users-0 offset 1: the value cannot be decoded: unknown schema id 9" in said
    assert "--dead-letters DIR" in said
    # The way out continues the same table.
    assert export(tmp_path, *words, "--dead-letters", str(tmp_path / "letters")) == 0
    assert (offsets(tmp_path), letters(tmp_path, "offset")) == ([0], [(1,)])


def test_values_are_kept_on_request(registry, tmp_path):
    write(tmp_path, [b"junk"])
    words = ("-t", "users", "--value", "avro", "--registry", registry.url)
    assert export(tmp_path, *words, "--on-undecodable", "keep") == 0
    assert rows_of(tmp_path / "table", ("topic", "partition", "offset", "value_raw")) == [
        ("users", 0, 0, b"junk")
    ]


def test_json_and_text_without_a_registry_have_dead_letters_as_well(tmp_path):
    write(tmp_path, [b'{"a":1}', b"[]", b"{", b'{"a":[]}', b"\xff"])
    assert export(tmp_path, "--value", "json", "--dead-letters", str(tmp_path / "letters")) == 0
    reasons = [reason for (reason,) in letters(tmp_path, "reason")]
    assert reasons[0] == "not a JSON object"
    assert reasons[1].startswith("not JSON: ")
    assert reasons[2] == "a JSON object whose fields do not have the types of the columns"
    assert offsets(tmp_path) == [0]
    words = ["export", str(tmp_path / "logs"), "--value", "string", "--out", str(tmp_path / "text")]
    assert kctl([*words, "--on-undecodable", "fail"]) == 1
    assert kctl([*words, "--dead-letters", str(tmp_path / "others")]) == 0
    assert len(rows_of(tmp_path / "text")) == 4


class KilledError(BaseException):
    """An exception that no `except` of kctl catches."""


def test_a_run_killed_at_any_moment_leaves_each_record_in_one_of_both(tmp_path, monkeypatch):
    for partition in range(2):
        write(tmp_path, [b'{"a":1}', b"[]", b'{"a":2}', b"{"], topic=f"users-{partition}")
    real_do, left, kills = Files._do, 0, 0

    def mortal(self, path, work):
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError
        return real_do(self, path, work)

    def run(number):
        options = ExportOptions(
            value_format=FieldFormat.JSON, value_schema='{"a": "int64"}',
            dead_letters=str(tmp_path / f"{kills}" / "letters"),
        )  # fmt: skip
        out = str(tmp_path / f"{kills}" / "table")
        request = ExportRequest([str(tmp_path / "logs")], out, options, run=f"run{number}")
        return export_logs(request, run_here)

    is_killed = True
    while is_killed:
        left = kills * 2
        monkeypatch.setattr(Files, "_do", mortal)
        try:
            run(1)
            is_killed = False
        except KilledError:
            pass
        finally:
            monkeypatch.setattr(Files, "_do", real_do)
        run(2)
        found = tmp_path / f"{kills}"
        assert [row[1:3] for row in rows_of(found / "table")] == [(0, 0), (0, 2), (1, 0), (1, 2)]
        assert sorted(letters(found, "partition", "offset")) == [(0, 1), (0, 3), (1, 1), (1, 3)]
        assert not (found / "letters" / "_kctl" / "tmp").exists()
        kills += 1
    assert kills > 20 / 2


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--dead-letters", "letters"), "Values are not decoded"),
        (("--value", "json", "--dead-letters", "table/letters"), "cannot be in one another"),
        (("--value", "json", "--dead-letters", "full"), "is not empty and holds no dead letters"),
        (("--value", "json", "--dead-letters", "file"), "is a file"),
        (("--value", "json", "--dead-letters", "other"), "dead letters of another table"),
        (
            ("--value", "json", "--dead-letters", "letters", "--on-undecodable", "keep"),
            "exclude each other",
        ),
    ],
)
def test_unusable_directories_are_usage_errors(tmp_path, capsys, monkeypatch, words, what):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, [b'{"a":1}'])
    (tmp_path / "full").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "full" / "x").write_text("")
    taken = ["--out", "first", "--value", "json", "--dead-letters", "other"]
    assert kctl(["export", "logs", *taken]) == 0
    assert export(tmp_path, *words) == 2
    assert what in capsys.readouterr().err
    assert not (tmp_path / "table").exists()
