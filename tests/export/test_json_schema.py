"""Values of a JSON Schema become columns; what has no table form is text."""

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet
import pytest

from kctl.errors import UsageError
from kctl.export.json_schema import (
    is_json_schema,
    json_schema_columns,
    json_schema_decoder,
    registered_json_schema,
)
from tests.export.test_dead_letters import export, letters, write
from tests.support.schema_registry import running_registry


def object_of(**properties):
    return {"type": "object", "properties": properties}


TREE = object_of(name={"type": "string"}, inner={"$ref": "#/$defs/tree"})
USER = object_of(
    id={"type": "integer"}, score={"type": ["integer", "number", "null"]},
    mail={"oneOf": [{"type": "null"}, {"type": "string", "minLength": 3}]},
    kind={"enum": ["A", "B"]}, level={"enum": [1, "x"]},
    at={"type": "string", "format": "date-time"}, day={"type": "string", "format": "date"},
    tags={"type": "array", "items": {"type": "string"}}, pair={"type": "array"},
    home=object_of(city={"type": "string"}),
    prices={"type": "object", "additionalProperties": {"type": "number"}},
    any={}, either={"anyOf": [{"type": "string"}, {"type": "integer"}]},
    tree={"$ref": "#/$defs/tree"},
    all={"allOf": [object_of(a={"type": "boolean"}), object_of(b={})]},
) | {"$defs": {"tree": TREE}}  # fmt: skip
VALUE = {
    "id": 1.0, "score": 2, "mail": None, "kind": "A", "level": 1,
    "at": "2026-01-31T09:30:00+01:00", "day": "2026-01-31", "tags": ["x", None], "pair": [1, "a"],
    "home": {"city": "a", "other": 1}, "prices": {"x": 1}, "any": {"é": [1]}, "either": 5,
    "tree": {"name": "r", "inner": {"name": "s"}}, "all": {"a": True, "b": 3}, "unknown": 1,
}  # fmt: skip
ROW = {
    "id": 1, "score": 2.0, "mail": None, "kind": "A", "level": "1",
    "at": datetime(2026, 1, 31, 8, 30, tzinfo=UTC), "day": date(2026, 1, 31), "tags": ["x", None],
    "pair": '[1, "a"]', "home": {"city": "a"}, "prices": [("x", 1.0)], "any": '{"é": [1]}',
    "either": "5", "tree": {"name": "r", "inner": '{"name": "s"}'}, "all": {"a": True, "b": "3"},
}  # fmt: skip


def column(schema, *values, writers=()):
    decode, kind = json_schema_decoder(json.dumps(schema), writers)
    found, failed = decode(pa.array([json.dumps(it).encode() for it in values], pa.binary()))
    assert found.type == kind
    return found.to_pylist(), failed


def test_types_become_columns():
    assert column(USER, VALUE, {}) == ([ROW, dict.fromkeys(ROW)], None)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "value is not an object"),
        ({"id": "1"}, "value.id is not an integer"),
        ({"id": True}, "value.id is not an integer"),
        ({"id": 1.5}, "value.id is not an integer"),
        ({"id": 2**63}, "value.id is not an integer of 64 bits"),
        ({"score": 10**400}, "value.score is not a number that a double holds"),
        ({"mail": 1}, "value.mail is not a string"),
        ({"mail": "\ud800"}, "value.mail is not a string of Unicode characters"),
        ({"any": ["\ud800"]}, "value.any is not a string of Unicode characters"),
        ({"at": "2026-01-31T09:30:00"}, "value.at is not a date-time with its offset from UTC"),
        ({"day": "2026-02-30"}, "value.day is not a date"),
        ({"tags": ["a", 1]}, "value.tags[1] is not a string"),
        ({"tags": {}}, "value.tags is not an array"),
        ({"prices": {"x": "1"}}, "value.prices.x is not a number"),
        ({"home": {"city": 1}}, "value.home.city is not a string"),
        ({"all": {"a": 0}}, "value.all.a is not a boolean"),
    ],
)
def test_values_of_other_types_are_not_decoded(value, reason):
    decode, _kind = json_schema_decoder(json.dumps(USER))
    data = json.dumps(value).encode()
    found, failed = decode(pa.array([data, b"{}"], pa.binary()))
    assert (found.to_pylist()[0], failed.to_pylist()) == (None, [True, False])
    assert decode.reason(data) == reason


def test_a_json_schema_is_distinguished_from_fields_and_types():
    assert is_json_schema(USER)
    assert is_json_schema({"type": ["null", "object"]})
    assert not is_json_schema({"id": "int64", "type": "string", "properties": {"a": "string"}})
    text = json.dumps({"properties": {"a": {"type": "string"}}})
    assert json_schema_columns(registered_json_schema(text, ())) == pa.struct([("a", pa.string())])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[", "Not a JSON Schema"),
        ("[]", "Not a JSON Schema"),
        ('{"type": "string"}', "has no columns"),
        ('{"type": "object"}', "has no columns"),
        ('{"$ref": "#/x"}', "refers to #/x, which is not there"),
        ('{"$ref": "#"}', "refer to each other"),
    ],
)
def test_schemas_without_columns_are_usage_errors(text, what):
    with pytest.raises(UsageError, match=what):
        json_schema_columns(text)


def test_schemas_of_a_registry_refer_to_others_and_evolve(tmp_path):
    with running_registry() as registry:
        city = {"$schema": "x", "type": "string"}
        registry.add("city", 1, json.dumps(city), "JSON")
        place = {"name": "city.json", "subject": "city", "version": 1}
        first = {"properties": {"city": {"$ref": "city.json"}}}
        registry.add("users-value", 2, json.dumps(first), "JSON", references=[place])
        write(tmp_path, [b'\0\0\0\0\2{"city":"a"}', b'{"city":"b"}', b"\0\0\0\0\x09{}"])
        words = ("-t", "users", "--value", "json", "--registry", registry.url)
        words += ("--dead-letters", str(tmp_path / "letters"))
        assert export(tmp_path, *words) == 0
        second = {"properties": first["properties"] | {"n": {"type": "integer"}}}
        registry.add("users-value", 3, json.dumps(second), "JSON", references=[place])
        write(tmp_path, [b'\0\0\0\0\3{"city":"c","n":1}', b'\0\0\0\0\3{"n":"x"}'], 3)
        assert export(tmp_path, *words) == 0
    found = [
        row for path in sorted((tmp_path / "table").glob("*.parquet"))
        for row in pyarrow.parquet.read_table(path)["value"].to_pylist()
    ]  # fmt: skip
    assert found == [{"city": "a"}, {"city": "b"}, {"city": "c", "n": 1}]
    assert letters(tmp_path, "offset", "reason") == [
        (2, "unknown schema id 9"), (4, "value.n is not an integer"),
    ]  # fmt: skip


def test_a_schema_in_a_file_determines_the_columns(tmp_path):
    (tmp_path / "user.json").write_text(json.dumps(USER))
    write(tmp_path, [json.dumps(VALUE).encode(), b"[]"])
    words = ("--value", "json", "--schema", str(tmp_path / "user.json"))
    assert export(tmp_path, *words) == 0
    (path,) = (tmp_path / "table").glob("*.parquet")
    assert pyarrow.parquet.read_table(path)["value"].to_pylist() == [ROW, None]
