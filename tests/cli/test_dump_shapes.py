"""kctl dump-log shows keys and values of a schema as what they stand for."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pytest

from kctl.cli.app import run
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real.schemas import compile_proto

ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "what", "type": ["null", "string", {"type": "array", "items": "string"}]},
        {"name": "price", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "then", "type": ["null", "Order"]},
        {"name": "tag", "type": "bytes"},
        {"name": "ratio", "type": "double"},
    ],
}  # fmt: skip
PROTO = """
syntax = "proto3";
package shop;
message Key { int32 n = 1; }
message Order { int64 id = 1; repeated Order parts = 2; bytes tag = 3; }
"""


def avro(document):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), document)
    return stream.getvalue()


def write_log(tmp_path, *pairs):
    directory = tmp_path / "orders-0"
    directory.mkdir()
    batch = build_batch([Record(i, i, key, value) for i, (key, value) in enumerate(pairs)])
    (directory / "00000000000000000000.log").write_bytes(batch)
    return str(directory)


def records(capfdbinary, *words):
    """(key, value) of each, as JSON lines have them."""
    assert run(["dump-log", "-o", "ndjson", *words]) == 0
    documents = map(json.loads, capfdbinary.readouterr().out.splitlines())
    return [(it["key"], it["value"]) for it in documents if it["type"] == "record"]


def test_avro_is_read_by_any_schema_with_and_without_confluents_bytes(tmp_path, capfdbinary):
    inner = {
        "id": 1, "what": ["a", "b"], "price": Decimal("1.50"), "ratio": float("nan"),
        "at": datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC), "then": None, "tag": b"\xff",
    }  # fmt: skip
    value = avro(inner | {"id": 2, "what": "c", "then": inner})
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    log = write_log(
        tmp_path, (b"a", value), (b"b", b"\0\0\0\0\7" + value), (None, None), (b"c", b"junk")
    )
    shown = {
        "id": 1, "what": ["a", "b"], "price": "1.50", "at": "2020-09-13T12:26:40+00:00",
        "then": None, "tag": "/w==", "ratio": "nan",
    }  # fmt: skip
    whole = shown | {"id": 2, "what": "c", "then": shown}
    words = ("--value-as", "avro", "--schema", str(tmp_path / "order.avsc"), log)
    assert records(capfdbinary, *words) == [
        ("a", whole), ("b", whole), (None, None), ("c", "not avro: 6a756e6b"),
    ]  # fmt: skip
    assert run(["dump-log", *words]) == 0
    assert '"price": "1.50"' in capfdbinary.readouterr().out.decode()


def test_protobuf_keys_and_values_are_messages_of_their_own(tmp_path, capfdbinary):
    (tmp_path / "shop.proto").write_text(PROTO)
    (tmp_path / "shop.desc").write_bytes(compile_proto(PROTO))
    order = b"\x08\x05\x12\x02\x08\x06\x1a\x01\xff"
    log = write_log(tmp_path, (b"\x08\x07", order), (b"\x08", b"\0\0\0\0\1\2\2" + order))
    expected = {"id": "5", "parts": [{"id": "6"}], "tag": "/w=="}
    for schema in ("shop.proto", "shop.desc"):
        path = str(tmp_path / schema)
        assert records(
            capfdbinary, "--key-as", "protobuf", "--key-schema", path, "--value-as", "protobuf",
            "--schema", path, "--message", "shop.Order", log,
        ) == [({"n": 7}, expected), ("not protobuf: 08", expected)]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--value-as", "avro"], "--value-as avro needs --schema FILE"),
        (["--key-as", "protobuf"], "--key-as protobuf needs --key-schema FILE"),
        (["--schema", "x"], "--schema goes with --value-as avro or protobuf"),
        (["--value-as", "avro", "--schema", "x", "--message", "M"], "--message goes with"),
        (["--value-as", "avro", "--schema", "missing"], "Cannot read missing"),
        (["--value-as", "hex", "--format", "kafka"], "no --key-as, no --value-as"),
    ],
)
def test_misuse_is_reported(tmp_path, capfdbinary, words, message):
    log = write_log(tmp_path, (b"a", b"b"))
    assert run(["dump-log", *words, log]) == 2
    assert message in capfdbinary.readouterr().err.decode()
