"""kctl produce encodes values by a schema, and kctl consume decodes them."""

import base64
import io
import json

import fastavro
import pytest

from tests.support.schema_registry import running_registry

ORDER = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "what", "type": ["null", "string", {"type": "array", "items": "string"}]},
        {"name": "price", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "then", "type": ["null", "Order"], "default": None},
        {"name": "tag", "type": "bytes", "default": ""},
    ],
}  # fmt: skip
FIRST = {
    "id": 1, "what": ["a", "b"], "price": "12.50", "at": "2026-01-31T08:00:00+00:00",
    "then": None, "tag": "AP8=",
}  # fmt: skip
SECOND = {**FIRST, "id": 2, "what": None, "then": {**FIRST, "what": "nested"}}
PROTO = """
syntax = "proto3";
package shop;
message Key { int32 n = 1; }
message Order { int64 id = 1; repeated Order parts = 2; bytes tag = 3; }
"""
JSON_SCHEMA = {
    "type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}},
}  # fmt: skip


@pytest.fixture
def avro_file(tmp_path):
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return path


def lines_in(path, *documents):
    path.write_text("".join(json.dumps(it) + "\n" for it in documents))
    return path


def stored(on, topic):
    """The bytes of the values."""
    found = on("consume", topic, "-e", "-o", "ndjson", "-p", 0).ndjson
    return [
        base64.b64decode(it["value_base64"]) if "value_base64" in it else it["value"].encode()
        for it in found
    ]


def test_json_lines_become_avro_and_come_back(on, topic, tmp_path, avro_file):
    lines = lines_in(tmp_path / "lines", FIRST, SECOND)
    schema = ("--value", "avro", "--schema", avro_file)
    sent = on("produce", topic, "-f", lines, "-p", 0, *schema)
    assert sent.status == 0, sent.err

    read = fastavro.schemaless_reader(
        io.BytesIO(stored(on, topic)[1]), fastavro.parse_schema(ORDER), None
    )
    assert (read["id"], read["what"], str(read["price"])) == (2, None, "12.50")
    assert (read["then"]["what"], read["tag"]) == ("nested", b"\x00\xff")

    shown = on("consume", topic, "-e", "-p", 0, *schema)
    assert [json.loads(line) for line in shown.lines] == [FIRST, SECOND]
    assert on("consume", topic, "-e", "--jq", ".then.what", *schema).lines == ["nested"]
    assert on("consume", topic, "-e", "--grep", "nested", "-f", "{offset}\\n", *schema).lines == [
        "1"
    ]


def test_documents_of_consume_are_produced_again(on, topic, name, tmp_path, avro_file):
    assert on("topic", "create", f"{name}-copy", "-p", 1, "-r", 1).status == 0
    schema = ("--value", "avro", "--schema", avro_file)
    on("produce", topic, "-f", lines_in(tmp_path / "lines", FIRST), "-k", "k", "-p", 0, *schema)
    on("produce", topic, "-S", ":", "--null", "NULL", "gone:NULL", "-p", 0, *schema)
    printed = on("consume", topic, "-e", "-p", 0, "-o", "ndjson", *schema)
    assert [(it["key"], it["value"]) for it in printed.ndjson] == [("k", FIRST), ("gone", None)]
    copy = tmp_path / "copy"
    copy.write_text(printed.out)
    again = on("produce", f"{name}-copy", "-i", "ndjson", "-f", copy, *schema)
    assert again.status == 0, again.err
    assert on("consume", f"{name}-copy", "-e", "-o", "ndjson", *schema).ndjson[0]["value"] == FIRST


def test_a_registrys_schema_encodes_and_its_id_is_before_the_value(on, topic, tmp_path):
    older = {**ORDER, "fields": ORDER["fields"][:1]}
    with running_registry() as registry:
        registry.add(f"{topic}-value", 7, json.dumps(older))
        to = ("--value", "avro", "--registry", registry.url)
        on("produce", topic, "-f", lines_in(tmp_path / "old", {"id": 5}), "-p", 0, *to)
        newer = {**older, "fields": [*older["fields"], {"name": "n", "type": "int", "default": 3}]}
        registry.add(f"{topic}-value", 9, json.dumps(newer))
        sent = on(
            "produce", topic, "-f", lines_in(tmp_path / "new", {"id": 6, "n": 1}), "-p", 0, *to
        )
        assert sent.status == 0, sent.err
        shown = [json.loads(it) for it in on("consume", topic, "-e", "-p", 0, *to).lines]
        wrong = on("produce", topic, "x", "--value", "protobuf", "--registry", registry.url)
    assert [value[:5] for value in stored(on, topic)] == [b"\0\0\0\0\x07", b"\0\0\0\0\x09"]
    # The first value is resolved to the newest schema.
    assert shown == [{"id": 5, "n": 3}, {"id": 6, "n": 1}]
    assert (wrong.status, wrong.err.splitlines()[-1]) == (2, "hint: --value avro")


