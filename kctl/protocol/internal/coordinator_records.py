"""Records of __transaction_state and __share_group_state as Kafka 4.1 writes them.

A key begins with the record's type as an int16, a value with its version. Kafka 4.1:
TransactionLog, ShareCoordinatorRecordSerde; KIP-890 (TransactionLogValue v1), KIP-932.
"""

from functools import cache

from kctl.protocol.internal.table_schema import TableSchema, parse_tables

_TRANSACTIONS = """
TransactionLogKey 0 0 flexible none
  transactionalId string 0
TransactionLogValue 0 0-1 flexible 1+
  producerId int64 0+
  previousProducerId int64 1+ #0 =-1
  nextProducerId int64 1+ #1 =-1
  producerEpoch int16 0+
  nextProducerEpoch int16 1+ #3 =-1
  transactionTimeoutMs int32 0+
  transactionStatus int8 0+
  transactionPartitions []struct 0+ ?0+
    topic string 0+
    partitionIds []int32 0+
  transactionLastUpdateTimestampMs int64 0+
  transactionStartTimestampMs int64 0+
  clientTransactionVersion int16 1+ #2
"""
_SHARE = """
ShareSnapshotKey 0 0 flexible none
  groupId string 0
  topicId uuid 0
  partition int32 0
ShareSnapshotValue 0 0 flexible 0+
  snapshotEpoch int32 0+
  stateEpoch int32 0+
  leaderEpoch int32 0+
  startOffset int64 0+
  createTimestamp int64 0+
  writeTimestamp int64 0+
  stateBatches []struct 0+
    firstOffset int64 0+
    lastOffset int64 0+
    deliveryState int8 0+
    deliveryCount int16 0+
ShareUpdateKey 1 0 flexible none
  groupId string 0
  topicId uuid 0
  partition int32 0
ShareUpdateValue 1 0 flexible 0+
  snapshotEpoch int32 0+
  leaderEpoch int32 0+
  startOffset int64 0+
  stateBatches []struct 0+
    firstOffset int64 0+
    lastOffset int64 0+
    deliveryState int8 0+
    deliveryCount int16 0+
"""


@cache
def transaction_schemas() -> dict[str, TableSchema]:
    """Return key and value of __transaction_state by name."""
    return {schema.name: schema for schema in parse_tables(_TRANSACTIONS)}


@cache
def share_schemas() -> dict[str, TableSchema]:
    """Return keys and values of __share_group_state by name."""
    return {schema.name: schema for schema in parse_tables(_SHARE)}
