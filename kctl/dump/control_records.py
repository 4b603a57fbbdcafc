"""What a control record says, whichever Kafka wrote it.

Kafka 2.7: org.apache.kafka.common.record.ControlRecordType; KIP-98
"""

from dataclasses import dataclass

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
    # Of a transaction's end; None for other types.
    coordinator_epoch: int | None

    @property
    def type_name(self) -> str:
        """ABORT, COMMIT, LEADER_CHANGE or UNKNOWN."""
        try:
            return ControlRecordType(self.type_id).name
        except ValueError:
            return ControlRecordType.UNKNOWN.name


def decode_control_record(record: Record) -> ControlRecord:
    """A record of a control batch; CorruptDataError if it is none."""
    type_id = control_type_id(record.key)
    kind = control_record_type(record.key)
    if kind not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        return ControlRecord(type_id, None)
    return ControlRecord(type_id, read_marker(record).coordinator_epoch)
