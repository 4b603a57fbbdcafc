"""Values with a schema from a file or a registry become columns; other values are kept."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pyarrow.parquet
import pytest

from kctl.cli.app import run as kctl
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
    assert export(tmp_path, *words) == 0
    expected = [
        ({"id": 1, "mail": None}, None), ({"id": 2, "mail": "b"}, None), (None, None),
        (None, b"junk"),
    ]  # fmt: skip
    assert rows(tmp_path) == expected
    # The subject gets a new version; the table keeps its columns.
    newest = NEW | {"fields": [*NEW["fields"], NAME | {"default": ""}]}
    registry.add("users-value", 11, json.dumps(newest))
    write_users(tmp_path, [avro(newest, {"id": 3, "mail": None, "name": "c"}, 11)], first=4)
    assert export(tmp_path, *words) == 0
    assert rows(tmp_path) == [*expected, ({"id": 3, "mail": None}, None)]


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
    assert export(tmp_path, *words, "--message", "shop.Order") == 0
    assert [raw is None for _value, raw in rows(tmp_path)] == [True, False, False, False]
    assert export(tmp_path, *words, out="first") == 0
    assert rows(tmp_path, "first")[1] == ({"n": 1}, None)
    assert export(tmp_path, *words, "--message", "shop.Order.Line", out="line") == 0
    assert rows(tmp_path, "line")[2] == ({"what": "tea", "count": Decimal(0)}, None)


def test_json_needs_no_registry(tmp_path):
    write_users(tmp_path, [b'\0\0\0\0\1{"a":1}', b'{"a":2}', b"\0\0\0\0\1[]"])
    assert export(tmp_path, "--value", "json") == 0
    assert rows(tmp_path) == [({"a": 1}, None), ({"a": 2}, None), (None, b"\0\0\0\0\1[]")]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--value", "json", "--registry", "http://x"), "--registry goes with"),
        (("--value", "avro", "--registry", "http://x"), "needs exactly one topic"),
        (("--value", "avro", "--registry", "URL", "-t", "users*"), "needs exactly one topic"),
        (("--value", "avro", "--registry", "URL", "-t", "none"), "Subject 'none-value' not found"),
        (("--value", "protobuf", "--registry", "URL", "-t", "users"), "has AVRO schemas"),
        (("--value", "avro", "--registry", "URL", "--subject", "refers"), "refer to others"),
        (("--value", "avro", "--registry", "ftp://x", "-t", "users"), "Not the address"),
        (("--value", "avro"), "Avro values need a schema"),
        (("--value", "protobuf", "--schema", "shop.proto", "-f", "csv"), "Cannot read shop.proto"),
        (("--value", "protobuf", "--schema", "PROTO", "--message", "No"), "No message No"),
        (("--value", "protobuf", "--schema", "PROTO", "-f", "csv"), "to Parquet or ORC only"),
        (("--value", "protobuf", "--schema", "LOOP"), "it is recursive"),
        (("--value", "protobuf", "--schema", "BAD"), "protoc rejects"),
    ],
)
def test_invalid_schema_is_a_usage_error(registry, tmp_path, capfd, words, what):
    registry.add("users-value", 1, json.dumps(OLD))
    registry.add("refers", 2, json.dumps(OLD), references=[{"name": "x"}])
    head = 'syntax = "proto3";\n'
    for name, text in {
        "PROTO": PROTO, "LOOP": f"{head}message A {{ A next = 1; }}", "BAD": "message",
    }.items():  # fmt: skip
        (tmp_path / f"{name}.proto").write_text(text)
    write_users(tmp_path, [b"x"])
    given = {"URL": registry.url} | {
        name: str(tmp_path / f"{name}.proto") for name in ("PROTO", "LOOP", "BAD")
    }
    assert export(tmp_path, *(given.get(word, word) for word in words)) == 2
    assert what in capfd.readouterr().err
