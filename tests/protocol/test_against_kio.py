"""Every message, byte for byte and value for value, against kio, which reads them independently.

What we encode, kio must decode to the same values (in the order of the wire, as later Kafkas
renamed fields), and encode to the same bytes. kio drops milliseconds of timestamps, knows error
codes as an enum, and drops unknown tagged fields; so the messages here have none of those.
"""

import dataclasses
import datetime
import io
from importlib import import_module

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.schema import Struct
from tests.protocol.instances import Instances

kio_serial = pytest.importorskip("kio.serial", reason="kio is not installed")

# Kafka 2.7's names that changed since.
MODULES = {ApiKey.ALTER_ISR: "alter_partition"}
CLASSES = {
    "ListOffsetRequest": "ListOffsetsRequest",
    "ListOffsetResponse": "ListOffsetsResponse",
    "AlterIsrRequest": "AlterPartitionRequest",
    "AlterIsrResponse": "AlterPartitionResponse",
}
# Tagged fields that later Kafkas added to versions that 2.7 has.
ADDED_LATER = {"snapshot_id", "zk_migration_ready"}
ROUNDS = 30


def kio_class(api, cls, version):
    kind = "request" if cls is api.request_class else "response"
    module = import_module(f"kio.schema.{MODULES.get(api, api.name.lower())}.v{version}.{kind}")
    return getattr(module, CLASSES.get(cls.__name__, cls.__name__))


def what_kio_can_say(field):
    """Values for fields whose every value kio cannot hold."""
    if field.kind == "int16" and field.name.endswith("error_code"):
        return 6
    if field.kind == "int64" and ("timestamp" in field.name or field.name.endswith("_ms")):
        return 1_600_000_000_000
    return None


def our_values(struct: Struct, version):
    """Return all plain values of a kctl message, in wire order."""
    for field in [field for field in struct.fields if field.is_in(version)]:
        yield from flat(getattr(struct, field.name), lambda s: our_values(s, version))


def kio_values(entity):
    """Return all plain values of a kio message, in the order of its definition, the wire order."""
    for field in dataclasses.fields(entity):
        if field.name in ADDED_LATER:
            continue
        yield from flat(getattr(entity, field.name), kio_values)


def flat(value, values_of):
    if isinstance(value, Struct) or dataclasses.is_dataclass(value):
        yield from values_of(value)
    elif isinstance(value, list | tuple):
        yield len(value)
        for element in value:
            yield from flat(element, values_of)
    else:
        yield plain(value)


def plain(value):
    """Times as milliseconds, enums as numbers, views as bytes."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, bool | float | bytes | str) or value is None:
        return value
    return int(value)


CASES = [
    pytest.param(api, kind, id=f"{api.name.lower()}-{kind}")
    for api in ApiKey
    for kind in ("request", "response")
]


@pytest.mark.parametrize(("api", "kind"), CASES)
def test_kio_reads_what_we_write_and_writes_what_we_read(api, kind):
    cls = getattr(api, f"{kind}_class")
    for version in range(api.max_version + 1):
        theirs = kio_class(api, cls, version)
        instances = Instances(api * 100 + version, unknown_tags=False, rules=what_kio_can_say)
        read, write = kio_serial.entity_reader(theirs), kio_serial.entity_writer(theirs)
        for _ in range(ROUNDS):
            message = instances.message(cls, version)
            data = b"".join(encode(message, version))
            entity, size = read(data, 0)
            assert size == len(data)
            assert list(kio_values(entity)) == list(our_values(message, version))
            written = io.BytesIO()
            write(written, entity)
            assert written.getvalue() == data
            assert decode(cls, version, data) == message
