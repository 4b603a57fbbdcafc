"""Values of Apicurio's and AWS Glue's serializers become columns by the schema that wrote them."""

import io
import json
import zlib
from uuid import UUID

import fastavro
import pytest

from kctl.cli.app import run as kctl
from kctl.errors import UnreachableError, UsageError
from kctl.export.evolution import RegisteredSchemas
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.glue import GlueReader
from kctl.export.options import ExportOptions, FieldFormat
from kctl.export.registries import parse_registry
from kctl.export.wire_formats import INFLATED_BYTES_MAX, IdKind
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.glue import GlueClient
from tests.export.log_files import rows_of, write_segment
from tests.export.test_dead_letters import letters
from tests.export.test_evolution import values
from tests.support.apicurio import running_apicurio
from tests.support.moto_server import CREDENTIALS, running_moto

OLD = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}
NAME = {"name": "name", "type": "string", "default": ""}
NEW = OLD | {"fields": [*OLD["fields"], NAME]}
V2, V3 = "/apis/registry/v2", "/apis/registry/v3"
GLOBAL, CONTENT = "apicurio.value.globalId", "apicurio.value.contentId"


@pytest.fixture
def registry():
    with running_apicurio() as running:
        # The third version has the text of the first, and so its content id.
        running.add("users-value", 71, 5, json.dumps(OLD))
        running.add("users-value", 72, 6, json.dumps(NEW))
        running.add("users-value", 75, 5, json.dumps(OLD))
        yield running


def avro(document, schema=OLD):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), document)
    return stream.getvalue()


def write(tmp_path, values, first=0):
    """Write values, each alone or with the headers of its record."""
    pairs = [it if isinstance(it, tuple) else (it, {}) for it in values]
    records = [
        Record(first + n, 1000, b"k", value, tuple(headers.items()))
        for n, (value, headers) in enumerate(pairs)
    ]
    write_segment(RealDisk(), tmp_path / "logs" / "users-0", first, [build_batch(records)])


def export(tmp_path, registry, *words):
    place = ("--out", str(tmp_path / "table"), "--dead-letters", str(tmp_path / "letters"))
    what = ("-t", "users", "--value", "avro", "--registry", registry)
    return kctl(["export", str(tmp_path / "logs"), *what, *place, *words])


def id8(number):
    return number.to_bytes(8, "big")


def id4(number):
    return number.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("path", "numbers"),
    [(V2, (71, 72)), (V3, (5, 6)), ("", (5, 6)), (f"{V2}?ids=content", (5, 6)),
     (f"{V3}?ids=global", (71, 72))],
)  # fmt: skip
def test_apicurios_ids_are_before_the_value_or_in_a_header(registry, tmp_path, path, numbers):
    old, new = avro({"id": 1}), avro({"id": 2, "name": "b"}, NEW)
    write(tmp_path, [
        b"\0" + id8(numbers[0]) + old, b"\0" + id4(numbers[1]) + new, (old, {GLOBAL: id8(75)}),
        (new, {CONTENT: id8(6), "apicurio.value.encoding": b"BINARY", "other": b"x"}), None,
    ])  # fmt: skip
    assert export(tmp_path, f"apicurio+{registry.url}{path}") == 0
    first, second = {"id": 1}, {"id": 2}
    assert values(tmp_path) == [first, second, first, second, None]
    assert letters(tmp_path, "offset") == []


def test_the_columns_are_those_of_the_newest_version_and_later_ones_are_added(registry, tmp_path):
    address = f"apicurio+{registry.url}"
    write(tmp_path, [b"\0" + id4(6) + avro({"id": 2, "name": "b"}, NEW)])
    assert export(tmp_path, address) == 0
    newest = NEW | {"fields": [*NEW["fields"], NAME | {"name": "mail"}]}
    registry.add("users-value", 80, 9, json.dumps(newest))
    document = {"id": 3, "name": "c", "mail": "d"}
    write(tmp_path, [b"\0" + id4(9) + avro(document, newest)], first=1)
    assert export(tmp_path, address) == 0
    # The newest version of the first run had one column.
    assert values(tmp_path) == [{"id": 2, "name": None, "mail": None}, document]


def test_values_without_a_known_id_are_dead_letters_with_their_own_bytes(registry, tmp_path):
    old = avro({"id": 1})
    bad = [
        old, b"\0" + id8(99) + old, b"\0" + id4(71) + old, (old, {GLOBAL: id8(5)}), b"\0\0",
        (old, {GLOBAL: b"\5"}), (old, {CONTENT: id8(5), "apicurio.value.encoding": b"JSON"}),
        b"\0" + id4(5) + old + b"more",
    ]  # fmt: skip
    write(tmp_path, [b"\0" + id4(5) + old, *bad])
    with running_apicurio() as other:
        other.add("users-value", 71, 5, json.dumps(OLD))
        assert export(tmp_path, f"apicurio+{other.url}") == 0
    assert values(tmp_path) == [{"id": 1}]
    missing = "no schema id, neither before the value nor in a header"
    reasons = [
        missing, "unknown schema id content 99", "unknown schema id content 71",
        "unknown schema id global 5", missing, f"the header {GLOBAL} does not have 8 bytes",
        "the encoding b'JSON' of Avro is not read", "a value of schema id 71 and other bytes",
    ]  # fmt: skip
    found = letters(tmp_path, "offset", "value", "reason")
    originals = [it[0] if isinstance(it, tuple) else it for it in bad]
    assert found == [
        (1 + n, value, reason)
        for n, (value, reason) in enumerate(zip(originals, reasons, strict=True))
    ]


