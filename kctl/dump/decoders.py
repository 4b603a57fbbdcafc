"""Decoders: what the records of internal topics say.

Kafka 2.7: GroupMetadataManager.formatRecordKeyAndValue, TransactionLog.formatRecordKeyAndValue
"""

from collections.abc import Callable
from dataclasses import dataclass

from kctl.dump.control_records import ControlRecord
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
