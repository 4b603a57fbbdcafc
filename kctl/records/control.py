"""Control batches: the markers that end a transaction in every partition it wrote to.

A control batch has one record: its key says COMMIT or ABORT, its value holds the epoch of the
transaction coordinator that wrote it, so that markers of a deposed coordinator are rejected.

Kafka 2.7: org.apache.kafka.common.record.ControlRecordType, EndTransactionMarker; KIP-98
"""

import struct
from enum import IntEnum

from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.builder import RecordBatchBuilder
from kctl.records.record import Record
from kctl.records.record_batch import NO_PARTITION_LEADER_EPOCH

__all__ = [
    "ControlRecordType",
    "EndTransactionMarker",
    "control_record_type",
    "marker_batch",
    "read_marker",
]

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """The type of a control record; UNKNOWN for types of later Kafka versions, which readers skip.

    2 and 3 are Kafka 2.7's. Since 2.8, LEADER_CHANGE is 2: see kctl.dump.later_records.
    """

    ABORT = 0
    COMMIT = 1
    QUORUM_REASSIGNMENT = 2
    LEADER_CHANGE = 3
    UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a producer's transaction in one partition."""

    control_type: ControlRecordType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        """Return whether the marker commits the transaction."""
        return self.control_type == ControlRecordType.COMMIT


def control_type_id(key: bytes | None) -> int:
    """Return the type number in a control record's key; CorruptDataError if the key is invalid."""
    if key is None or len(key) < _KEY.size:
        raise CorruptDataError(f"Control record's key {key!r} is too short")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptDataError(f"Control record's key has version {version}")
    return int(number)


def control_record_type(key: bytes | None) -> ControlRecordType:
    """Return the type in a control record's key; CorruptDataError if the key is invalid."""
    try:
        return ControlRecordType(control_type_id(key))
    except ValueError:
        return ControlRecordType.UNKNOWN


def read_marker(record: Record) -> EndTransactionMarker:
    """Return the marker in a control record; CorruptDataError if it is of another type."""
    kind = control_record_type(record.key)
    if kind not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        raise CorruptDataError(f"Control record at offset {record.offset} ends no transaction")
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptDataError(f"Marker at offset {record.offset} is too short")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptDataError(f"Marker at offset {record.offset} has version {version}")
    return EndTransactionMarker(kind, coordinator_epoch)


def marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Return the control batch that writes `marker` into a partition's log."""
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
    builder.append(
        timestamp=timestamp,
        key=_KEY.pack(0, marker.control_type),
        value=_VALUE.pack(0, marker.coordinator_epoch),
    )
    return builder.build()
