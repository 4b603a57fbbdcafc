"""Values with a schema from a file or a registry become columns; other values are kept."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pyarrow.parquet
import pytest

from kctl.cli.app import run as kctl
from kctl.export.avro import avro_reader
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.schemas import compile_proto
from tests.export.log_files import write_segment
from tests.support.schema_registry import running_registry

NAME = {"name": "name", "type": "string"}
OLD = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}, NAME]}
NEW = {"type": "record", "name": "User", "fields": [
    {"name": "id", "type": "long"}, {"name": "mail", "type": ["null", "string"], "default": None},
]}  # fmt: skip
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Kind { NONE = 0; BOOK = 1; }
message Other { int32 n = 1; }
message Order {
  message Line { string what = 1; uint64 count = 2; }
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, double> prices = 4;
  Kind kind = 5;
  google.protobuf.Timestamp at = 6;
  oneof paid { bool cash = 7; bytes card = 8; }
  Line gift = 9;
}
"""


@pytest.fixture
def registry():
    with running_registry() as running:
        yield running


def write_users(tmp_path, values, first=0):
    batch = build_batch([Record(first + n, n, b"k", value) for n, value in enumerate(values)])
    write_segment(RealDisk(), tmp_path / "logs" / "users-0", first, [batch])


def export(tmp_path, *words, out="table"):
    return kctl(["export", str(tmp_path / "logs"), "--out", str(tmp_path / out), *words])


def rows(tmp_path, out="table"):
    found = [
        row for path in sorted((tmp_path / out).glob("*.parquet"))
        for row in pyarrow.parquet.read_table(path).to_pylist()
    ]  # fmt: skip
    return [(row["value"], row["value_raw"]) for row in found]


def avro(schema, document, number):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), document)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


def test_avro_of_older_and_newer_versions_are_rows_of_one_table(registry, tmp_path):
    registry.add("users-value", 7, json.dumps(OLD))
    registry.add("users-value", 9, json.dumps(NEW))
    old, new = avro(OLD, {"id": 1, "name": "a"}, 7), avro(NEW, {"id": 2, "mail": "b"}, 9)
    write_users(tmp_path, [old, new, None, b"junk"])
    words = ("-t", "users", "--value", "avro", "--registry", registry.url)
    words += ("--on-undecodable", "keep")
    assert export(tmp_path, *words) == 0
    expected = [
        ({"id": 1, "mail": None}, None), ({"id": 2, "mail": "b"}, None), (None, None),
        (None, b"junk"),
    ]  # fmt: skip
    assert rows(tmp_path) == expected
    # The subject gets a new version, and the table its column.
    newest = NEW | {"fields": [*NEW["fields"], NAME | {"default": ""}]}
    registry.add("users-value", 11, json.dumps(newest))
    write_users(tmp_path, [avro(newest, {"id": 3, "mail": None, "name": "c"}, 11)], first=4)
    assert export(tmp_path, *words) == 0
    added = {"id": 3, "mail": None, "name": "c"}
    assert rows(tmp_path) == [*expected, (added, None)]


def test_registry_with_a_password(tmp_path, capsys):
    write_users(tmp_path, [avro(OLD, {"id": 1, "name": "a"}, 7)])
    with running_registry("secret") as registry:
        registry.add("people", 7, json.dumps(OLD))
        words = ("--value", "avro", "--subject", "people", "--registry")
        assert export(tmp_path, *words, registry.url.replace("secret", "guess")) == 1
        assert "Unauthorized" in (printed := capsys.readouterr().err)
        assert "guess" not in printed
        assert export(tmp_path, *words, registry.url) == 0
    assert rows(tmp_path) == [({"id": 1, "name": "a"}, None)]


def order_class():
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compile_proto(PROTO)).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


NOTHING = {
    "id": 0, "note": None, "lines": [], "prices": [], "kind": "NONE", "at": None, "cash": None,
    "card": None, "gift": None,
}  # fmt: skip


