"""Schemas of a registry that refer to others, recur, or have empty messages become columns of each
table format; a value that is none of its column's type is a dead letter, and ends nothing.
"""

import io
import json
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest

from kctl.cli.app import run as kctl
from kctl.errors import UsageError
from kctl.export.avro import avro_decoder
from kctl.export.protobuf import protobuf_decoder, protobuf_reader, protobuf_schema
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.schemas import compile_proto
from tests.export.log_files import write_segment
from tests.support.schema_registry import running_registry

FORMATS = [
    "parquet",
    pytest.param("delta", marks=pytest.mark.slow),
    pytest.param("iceberg", marks=pytest.mark.slow),
]
EMPTY = {"type": "record", "name": "Nothing", "fields": []}
TREE = {"type": "record", "name": "Tree", "namespace": "shop", "fields": [
    {"name": "unit", "type": "base.Unit"},
    {"name": "kids", "type": {"type": "array", "items": "Tree"}},
    {"name": "by", "type": {"type": "map", "values": ["null", "int", "string"]}},
    {"name": "what", "type": ["null", "base.Unit", {"type": "array", "items": "long"}]},
    {"name": "cost", "type": ["null", {
        "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2,
    }]},
    {"name": "mark", "type": ["null", EMPTY]},
]}  # fmt: skip
UNIT = {"type": "record", "name": "Unit", "namespace": "base", "fields": [
    {"name": "n", "type": "int"},
]}  # fmt: skip

HEAD = 'syntax = "proto3";\n'
BASE = HEAD + "package base;\nenum Currency { EUR = 0; USD = 1; }\nmessage Unit { string u = 1; }"
MONEY = (
    HEAD
    + """
package shop;
import public "base/base.proto";
message Money { int64 units = 1; base.Currency currency = 2; }
"""
)
NODE = (
    HEAD
    + """
package shop;
import "shop/money.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
message Node {
  Money price = 1;
  map<string, Node> parts = 2;
  google.protobuf.StringValue name = 3;
  oneof state { google.protobuf.Empty open = 4; base.Unit unit = 5; }
  google.protobuf.Struct more = 6;
}
"""
)
ODD = (
    HEAD
    + """
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
message Odd {
  google.protobuf.Value value = 1;
  Odd inner = 2;
  google.protobuf.Any any = 3;
  google.protobuf.Timestamp at = 4;
}
"""
)


def exported(tmp_path, url, table_format, kind, values):
    if table_format != "parquet":
        pytest.importorskip("deltalake" if table_format == "delta" else "pyiceberg")
    batch = build_batch([Record(n, n, b"k", value) for n, value in enumerate(values)])
    write_segment(RealDisk(), tmp_path / "logs" / "users-0", 0, [batch])
    out = tmp_path / "table"
    command = ["export", str(tmp_path / "logs"), "--out", str(out), "--format", table_format]
    assert kctl([*command, "-t", "users", "--value", kind, "--registry", url]) == 0
    return read(out, table_format).sort_by("offset")["value"].to_pylist()


def read(out, table_format):
    if table_format == "parquet":
        return pyarrow.parquet.read_table(out)
    if table_format == "delta":
        import deltalake

        return deltalake.DeltaTable(str(out)).to_pyarrow_table()
    from pyiceberg.table import StaticTable

    newest = max((out / "metadata").glob("*.metadata.json"))
    return StaticTable.from_metadata(str(newest)).scan().to_arrow()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table_format", FORMATS)
