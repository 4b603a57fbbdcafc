"""Values that can be decoded are decoded; the others are kept as bytes and counted."""

import io
import json
from datetime import UTC, datetime

import fastavro
import pyarrow as pa
import pytest

from kctl.errors import UsageError
from kctl.export.options import ExportOptions, FieldFormat, TableFormat
from kctl.export.values import infer_json_schema, json_type, make_decoder


def decoded(values, schema=None, value_format=FieldFormat.JSON, table_format=TableFormat.PARQUET):
    """(decoded, what was kept raw) for each value, and how many could not be decoded."""
    options = ExportOptions(
        table_format, columns=("value",), value_format=value_format,
        value_schema=schema or infer_json_schema(values),
    )  # fmt: skip
    decoder = make_decoder(options)
    table = decoder.table(pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"]))
    table.validate(full=True)
    assert table.schema == decoder.schema
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows, decoder.undecodable


def test_objects_become_structs():
    rows, failed = decoded([b'{"a":1,"b":{"c":[1.5,2]}}', None, b' {"b":null}\n'])
    assert rows == [
        ({"a": 1, "b": {"c": [1.5, 2.0]}}, None),
        (None, None),
        ({"a": None, "b": None}, None),
    ]
    assert failed == 0


@pytest.mark.parametrize(
    "bad", [b"", b"junk", b'{"a":', b'{"a":1}{"a":2}', b"[1]", b"7", b'{"a":"text"}', b"\xff\xfe"]
)
def test_values_that_do_not_match_the_schema_are_kept(bad):
    rows, failed = decoded([b'{"a":1}', bad, None, b'{"a":3}'], schema='{"a":"int64"}')
    assert rows == [({"a": 1}, None), (None, bad), (None, None), ({"a": 3}, None)]
    assert failed == 1


@pytest.mark.parametrize(
    ("bad", "schema"),
    [
        (b'{"a":"caf\xe9"}', '{"a":"string"}'),
        (b'{"a":["x","\xff"]}', '{"a":["string"]}'),
        (b'{"a":{"b":"\xc3"}}', '{"a":{"b":"string"}}'),
    ],
)
def test_text_in_json_that_is_not_utf8_is_kept_as_bytes(bad, schema):
    """It counted as decoded, and the column could not be read."""
    rows, failed = decoded([b"{}", bad, None], schema)
    assert rows == [({"a": None}, None), (None, bad), (None, None)]
    assert failed == 1


def test_two_objects_in_one_value_do_not_shift_the_others():
    values = [b'{"a":1}{"a":2}', b"", b'{"a":3}']
    rows, failed = decoded(values, schema='{"a":"int64"}')
    assert rows == [(None, values[0]), (None, b""), ({"a": 3}, None)]
    assert failed == 2


def test_fields_outside_the_schema_are_dropped():
    rows, _ = decoded([b'{"a":1,"z":[{}]}'], schema='{"a":"int64"}')
    assert rows == [({"a": 1}, None)]


def test_schema_is_inferred_from_all_of_the_sample():
    values = [b'{"a":1,"at":"2020-01-01T00:00:00"}', b'{"a":1.5,"n":null,"l":[]}', b'{"l":[true]}']
    assert json.loads(infer_json_schema([*values, b"junk", None])) == {
        "a": "double", "at": "string", "n": "string", "l": ["boolean"],
    }  # fmt: skip


def test_objects_that_are_always_empty_have_no_column():
    values = [b'{"a":{},"b":[{}],"c":1}']
    assert json.loads(infer_json_schema(values)) == {"c": "int64"}
    assert decoded(values)[0] == [({"c": 1}, None)]


def test_values_other_than_objects_have_no_schema():
    mixed = [b'{"a":1,"b":{"c":1}}', b'{"a":[2],"b":"x"}']
    assert json.loads(infer_json_schema(mixed)) == {"a": "int64", "b": {"c": "int64"}}
    assert infer_json_schema([b"1", b"[2]", b'"three"', b"four", None]) == "{}"


@pytest.mark.parametrize("depth", [101, 900, 100_000])
@pytest.mark.parametrize("ends", [(b"[", b"]"), (b'{"c":', b"}")])
def test_a_deeply_nested_value_is_left_out_of_inference(depth, ends):
    deep = b'{"b":' + ends[0] * depth + b"1" + ends[1] * depth + b"}"
    assert json.loads(infer_json_schema([b'{"a":1}', deep])) == {"a": "int64"}
    assert decoded([b'{"a":1}', deep])[0] == [({"a": 1}, None), ({"a": None}, None)]


def test_text_is_kept_as_it_is():
    rows, failed = decoded(["grün".encode(), b"\xff", None, b""], "{}", FieldFormat.STRING)
    assert rows == [("grün", None), (None, b"\xff"), (None, None), ("", None)]
    assert failed == 1


def test_bytes_in_text_formats_are_base64():
    rows, _ = decoded([b"a", b"\xff"], "{}", FieldFormat.RAW, TableFormat.CSV)
    assert rows == [("a", None), (None, "/w==")]


@pytest.mark.parametrize("text", ["[", "[]", "{}", '"a"', '{"a":"integer"}', '{"a":[]}'])
def test_invalid_json_schema_is_a_usage_error(text):
    with pytest.raises(UsageError):
        json_type(text)


USER = """{"type": "record", "name": "User", "namespace": "x", "fields": [
  {"name": "id", "type": "long"},
  {"name": "name", "type": ["null", "string"]},
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
  {"name": "tags", "type": {"type": "array", "items": "string"}},
  {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
  {"name": "home", "type": {"type": "record", "name": "Place", "fields": [
    {"name": "city", "type": "string"}]}},
  {"name": "work", "type": ["null", "Place"]}]}"""


def avro(document):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(USER)), document)
    return stream.getvalue()


def a_user(number):
    return {
        "id": number, "name": None, "at": datetime(2020, 1, 1, tzinfo=UTC), "tags": ["a", "b"],
        "key": "0b8d5b5e-8d6f-4d3c-9f4a-0a9b0c0d0e0f", "home": {"city": "Ulm"}, "work": None,
    }  # fmt: skip


def test_avro_becomes_a_struct_with_or_without_confluents_bytes():
    values = [avro(a_user(1)), b"\0\0\0\0\7" + avro(a_user(2)), None, avro(a_user(0))]
    rows, failed = decoded(values, USER, FieldFormat.AVRO)
    assert rows == [(a_user(1), None), (a_user(2), None), (None, None), (a_user(0), None)]
    assert failed == 0


@pytest.mark.parametrize("bad", [b"", b"\0", b"junk", avro(a_user(3))[:-1], avro(a_user(3)) + b"x"])
def test_bytes_that_are_not_avro_are_kept(bad):
    rows, failed = decoded([avro(a_user(1)), bad], USER, FieldFormat.AVRO)
    assert rows == [(a_user(1), None), (None, bad)]
    assert failed == 1


@pytest.mark.parametrize("schema", ["{", '"unknown"', '{"type": "record", "name": "A"}'])
def test_avro_schema_without_columns_is_a_usage_error(schema):
    with pytest.raises(UsageError):
        decoded([b""], schema, FieldFormat.AVRO)
