"""Records of __transaction_state, as a transaction coordinator writes and reads them. Pure.

The key is the transactional id; the value is its whole state, or missing (a tombstone).

Kafka 2.7: kafka.coordinator.transaction.TransactionLog.
"""

from kctl.broker.coordinator.transaction.transaction import Transaction
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.internal.transaction_state import (
    KEY_VERSION,
    VALUE_VERSION,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kctl.protocol.internal.versioned import decode_versioned, encode_versioned, stored_version


@dataclass(slots=True)
class TransactionRecord:
    """A transactional id's state, or its tombstone."""

    key: bytes
    value: bytes | None
    transactional_id: str
    transaction: Transaction | None


def transaction_record(transaction: Transaction) -> TransactionRecord:
    """Return the record that makes `transaction` the current state."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        partitions.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=[
            PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in partitions.items()
        ],
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if transaction.state is TransactionState.EMPTY:
        value.transaction_partitions = None
    name = transaction.transactional_id
    return TransactionRecord(_key(name), encode_versioned(value, VALUE_VERSION), name, transaction)


def tombstone(transactional_id: str) -> TransactionRecord:
    """Return the record that deletes a transactional id."""
    return TransactionRecord(_key(transactional_id), None, transactional_id, None)


def read_record(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """Parse a record of the log; return None for types that 2.7 does not know (later versions write
    them). Raise CorruptDataError for bytes that cannot be parsed."""
    if key is None:
        raise CorruptDataError("A record of __transaction_state has no key")
    if stored_version(key) != KEY_VERSION:
        return None
    name = decode_versioned(TransactionLogKey, key).transactional_id
    if value is None:
        return TransactionRecord(key, None, name, None)
    read = decode_versioned(TransactionLogValue, value)
    try:
        state = TransactionState(read.transaction_status)
    except ValueError:
        raise CorruptDataError(
            f"Transactional id {name} is in the unknown state {read.transaction_status}"
        ) from None
    transaction = Transaction(
        name,
        read.producer_id,
        read.producer_epoch,
        read.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in read.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        read.transaction_start_timestamp_ms,
        read.transaction_last_update_timestamp_ms,
    )
    return TransactionRecord(key, value, name, transaction)


def _key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