def an_order():
    found = order_class()(id=2**40, note="", prices={"x": 1.5}, kind=1, card=b"\1")
    found.lines.add(what="tea", count=2**64 - 1)
    found.at.FromMilliseconds(1_600_000_000_123)
    return found.SerializeToString()


ORDER = NOTHING | {
    "id": 2**40, "note": "", "lines": [{"what": "tea", "count": Decimal(2**64 - 1)}],
    "prices": [("x", 1.5)], "kind": "BOOK", "card": b"\1",
    "at": datetime.fromtimestamp(1_600_000_000.123, UTC),
}  # fmt: skip


def test_protobuf_of_a_file_becomes_a_struct(tmp_path):
    (tmp_path / "shop.proto").write_text(PROTO)
    write_users(tmp_path, [an_order(), b"", None, b"\xff"])
    words = ("--value", "protobuf", "--schema", str(tmp_path / "shop.proto"))
    assert export(tmp_path, *words, "--message", "shop.Order") == 0
    assert rows(tmp_path) == [(ORDER, None), (NOTHING, None), (None, None), (None, b"\xff")]
    (tmp_path / "shop.desc").write_bytes(compile_proto(PROTO))
    words = (*words[:3], str(tmp_path / "shop.desc"), "--message", "shop.Order.Line")
    assert export(tmp_path, *words, out="lines") == 0


def test_protobuf_of_a_registry_is_identified_by_the_bytes_before_it(registry, tmp_path):
    registry.add("users-value", 3, PROTO, "PROTOBUF")
    head = b"\0\0\0\0\3"
    line = b"\x0a\3tea"
    write_users(tmp_path, [
        head + b"\2\2" + an_order(), head + b"\0\x08\1", head + b"\4\2\0" + line, head + b"\2",
    ])  # fmt: skip
    words = ("-t", "users", "--value", "protobuf", "--registry", registry.url)
    words += ("--on-undecodable", "keep")
    assert export(tmp_path, *words, "--message", "shop.Order") == 0
    assert [raw is None for _value, raw in rows(tmp_path)] == [True, False, False, False]
    assert export(tmp_path, *words, out="first") == 0
    assert rows(tmp_path, "first")[1] == ({"n": 1}, None)
    assert export(tmp_path, *words, "--message", "shop.Order.Line", out="line") == 0
    assert rows(tmp_path, "line")[2] == ({"what": "tea", "count": Decimal(0)}, None)


ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [
    {"name": "city", "type": "string"},
]}  # fmt: skip
KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
CLIENT = {"type": "record", "name": "Client", "namespace": "shop", "fields": [
    {"name": "home", "type": "Address"},
    {"name": "kind", "type": ["null", KIND]},
    {"name": "what", "type": ["null", "string", "long", "Kind", "shop.Address"]},
    {"name": "next", "type": ["null", "Client"], "default": None},
]}  # fmt: skip


def test_avro_types_of_other_subjects_unions_and_recursion_become_columns(registry, tmp_path):
    registry.add("address", 1, json.dumps(ADDRESS))
    place = {"name": "shop.Address", "subject": "address", "version": 1}
    registry.add("users-value", 2, json.dumps(CLIENT), references=[place])
    named = {}
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    schema = fastavro.parse_schema(CLIENT, named_schemas=named)
    home = {"city": "a"}

    def value(kind, what, after=None):
        stream = io.BytesIO()
        document = {"home": home, "kind": kind, "what": what, "next": after}
        fastavro.schemaless_writer(stream, schema, document)
        return b"\0\0\0\0\2" + stream.getvalue()

    inner = {"home": home, "kind": "B", "what": ("shop.Kind", "A"), "next": None}
    write_users(tmp_path, [
        value("A", "x"), value(None, 5), value("B", ("shop.Kind", "B")),
        value(None, ("shop.Address", home), inner), value(None, None),
    ])  # fmt: skip
    assert export(tmp_path, "-t", "users", "--value", "avro", "--registry", registry.url) == 0
    members = dict.fromkeys(("member0", "member1", "member2", "member3"))
    text = '{"home": {"city": "a"}, "kind": "B", "what": "A", "next": null}'
    expected = [
        ("A", members | {"member0": "x"}, None), (None, members | {"member1": 5}, None),
        ("B", members | {"member2": "B"}, None), (None, members | {"member3": home}, text),
        (None, None, None),
    ]  # fmt: skip
    assert rows(tmp_path) == [
        ({"home": home, "kind": kind, "what": what, "next": after}, None)
        for kind, what, after in expected
    ]


