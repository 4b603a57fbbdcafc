"""LaterRecord: records of internal topics that Kafka 2.7 does not know, as Kafka 4.1 reads them.

Texts are those of Kafka 4.1's kafka-dump-log: JSON of the record's type or version and its fields.
What Kafka 2.7 knows is read by `decoders`, and keeps the text of Kafka 2.7.

Kafka 4.1: kafka.tools.DumpLogSegments (OffsetsMessageParser, TransactionLogMessageParser,
ShareGroupStateMessageParser, ClusterMetadataLogMessageParser)
"""

import base64
import json
import re
from dataclasses import field
from typing import Any

from kctl.dump.control_records import ControlRecord
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.internal.consumer_protocol import PROTOCOL_TYPE
from kctl.protocol.internal.coordinator_records import share_schemas, transaction_schemas
from kctl.protocol.internal.group_records import group_schemas, member_protocol_schemas
from kctl.protocol.internal.kraft_control_records import kraft_control_schemas
from kctl.protocol.internal.metadata_records import metadata_schemas
from kctl.protocol.internal.table_schema import TableSchema
from kctl.protocol.internal.versioned import stored_version
from kctl.protocol.primitives import read_uvarint
from kctl.records.control import control_type_id
from kctl.records.record import Record

Document = dict[str, Any]

_FRAME_VERSION = 1
_VERSION_BYTES = 2
_LEGACY_OFFSET_TYPE = 0
# Name, what kafka-dump-log prints before the fields, and the schema of each KRaft control record.
_KRAFT_CONTROL_TYPES = {
    2: ("LEADER_CHANGE", "LeaderChange:", "LeaderChangeMessage"),
    3: ("SNAPSHOT_HEADER", "SnapshotHeader", "SnapshotHeaderRecord"),
    4: ("SNAPSHOT_FOOTER", "SnapshotFooter", "SnapshotFooterRecord"),
    5: ("KRAFT_VERSION", "KRaftVersion", "KRaftVersionRecord"),
    6: ("KRAFT_VOTERS", "KRaftVoters", "VotersRecord"),
}
_WORD = re.compile("(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class LaterKey:
    """A record's key; filters use `group` and `transactional_id`."""

    fields: Document
    group: str | None = None
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class LaterRecord:
    """A record of an internal topic; without value: the object of the key is deleted."""

    # None in __cluster_metadata, which has no keys.
    key: LaterKey | None
    value: Document | None
    # Of a type that Kafka 4.1 does not know: its kafka-dump-log's text for the key.
    unknown: str | None = field(default=None)

    def texts(self) -> tuple[str | None, str | None]:
        """Return key and payload as kafka-dump-log 4.1 prints them; None: not printed."""
        if self.unknown is not None:
            return self.unknown, None
        key = None if self.key is None else compact_json(self.key.fields)
        return key, "<DELETE>" if self.value is None else compact_json(self.value)

    def document(self) -> Document:
        """Return the document of key and value."""
        return {
            "type": "internal_record",
            "key": None if self.key is None else self.key.fields,
            "is_tombstone": self.value is None and self.unknown is None,
            "value": self.value,
            "unknown": self.unknown,
        }


def compact_json(fields: Document) -> str:
    """Return JSON without spaces."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def decode_later_group_record(record: Record) -> LaterRecord:
    """Decode a record of __consumer_offsets; CorruptDataError if it is not one."""
    return _coordinator_record(record, group_schemas())


def decode_later_transaction_record(record: Record) -> LaterRecord:
    """Decode a record of __transaction_state; CorruptDataError if it is not one."""
    return _coordinator_record(record, transaction_schemas())


def decode_share_group_record(record: Record) -> LaterRecord:
    """Decode a record of __share_group_state; CorruptDataError if it is not one."""
    return _coordinator_record(record, share_schemas())


def _coordinator_record(record: Record, schemas: dict[str, TableSchema]) -> LaterRecord:
    if record.key is None:
        raise CorruptDataError("Failed to decode message (message had a missing key)")
    number = stored_version(record.key)
    found = [schema for schema in schemas.values() if schema.number == number]
    keys = [schema for schema in found if schema.name.endswith("Key")]
    if not keys:
        unknown = f"Unknown record type {number} at offset {record.offset}, skipping."
        return LaterRecord(None, None, unknown)
    fields = keys[0].read(0, record.key, _VERSION_BYTES)
    key = LaterKey(
        {"type": str(number), "data": fields},
        fields.get("group", fields.get("groupId")), fields.get("transactionalId"),
    )  # fmt: skip
    if record.value is None:
        return LaterRecord(key, None)
    version = stored_version(record.value)
    # Both types of committed offsets have the same value.
    name = keys[0].name.removeprefix("Legacy").removesuffix("Key") + "Value"
    value = schemas[name].read(version, record.value, _VERSION_BYTES)
    if name == "GroupMetadataValue" and value["protocolType"] == PROTOCOL_TYPE:
        for member in value["members"]:
            _open_member(member)
    return LaterRecord(key, {"version": str(version), "data": value})


def _open_member(member: Document) -> None:
    """Replace the subscription and the assignment of a member by their fields."""
    for name in ("subscription", "assignment"):
        data = base64.b64decode(member[name])
        try:
            schema = member_protocol_schemas()[f"ConsumerProtocol{name.title()}"]
            member[name] = schema.read(stored_version(data), data, _VERSION_BYTES)
        except CorruptDataError:
            continue  # The bytes stay as they are.


def decode_metadata_record(record: Record) -> LaterRecord:
    """Decode a record of __cluster_metadata; CorruptDataError if it is not one."""
    if record.value is None:
        raise CorruptDataError("a metadata record without a value")
    data = record.value
    try:
        frame_version, at = read_uvarint(data, 0)
        number, at = read_uvarint(data, at)
        version, at = read_uvarint(data, at)
    except IndexError:
        raise CorruptDataError("a truncated metadata record") from None
    if frame_version != _FRAME_VERSION:
        raise CorruptDataError(f"a metadata record with frame version {frame_version}")
    schema = metadata_schemas().get(number)
    if schema is None:
        raise CorruptDataError(f"a metadata record of the unknown type {number}")
    fields = schema.read(version, data, at)
    name = _WORD.sub("_", schema.name).upper()
    return LaterRecord(None, {"type": name, "version": version, "data": fields})


def decode_kraft_control_record(record: Record) -> ControlRecord:
    """Decode a control record of __cluster_metadata; CorruptDataError if it is not one."""
    number = control_type_id(record.key)
    if number not in _KRAFT_CONTROL_TYPES or record.value is None:
        return ControlRecord(number, None, "UNKNOWN")
    name, label, schema_name = _KRAFT_CONTROL_TYPES[number]
    # The value begins with its version, as an int16 that is also its first field.
    fields = kraft_control_schemas()[schema_name].read(stored_version(record.value), record.value)
    return ControlRecord(number, None, name, label, fields)
