"""Decodes control records of any Kafka version.

Kafka 2.7: org.apache.kafka.common.record.ControlRecordType; KIP-98
"""

from typing import Any

from kctl.lazy_dataclass import dataclass
from kctl.records.control import (
    ControlRecordType,
    control_record_type,
    control_type_id,
    read_marker,
)
from kctl.records.record import Record


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A marker, or a control record that a later Kafka wrote."""

    type_id: int
    # Of the end of a transaction; None for other types.
    coordinator_epoch: int | None
    # Of a control record of KRaft: its type, the prefix of its fields in a dump, and its fields.
    kraft_name: str | None = None
    label: str = ""
    fields: dict[str, Any] | None = None

    @property
    def type_name(self) -> str:
        """Return ABORT, COMMIT, another type of Kafka 2.7 or of KRaft, or UNKNOWN."""
        if self.kraft_name is not None:
            return self.kraft_name
        try:
            return ControlRecordType(self.type_id).name
        except ValueError:
            return ControlRecordType.UNKNOWN.name


def decode_control_record(record: Record) -> ControlRecord:
    """Decode a record of a control batch; raise CorruptDataError if it is invalid."""
    type_id = control_type_id(record.key)
    kind = control_record_type(record.key)
    if kind not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        return ControlRecord(type_id, None)
    return ControlRecord(type_id, read_marker(record).coordinator_epoch)