def test_protobuf_imports_come_from_the_registry_and_recursion_is_json(registry, tmp_path):
    head = 'syntax = "proto3";\npackage shop;\n'
    registry.add("money", 1, f"{head}message Money {{ int64 units = 1; }}", "PROTOBUF")
    node = "message Node { Money price = 1; repeated Node parts = 2; }"
    place = {"name": "shop/money.proto", "subject": "money", "version": 1}
    text = f'{head}import "shop/money.proto";\n{node}'
    registry.add("users-value", 3, text, "PROTOBUF", references=[place])
    price = b"\x0a\2\x08\5"
    write_users(tmp_path, [b"\0\0\0\0\3\0" + price + b"\x12\4" + price])
    assert export(tmp_path, "-t", "users", "--value", "protobuf", "--registry", registry.url) == 0
    parts = ['{"price": {"units": "5"}}']
    assert rows(tmp_path) == [({"price": {"units": 5}, "parts": parts}, None)]


@pytest.mark.parametrize("writers", [(), ((6, json.dumps(OLD)),)])
def test_avro_strings_of_negative_lengths_are_not_decoded(writers):
    # An id, and the length -1 of a name; then a length beyond the end.
    read = avro_reader(json.dumps(OLD), writers)
    for end in (b"\1", b"\x88\x88\x88\x88\x88\x88\x88\x88\x08"):
        with pytest.raises(ValueError, match="not a value"):
            read(b"\0\0\0\0\6\2" + end)


def test_json_needs_no_registry(tmp_path):
    write_users(tmp_path, [b'\0\0\0\0\1{"a":1}', b'{"a":2}', b"\0\0\0\0\1[]"])
    assert export(tmp_path, "--value", "json") == 0
    assert rows(tmp_path) == [({"a": 1}, None), ({"a": 2}, None), (None, b"\0\0\0\0\1[]")]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--value", "string", "--registry", "http://x"), "--registry goes with"),
        (("--value", "avro", "--registry", "http://x"), "needs exactly one topic"),
        (("--value", "avro", "--registry", "URL", "-t", "users*"), "needs exactly one topic"),
        (("--value", "avro", "--registry", "URL", "-t", "none"), "Subject 'none-value' not found"),
        (("--value", "protobuf", "--registry", "URL", "-t", "users"), "has AVRO schemas"),
        (("--value", "avro", "--registry", "ftp://x", "-t", "users"), "Not the address"),
        (("--value", "avro"), "Avro values need a schema"),
        (("--value", "protobuf", "--schema", "shop.proto", "-f", "csv"), "Cannot read shop.proto"),
        (("--value", "protobuf", "--schema", "PROTO", "--message", "No"), "No message No"),
        (("--value", "protobuf", "--schema", "PROTO", "-f", "csv"), "to Parquet or ORC only"),
        (("--value", "protobuf", "--schema", "BAD"), "protoc rejects"),
    ],
)
def test_invalid_schema_is_a_usage_error(registry, tmp_path, capfd, words, what):
    registry.add("users-value", 1, json.dumps(OLD))
    for name, text in {"PROTO": PROTO, "BAD": "message"}.items():
        (tmp_path / f"{name}.proto").write_text(text)
    write_users(tmp_path, [b"x"])
    given = {"URL": registry.url} | {
        name: str(tmp_path / f"{name}.proto") for name in ("PROTO", "BAD")
    }
    assert export(tmp_path, *(given.get(word, word) for word in words)) == 2
    assert what in capfd.readouterr().err
