"""Decoders: what the records of internal topics, and control records, say.

Kafka 2.7: GroupMetadataManager.formatRecordKeyAndValue, TransactionLog.formatRecordKeyAndValue
"""

from collections.abc import Callable
from dataclasses import dataclass

from kctl.errors import CorruptDataError
from kctl.protocol.internal.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
)
from kctl.protocol.internal.transaction_state import TransactionLogKey, TransactionLogValue
from kctl.protocol.internal.versioned import decode_versioned
from kctl.records.control import (
    ControlRecordType,
    control_record_type,
    control_type_id,
    read_marker,
)
from kctl.records.record import Record


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset that a group committed; no value: the commit is forgotten."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group's generation and members; no value: the group is gone."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """A transactional id's state; no value: it is forgotten."""

    key: TransactionLogKey
    value: TransactionLogValue | None


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


Decoded = CommittedOffset | StoredGroup | StoredTransaction | ControlRecord
Decode = Callable[[Record], Decoded]


def decode_group_record(record: Record) -> CommittedOffset | StoredGroup:
    """A record of __consumer_offsets; CorruptDataError if it is none."""
    if record.key is None:
        raise CorruptDataError(
            "Failed to decode message using offset topic decoder (message had a missing key)"
        )
    key = decode_key(record.key)
    value = record.value
    if isinstance(key, OffsetCommitKey):
        return CommittedOffset(
            key, None if value is None else decode_versioned(OffsetCommitValue, value)
        )
    return StoredGroup(key, None if value is None else decode_versioned(GroupMetadataValue, value))


def decode_transaction_record(record: Record) -> StoredTransaction:
    """A record of __transaction_state; CorruptDataError if it is none."""
    if record.key is None:
        raise CorruptDataError(
            "Failed to decode message using transaction log decoder (message had a missing key)"
        )
    key = decode_versioned(TransactionLogKey, record.key)
    value = record.value
    return StoredTransaction(
        key, None if value is None else decode_versioned(TransactionLogValue, value)
    )


def decode_control_record(record: Record) -> ControlRecord:
    """A record of a control batch; CorruptDataError if it is none."""
    type_id = control_type_id(record.key)
    kind = control_record_type(record.key)
    if kind not in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        return ControlRecord(type_id, None)
    return ControlRecord(type_id, read_marker(record).coordinator_epoch)
