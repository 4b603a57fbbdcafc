"""Decoders for the records of internal topics.

A record that Kafka 2.7 does not know is read as Kafka 4.1 reads it: see `later_records`.

Kafka 2.7: GroupMetadataManager.formatRecordKeyAndValue, TransactionLog.formatRecordKeyAndValue
"""

from collections.abc import Callable

from kctl.dump.control_records import ControlRecord
from kctl.dump.later_records import (
    LaterRecord,
    decode_later_group_record,
    decode_later_transaction_record,
)
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.internal.consumer_offsets import (
    GROUP_KEY_VERSION,
    GROUP_VALUE_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
)
from kctl.protocol.internal.transaction_state import TransactionLogKey, TransactionLogValue
from kctl.protocol.internal.versioned import decode_versioned, stored_version
from kctl.records.record import Record


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset that a group committed; without value: the commit is deleted."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group's generation and members; without value: the group is deleted."""

    key: GroupMetadataKey
    value: GroupMetadataValue | None


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """A transactional id's state; without value: it is deleted."""

    key: TransactionLogKey
    value: TransactionLogValue | None


Decoded = CommittedOffset | StoredGroup | StoredTransaction | LaterRecord | ControlRecord
Decode = Callable[[Record], Decoded]


def _is_known(record: Record, key_version_max: int, value_version_max: int) -> bool:
    """Return whether Kafka 2.7 knows the versions of key and value."""
    if record.key is not None and stored_version(record.key) > key_version_max:
        return False
    return record.value is None or stored_version(record.value) <= value_version_max


def decode_group_record(record: Record) -> CommittedOffset | StoredGroup | LaterRecord:
    """Decode a record of __consumer_offsets; CorruptDataError if it is not one."""
    if record.key is None:
        raise CorruptDataError(
            "Failed to decode message using offset topic decoder (message had a missing key)"
        )
    if not _is_known(record, GROUP_KEY_VERSION, GROUP_VALUE_VERSION):
        return decode_later_group_record(record)
    key = decode_key(record.key)
    value = record.value
    if isinstance(key, OffsetCommitKey):
        return CommittedOffset(
            key, None if value is None else decode_versioned(OffsetCommitValue, value)
        )
    return StoredGroup(key, None if value is None else decode_versioned(GroupMetadataValue, value))


def decode_transaction_record(record: Record) -> StoredTransaction | LaterRecord:
    """Decode a record of __transaction_state; CorruptDataError if it is not one."""
    if record.key is None:
        raise CorruptDataError(
            "Failed to decode message using transaction log decoder (message had a missing key)"
        )
    if not _is_known(record, TransactionLogKey.max_version, TransactionLogValue.max_version):
        return decode_later_transaction_record(record)
    key = decode_versioned(TransactionLogKey, record.key)
    value = record.value
    return StoredTransaction(
        key, None if value is None else decode_versioned(TransactionLogValue, value)
    )
