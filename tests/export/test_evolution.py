"""A table gains the columns of newer schemas; what it cannot take is a dead letter."""

import json

import fastavro
import pyarrow
import pyarrow.parquet
import pytest

from kctl.arrow_files.files import Files
from kctl.errors import UnreachableError
from kctl.export import lake
from kctl.export.avro import with_references
from kctl.export.avro_evolution import merged_avro
from kctl.export.evolution import RegisteredSchemas, extends
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.follow import Follower
from kctl.export.follow_sources import DirectorySource
from kctl.export.options import ExportOptions, FieldFormat, TableFormat
from kctl.export.protobuf import protobuf_schema
from kctl.runtime.real import make_runtime
from kctl.runtime.real.schemas import compile_proto
from kctl.runtime.trace import NullTrace
from tests.export.test_dead_letters import KilledError, avro, letters, write
from tests.export.test_lake import read


def record(*fields, name="User"):
    pairs = [{"name": name, "type": kind} | more for name, kind, more in fields]
    return {"type": "record", "name": name, "fields": pairs}


HOME = record(("city", "string", {}), name="Home")
FIRST = record(("id", "int", {}), ("home", HOME, {}), ("old", "string", {}))
# Adds a field to the inner record, a column, and drops one.
LARGE = record(("city", "string", {}), ("code", "int", {}), name="Home")
SECOND = record(("id", "int", {}), ("home", LARGE, {}), ("mail", ["null", "string"], {}))
WRONG = record(("id", "string", {}), ("home", LARGE, {}), ("more", "long", {}))
VALUES = {
    7: (FIRST, {"id": 1, "home": {"city": "a"}, "old": "x"}),
    8: (SECOND, {"id": 2, "home": {"city": "b", "code": 5}, "mail": "m"}),
    9: (WRONG, {"id": "3", "home": {"city": "c", "code": 6}, "more": 1}),
}
ROWS = [
    {"id": 1, "home": {"city": "a", "code": None}, "old": "x", "mail": None},
    {"id": 2, "home": {"city": "b", "code": 5}, "old": None, "mail": "m"},
]


def value(number):
    schema, document = VALUES[number]
    return avro(document, number, schema)


