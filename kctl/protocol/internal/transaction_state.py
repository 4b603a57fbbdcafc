"""Keys and values of the topic __transaction_state.

A null value forgets a transactional id. Kafka 2.7: TransactionLog; KIP-98.
"""

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


class TransactionLogKey(Message, versions="0"):
    """Which transactional id."""

    transactional_id: str = string()


class PartitionsSchema(Struct):
    """Partitions of one topic that the transaction has written to."""

    topic: str = string()
    partition_ids: list[int] = int32_array()


class TransactionLogValue(Message, versions="0"):
    """A producer and its transaction; partitions are null in the state Empty.

    transaction_status is TransactionState's number: 0 Empty, 1 Ongoing, 2 PrepareCommit,
    3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6 Dead, 7 PrepareEpochFence.
    """

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
