"""Keys and values of the topic __transaction_state.

A null value deletes a transactional id. Kafka 2.7: TransactionLog; KIP-98.
"""

from enum import IntEnum

from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int32_array,
    int64,
    string,
)

KEY_VERSION = 0
VALUE_VERSION = 0


class TransactionState(IntEnum):
    """State of a transactional id; the value is the number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Return Kafka's spelling, such as "PrepareCommit"."""
        return self.name.title().replace("_", "")


class TransactionLogKey(Message, versions="0"):
    """The transactional id."""

    transactional_id: str = string()


class PartitionsSchema(Struct):
    """Partitions of one topic that the transaction has written to."""

    topic: str = string()
    partition_ids: list[int] = int32_array()


class TransactionLogValue(Message, versions="0"):
    """A producer and its transaction; partitions are null in the state Empty.

    transaction_status is a TransactionState; timestamps in milliseconds, -1: none.
    """

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