class Registry:
    """Versions of one subject, as the registry's reader returns them."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)
        self.is_up = True

    def __call__(self):
        if not self.is_up:
            raise UnreachableError("the registry is down")
        texts = [(number, json.dumps(VALUES[number][0])) for number in self.numbers]
        return RegisteredSchemas(texts[-1][1], tuple(texts))

    def request(self, place, run, **options):
        found = self()
        newest, writers = found.newest, found.writers
        table = place / "table" / "_kctl" / "table.json"
        if table.exists():
            newest = json.loads(table.read_text())["value_schema"]
        chosen = ExportOptions(
            value_format=FieldFormat.AVRO, value_schema=newest, value_writers=writers,
            dead_letters=str(place / "letters"), **options,
        )  # fmt: skip
        out = str(place / "table")
        return ExportRequest([str(place / "logs")], out, chosen, run=run, schemas=self)


def values(place):
    """The values of all files, read with the columns of the newest."""
    tables = [
        pyarrow.parquet.read_table(path, columns=["offset", "value"])
        for path in sorted((place / "table").glob("*.parquet"))
    ]
    widest = max(tables, key=lambda it: len(str(it.schema))).schema
    rows = [row for it in tables for row in it.cast(widest).to_pylist()]
    return [row["value"] for row in sorted(rows, key=lambda it: it["offset"])]


def test_a_followed_table_gains_columns_and_incompatible_values_are_dead_letters(tmp_path):
    runtime = make_runtime(NullTrace())
    registry = Registry(7)
    said = []
    write(tmp_path, [value(7)])
    follower = Follower(
        runtime, DirectorySource(), registry.request(tmp_path, "run1"), every_ms=60_000,
        compact_bytes=1_000_000, on_problem=said.append,
    )  # fmt: skip

    def round_of(first, *numbers):
        write(tmp_path, [value(number) for number in numbers], first)
        scheduler = runtime.scheduler
        scheduler.run_until(scheduler.spawn(follower.round()))

    round_of(0, 7)
    registry.numbers.append(8)
    round_of(1, 8)
    assert values(tmp_path) == ROWS
    # Not exported by the schemas of before.
    registry.numbers.append(9)
    registry.is_up = False
    round_of(2, 9, 7)
    assert values(tmp_path) == ROWS
    assert said == ["cannot look for new records: the registry is down"]
    registry.is_up = True
    round_of(4, 9)
    found = [row | {"more": None} for row in [*ROWS, ROWS[0]]]
    assert values(tmp_path) == found
    reason = "schema id 9 does not fit the columns: Schema mismatch: string is not int"
    assert letters(tmp_path, "offset", "reason") == [(2, reason), (4, reason)]
    small = [it for rows in follower._compactor._small.values() for it in rows]
    assert len(small) == 2
    merged = follower._compactor._merged([it.row for it in small], "merge")
    assert merged.rows == 2
    file = tmp_path / "table" / merged.files[0].tmp_path
    assert pyarrow.parquet.read_table(file)["value"].to_pylist() == ROWS
    runtime.scheduler.close()


def exported_twice(place, registry, run, **options):
    """Export records of version 7, and after a new version those of 8 and 9."""
    registry.numbers = [7]
    write(place, [value(7)])
    export_logs(registry.request(place, f"{run}a", **options), run_here)
    registry.numbers = [7, 8, 9]
    write(place, [value(8), value(9)], 1)
    export_logs(registry.request(place, f"{run}b", **options), run_here)


def test_a_run_killed_at_any_moment_leaves_a_table_with_the_columns(tmp_path, monkeypatch):
    real_do, kills, left, is_killed = Files._do, 0, 0, True

    def mortal(self, path, work):
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError
        return real_do(self, path, work)

    while is_killed:
        place, left = tmp_path / str(kills), kills * 2
        registry = Registry(7)
        write(place, [value(7)])
        export_logs(registry.request(place, "run1"), run_here)
        registry.numbers = [7, 8, 9]
        write(place, [value(8), value(9)], 1)
        monkeypatch.setattr(Files, "_do", mortal)
        try:
            export_logs(registry.request(place, "run2"), run_here)
            is_killed = False
        except KilledError:
            pass
        finally:
            monkeypatch.setattr(Files, "_do", real_do)
        export_logs(registry.request(place, "run3"), run_here)
        assert values(place) == [row | {"more": None} for row in ROWS]
        assert letters(place, "offset") == [(2,)]
        kills += 1
    assert kills > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table_format", [TableFormat.DELTA, TableFormat.ICEBERG])
@pytest.mark.parametrize("latest", [False, True])
def test_a_lakes_table_has_the_columns_of_all_versions(tmp_path, table_format, latest, monkeypatch):
    """All records have one key: with `latest`, the table has the last one that can be decoded."""
    pytest.importorskip("deltalake" if table_format is TableFormat.DELTA else "pyiceberg")
    kind = lake._Delta if table_format is TableFormat.DELTA else lake._Iceberg
    step = "merge" if latest else "add"
    real_step = getattr(kind, step)

    def killed_once(self, number, added):
        if number == 2:
            monkeypatch.setattr(kind, step, real_step)
            raise KilledError
        real_step(self, number, added)

    # Killed between the commit of the columns and that of the files.
    monkeypatch.setattr(kind, step, killed_once)
    words = {"table_format": table_format, "latest_per_key": latest}
    with pytest.raises(KilledError):
        exported_twice(tmp_path, Registry(), "first", **words)
    exported_twice(tmp_path, Registry(), "run", **words)
    found = read(tmp_path / "table", table_format).sort_by("offset")["value"].to_pylist()
    assert found == [row | {"more": None} for row in (ROWS[1:] if latest else ROWS)]
    assert letters(tmp_path, "offset") == [(2,)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_iceberg_table_of_a_catalog_gains_the_columns(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog")
    uri = f"sqlite:///{tmp_path}/catalog.db"
    exported_twice(
        tmp_path, Registry(), "run", table_format=TableFormat.ICEBERG, catalog=uri,
        catalog_table="sales.users",
    )  # fmt: skip
    table = catalogs.load_catalog("kctl", uri=uri).load_table("sales.users")
    found = table.scan().to_arrow().sort_by("offset")["value"].to_pylist()
    assert found == [row | {"more": None} for row in ROWS]


def merged(first, second):
    return json.loads(merged_avro(json.dumps(first), json.dumps(second)))


def test_merged_schemas_read_the_values_of_both():
    kind = {"type": "enum", "name": "Kind", "symbols": ["A"]}
    more = kind | {"symbols": ["B", "A"]}
    node = ["null", "User"]
    first = record(("kind", kind, {}), ("again", "Kind", {}), ("next", node, {"default": None}))
    second = record(
        ("next", node, {"default": None}), ("kind", more, {}),
        ("tags", {"type": "array", "items": "Kind"}, {}),
        ("note", "string", {"default": "-"}),
    )  # fmt: skip
    found = merged(first, second)
    kinds = {it["name"]: it["type"] for it in found["fields"]}
    assert kinds["kind"]["symbols"] == ["A", "B"]
    assert kinds["again"] == ["null", "Kind"]
    assert kinds["tags"] == ["null", {"type": "array", "items": "Kind"}]
    assert kinds["note"] == "string"
    reader = fastavro.parse_schema(found)
    for schema, document in (
        (first, {"kind": "A", "again": "A", "next": None}),
        (second, {"next": None, "kind": "B", "tags": ["A"], "note": "n"}),
    ):
        data = avro(document, 1, schema)[5:]
        writer = fastavro.parse_schema(schema)
        row = fastavro.schemaless_reader(pyarrow.BufferReader(data), writer, reader)
        assert row == {"again": None, "tags": None, "note": "-"} | document
    # Once merged, nothing is added.
    assert merged(found, second) == found
    other = record(("id", "int", {}), name="Order")
    assert merged(first, other) == first
    assert with_references(json.dumps(found), ()) == json.dumps(found)


def test_a_type_extends_another_by_further_fields_only():
    small = pyarrow.struct([("a", pyarrow.int32())])
    large = pyarrow.struct([("b", pyarrow.string()), ("a", pyarrow.int32())])
    assert extends(large, small)
    assert not extends(small, large)
    assert extends(pyarrow.list_(large), pyarrow.list_(small))
    assert extends(pyarrow.map_(pyarrow.string(), large), pyarrow.map_(pyarrow.string(), small))
    assert not extends(pyarrow.struct([("a", pyarrow.int64())]), small)


def proto(fields):
    text = f'syntax = "proto3"; package shop; message User {{ {fields} }}'
    return protobuf_schema(compile_proto(text), None)


def test_protobuf_gains_fields_and_refuses_other_types(tmp_path):
    pytest.importorskip("google.protobuf")
    texts = {
        7: proto("int32 id = 1;"), 8: proto("int32 id = 1; string mail = 2;"),
        9: proto("string id = 1;"),
    }  # fmt: skip

    def run(number, *known):
        schemas = RegisteredSchemas(texts[known[-1]], tuple((it, texts[it]) for it in known))
        options = ExportOptions(
            value_format=FieldFormat.PROTOBUF, value_schema=texts[number],
            value_writers=schemas.writers, dead_letters=str(tmp_path / "letters"),
        )  # fmt: skip
        out = str(tmp_path / "table")
        request = ExportRequest([str(tmp_path / "logs")], out, options, schemas=lambda: schemas)
        request.run = f"run{len(known)}"
        export_logs(request, run_here)

    def framed(number, data):
        return b"\0" + number.to_bytes(4, "big") + b"\0" + data

    write(tmp_path, [framed(7, b"\x08\1")])
    run(7, 7)
    write(tmp_path, [framed(8, b"\x08\2\x12\1m"), framed(5, b"\x08\3")], 1)
    run(7, 7, 8)
    write(tmp_path, [framed(9, b"\x0a\1x"), framed(7, b"\x08\4")], 3)
    run(8, 7, 8, 9)
    assert values(tmp_path) == [
        {"id": 1, "mail": None}, {"id": 2, "mail": "m"}, {"id": 4, "mail": ""},
    ]  # fmt: skip
    assert letters(tmp_path, "offset", "reason") == [
        (2, "unknown schema id 5"),
        (3, "schema id 9 does not fit the columns: id is string, not int32"),
    ]