def test_without_dead_letters_an_unknown_id_ends_the_run(registry, tmp_path, capsys):
    write(tmp_path, [(avro({"id": 1}), {GLOBAL: id8(99)})])
    words = ["-t", "users", "--value", "avro", "--registry", f"apicurio+{registry.url}"]
    out = ["--out", str(tmp_path / "table")]
    assert kctl(["export", str(tmp_path / "logs"), *words, *out]) == 1
    said = capsys.readouterr().err
    assert "users-0 offset 0: the value cannot be decoded: unknown schema id global 99" in said
    keep = ["--on-undecodable", "keep"]
    assert kctl(["export", str(tmp_path / "logs"), *words, *out, *keep]) == 0
    assert rows_of(tmp_path / "table", ("value", "value_raw")) == [(None, avro({"id": 1}))]


@pytest.mark.parametrize("path", [V2, V3])
def test_references_lead_to_other_groups_and_json_schemas_have_columns(tmp_path, path):
    city = {"type": "object", "properties": {"city": {"type": "string"}}}
    user = {"type": "object", "properties": {"home": {"$ref": "home.json"}}}
    place = {"groupId": "shop", "artifactId": "home", "version": "1", "name": "home.json"}
    with running_apicurio() as registry:
        registry.add("home", 3, 3, json.dumps(city), "JSON", group="shop")
        registry.add("people", 4, 4, json.dumps(user), "JSON", group="a b", references=(place,))
        body = b'{"home": {"city": "a"}}'
        write(tmp_path, [b"\0" + id8(4) + body, (body, {GLOBAL: id8(4)})])
        words = ["--value", "json", "--registry", f"apicurio+{registry.url}{path}?ids=global"]
        words += ["--subject", "a b/people", "--out", str(tmp_path / "table")]
        assert kctl(["export", str(tmp_path / "logs"), *words]) == 0
    assert values(tmp_path) == [{"home": {"city": "a"}}] * 2


# UUIDs of versions of a schema in AWS Glue.
FIRST, SECOND = "7b5c2f3a-0d3e-4e5a-9f37-1c0b7a9d1e11", "0f1e2d3c-4b5a-4968-8776-655443322110"


def glue(identity, body, compression=0):
    return bytes([3, compression]) + UUID(identity).bytes + body


class Glue:
    """The versions of a schema by their numbers; None was deleted."""

    def __init__(self, *versions):
        self.versions = versions

    def latest(self, _schema):
        return len(self.versions)

    def version(self, _schema, number):
        found = self.versions[number - 1]
        return found and (found[0], "AVRO", json.dumps(found[1]))