def test_protobuf_is_encoded_with_and_without_a_registry(on, topic, tmp_path):
    pytest.importorskip("grpc_tools")
    path = tmp_path / "shop.proto"
    path.write_text(PROTO)
    order = {"id": "1", "parts": [{"id": "2"}], "tag": "AP8="}
    lines = lines_in(tmp_path / "lines", order)
    by_file = ("--value", "protobuf", "--schema", path, "--message", "shop.Order")
    assert on("produce", topic, "-f", lines, "-p", 0, *by_file).status == 0
    with running_registry() as registry:
        registry.add("shop", 3, PROTO, "PROTOBUF")
        by_registry = ("--value", "protobuf", "--registry", registry.url, "--subject", "shop")
        message = ("--message", "shop.Order")
        assert on("produce", topic, "-f", lines, "-p", 0, *by_registry, *message).status == 0
        keys = lines_in(tmp_path / "keys", {"n": 4})
        assert on("produce", topic, "-f", keys, "-p", 1, *by_registry).status == 0
        first = on("consume", topic, "-e", "-p", 1, *by_registry).lines
    plain, prefixed = stored(on, topic)
    # Order is the second message: one index, 1, both as zigzag varints.
    assert prefixed == b"\0\0\0\0\x03" + b"\x02\x02" + plain
    shown = on("consume", topic, "-e", "-p", 0, *by_file).lines
    assert [json.loads(line) for line in shown] == [order, order]
    assert [json.loads(line) for line in first] == [{"n": 4}]


def test_json_is_checked_by_a_json_schema(on, topic, tmp_path):
    pytest.importorskip("jsonschema")
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(JSON_SCHEMA))
    schema = ("--value", "json", "--schema", path)
    assert on("produce", topic, '{"id": 1}', '{"id":2}', "-p", 0, *schema).status == 0
    wrong = on("produce", topic, '{"id": "x"}', "-p", 0, *schema)
    assert wrong.status == 1
    assert "value.id: 'x' is not of type 'integer'" in wrong.err
    assert stored(on, topic) == [b'{"id":1}', b'{"id":2}']
    on("produce", topic, "other", "-p", 0)
    shown = on("consume", topic, "-e", "-p", 0, *schema)
    assert shown.lines == ['{"id": 1}', '{"id": 2}', "other"]
    assert shown.err == "note: 1 value could not be decoded as json: printed as stored\n"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"id": 1}, "value.what is missing, and has no default"),
        ({**FIRST, "idd": 1}, "value.idd is not a field of Order"),
        ({**FIRST, "id": "1"}, "value.id is not of Avro type long"),
        ({**FIRST, "price": "much"}, "value.price is not a decimal: 'much'"),
        ({**FIRST, "then": {"id": 1}}, "value.then.what is missing, and has no default"),
        ({**FIRST, "what": 7}, "value.what fits no branch of its union"),
        ([], "value is not an object, which Order needs"),
    ],
)
def test_a_value_that_does_not_fit_ends_the_input_with_its_line_and_place(
    kctl_on, kctl_topic, tmp_path, avro_file, document, reason
):
    lines = lines_in(tmp_path / "lines", FIRST, document, FIRST)
    found = kctl_on(
        "produce", kctl_topic, "-f", lines, "-p", 0, "--value", "avro", "--schema", avro_file
    )
    assert found.status == 1
    assert f"Line 2 of the input: {reason}\n" in found.err
    assert len(stored(kctl_on, kctl_topic)) == 1


@pytest.fixture
def kctl_on(kctl, kctl_broker):
    return lambda *argv: kctl(*argv, "-b", kctl_broker)


@pytest.fixture
def kctl_topic(kctl_on, name):
    assert kctl_on("topic", "create", name).status == 0
    return name


@pytest.mark.parametrize("command", ["produce", "consume"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--schema", "x"], "A schema goes with --value json, avro or protobuf"),
        (["--value", "avro"], "--value avro needs --schema FILE or --registry URL"),
        (["--value", "avro", "--schema", "missing"], "Cannot read missing"),
        (["--value", "json", "--message", "M"], "--message goes with --value protobuf"),
        (["--value", "avro", "--subject", "s"], "--subject goes with --registry"),
        (
            ["--value", "avro", "--schema", "x", "--registry", "http://r"],
            "--schema and --registry cannot be combined",
        ),
    ],
)
def test_options_that_do_not_go_together_are_rejected(kctl, command, options, message):
    found = kctl(command, "orders", *options, "-b", "127.0.0.1:1")
    assert found.status == 2
    assert found.err.startswith(f"error: {message}")