def test_avro_of_several_subjects_becomes_columns(tmp_path, table_format):
    named = {}
    fastavro.parse_schema(UNIT, named_schemas=named)
    schema = fastavro.parse_schema(TREE, named_schemas=named)
    leaf = {"unit": {"n": 1}, "kids": [], "by": {}, "what": None, "cost": None, "mark": None}
    full = leaf | {
        "kids": [leaf], "by": {"a": 1, "b": "x", "c": None}, "what": [1, 2],
        "cost": Decimal("1.25"), "mark": {},
    }  # fmt: skip

    def value(document):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, document)
        return b"\0\0\0\0\2" + stream.getvalue()

    with running_registry() as registry:
        registry.add("unit", 1, json.dumps(UNIT))
        place = {"name": "base.Unit", "subject": "unit", "version": 1}
        registry.add("users-value", 2, json.dumps(TREE), references=[place])
        documents = [leaf, full, leaf | {"what": {"n": 7}}]
        found = exported(tmp_path, registry.url, table_format, "avro", map(value, documents))

    assert found == [
        leaf | {"by": []},
        full | {
            "kids": [json.dumps(leaf)], "what": {"member0": None, "member1": [1, 2]}, "mark": "{}",
            "by": [
                ("a", {"member0": 1, "member1": None}), ("b", {"member0": None, "member1": "x"}),
                ("c", None),
            ],
        },
        leaf | {"by": [], "what": {"member0": {"n": 7}, "member1": None}},
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table_format", FORMATS)
def test_protobuf_of_several_subjects_becomes_columns(tmp_path, table_format):
    price = b"\x0a\4\x08\5\x10\1"
    parts = b"\x12\x0b\x0a\1a\x12\6" + price
    with running_registry() as registry:
        registry.add("base", 1, BASE, "PROTOBUF")
        place = {"name": "base/base.proto", "subject": "base", "version": 1}
        registry.add("money", 2, MONEY, "PROTOBUF", references=[place])
        place = {"name": "shop/money.proto", "subject": "money", "version": 1}
        registry.add("users-value", 3, NODE, "PROTOBUF", references=[place])
        values = [
            b"\0\0\0\0\3\0" + price + parts + b"\x1a\3\x0a\1n\x22\0",
            b"\0\0\0\0\3\0\x2a\3\x0a\1u",
        ]
        found = exported(tmp_path, registry.url, table_format, "protobuf", values)

    nothing = {"price": None, "parts": [], "name": None, "open": None, "unit": None, "more": None}
    node = '{"price": {"units": "5", "currency": "USD"}}'
    assert found == [
        nothing | {
            "price": {"units": 5, "currency": "USD"}, "parts": [("a", node)],
            "name": {"value": "n"}, "open": "{}",
        },
        nothing | {"unit": {"u": "u"}},
    ]  # fmt: skip


def test_a_schema_without_fields_has_no_columns():
    with pytest.raises(UsageError, match="no columns"):
        avro_decoder(json.dumps(EMPTY))
    text = protobuf_schema(compile_proto(HEAD + "message Nothing {}"), None)
    with pytest.raises(UsageError, match="no columns"):
        protobuf_decoder(text)


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


NAN = b"\x11\0\0\0\0\0\0\xf8\x7f"
FAR = b"\x08\xff\xff\xff\xff\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    "data",
    [
        field(1, NAN),
        field(2, field(1, NAN)),
        field(2, field(3, field(1, b"x.y/shop.Unknown"))),
        field(2, field(4, FAR)),
    ],
)
def test_a_message_without_a_json_mapping_is_not_decoded_and_ends_nothing(data):
    text = protobuf_schema(compile_proto(ODD), None)
    decode, _kind = protobuf_decoder(text)
    column, failed = decode(pa.array([data, b"", data]))

    assert failed.to_pylist() == [True, False, True]
    assert column.to_pylist()[1] == {"value": None, "inner": None, "any": None, "at": None}
    assert decode.reason(data).startswith("no JSON: ")
    with pytest.raises(ValueError, match="no JSON: "):
        protobuf_reader(text)(data)


def test_a_decimal_with_too_many_digits_is_not_decoded_and_ends_nothing():
    cost = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = {"type": "record", "name": "Cost", "fields": [{"name": "d", "type": cost}]}
    decode, _kind = avro_decoder(json.dumps(schema))
    data = b"\x14" + b"\x7f" * 10
    column, failed = decode(pa.array([b"\2\x7d", data, None]))

    assert failed.to_pylist() == [False, True, False]
    assert column.to_pylist() == [{"d": Decimal("1.25")}, None, None]
    assert decode.reason(data) == "not a value of the column's type"