def test_values_of_glue_are_read_by_their_versions_compressed_or_not(tmp_path):
    old, new = avro({"id": 1}), avro({"id": 2, "name": "b"}, NEW)
    bad = [
        b"", b"\0\0\0\0\1" + old, glue("f" * 32, old), glue(FIRST, old, 4),
        glue(FIRST, b"plain", 5),
        glue(FIRST, zlib.compress(old) + b"more", 5), glue(FIRST, zlib.compress(old)[:-1], 5),
        glue(FIRST, zlib.compress(bytes(INFLATED_BYTES_MAX + 1)), 5),
    ]  # fmt: skip
    write(tmp_path, [glue(FIRST, old), glue(SECOND, zlib.compress(new), 5), None, *bad])
    found = GlueReader(Glue((FIRST, OLD), None, (SECOND, NEW))).read("users")
    assert [it.number for it in found.versions] == [1, 3]
    writers = tuple((it.number, it.text) for it in found.versions)
    options = ExportOptions(
        value_format=FieldFormat.AVRO, value_schema=writers[-1][1], value_writers=writers,
        value_wire=found.wire, dead_letters=str(tmp_path / "letters"),
    )  # fmt: skip
    known = RegisteredSchemas(writers[-1][1], writers, found.wire)
    out = str(tmp_path / "table")
    request = ExportRequest([str(tmp_path / "logs")], out, options, schemas=lambda: known)
    request.run = "run"
    export_logs(request, run_here)
    assert values(tmp_path) == [{"id": 1, "name": ""}, {"id": 2, "name": "b"}, None]
    reasons = [reason for (reason,) in letters(tmp_path, "reason")]
    unread = "not compressed by zlib: Error -3 while decompressing data: incorrect header check"
    partial = f"not a compressed value of up to {INFLATED_BYTES_MAX} bytes"
    assert reasons == [
        *["no header of AWS Glue before the value"] * 2, f"unknown schema id {UUID('f' * 32)}",
        "unknown compression 4 of AWS Glue", unread, partial, partial, partial,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_subject_is_read_from_glue_by_boto3(tmp_path, monkeypatch, capsys):
    boto3 = pytest.importorskip("boto3")
    with running_moto() as url:
        for name, text in (CREDENTIALS | {"AWS_ENDPOINT_URL": url}).items():
            monkeypatch.setenv(name, text)
        client = boto3.client("glue")
        client.create_registry(RegistryName="shop")
        facts = {"DataFormat": "AVRO", "Compatibility": "BACKWARD"}
        first = client.create_schema(
            RegistryId={"RegistryName": "shop"}, SchemaName="users", **facts,
            SchemaDefinition=json.dumps(OLD),
        )  # fmt: skip
        second = client.register_schema_version(
            SchemaId={"RegistryName": "shop", "SchemaName": "users"},
            SchemaDefinition=json.dumps(NEW),
        )
        new = avro({"id": 2, "name": "b"}, NEW)
        write(tmp_path, [
            glue(first["SchemaVersionId"], avro({"id": 1})),
            glue(second["SchemaVersionId"], zlib.compress(new), 5), glue(FIRST, new),
        ])  # fmt: skip
        assert export(tmp_path, "glue://eu-west-1/shop") == 0
        assert values(tmp_path) == [{"id": 1, "name": ""}, {"id": 2, "name": "b"}]
        assert letters(tmp_path, "reason") == [(f"unknown schema id {FIRST}",)]
        assert export(tmp_path, "glue://eu-west-1/none") == 2
        assert "AWS Glue, registry none: " in capsys.readouterr().err
    # The server is gone.
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert export(tmp_path, "glue://eu-west-1/shop") == 3
    assert "AWS Glue: Could not connect to the endpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("ThrottlingException", 400, UnreachableError),
        ("InternalServiceException", 500, UnreachableError),
        ("ServiceUnavailable", 503, UnreachableError),
        ("AccessDeniedException", 400, UsageError),
    ],
)
def test_a_busy_glue_may_answer_later(monkeypatch, code, status, expected):
    """A followed table waits for it; it ended."""
    pytest.importorskip("boto3")
    from botocore.stub import Stubber

    for name, text in CREDENTIALS.items():
        monkeypatch.setenv(name, text)
    client = GlueClient("eu-west-1", "shop")
    with Stubber(client._client) as stub:
        stub.add_client_error("get_schema", code, "no", status)
        with pytest.raises(expected, match="registry shop: no"):
            client.latest("users")


def test_addresses_name_the_interface_and_what_ids_mean():
    plain = parse_registry("apicurio+https://user:word@host/apis/registry/v2/")
    assert (plain.url, plain.api) == ("https://user:word@host/apis/registry/v2", 2)
    assert plain.ids is IdKind.GLOBAL
    newest = parse_registry("apicurio+http://host:8080")
    assert (newest.url, newest.ids) == ("http://host:8080/apis/registry/v3", IdKind.CONTENT)
    assert parse_registry("glue://eu-west-1").name == "default-registry"
    assert parse_registry("http://apicurio:8081").url == "http://apicurio:8081"


@pytest.mark.parametrize(
    "address",
    ["apicurio+ftp://host", "apicurio+http://", "apicurio+http://host/other",
     "apicurio+http://host/apis/registry/v1", "apicurio+http://host?ids=both",
     "apicurio+http://host?id=content", "glue://", "glue:/x", "glue://r/a/b"],
)  # fmt: skip
def test_other_addresses_are_refused(address):
    with pytest.raises(UsageError, match="Not the address"):
        parse_registry(address)


def test_what_cannot_be_read_is_a_usage_error(registry, tmp_path, capsys):
    write(tmp_path, [b"x"])
    words = ["-t", "users", "--out", str(tmp_path / "table"), "--registry"]
    address = f"apicurio+{registry.url}"
    registry.add("proto-value", 90, 90, 'syntax = "proto3"; message A { int32 n = 1; }', "PROTOBUF")
    proto = ["--value", "protobuf", "--subject", "proto-value"]
    assert kctl(["export", str(tmp_path / "logs"), *words, address, *proto]) == 2
    assert "are not read" in capsys.readouterr().err
    assert kctl(["export", str(tmp_path / "logs"), *words, address, "--value", "json"]) == 2
    assert "users-value has AVRO schemas" in capsys.readouterr().err
    none = ["--value", "avro", "--subject", "none"]
    assert kctl(["export", str(tmp_path / "logs"), *words, address, *none]) == 2
    consume = ["-b", "127.0.0.1:1", "--value", "avro", "--registry", address]
    assert kctl(["consume", "users", *consume]) == 2
    assert "kctl consume and kctl produce know Confluent's bytes" in capsys.readouterr().err
