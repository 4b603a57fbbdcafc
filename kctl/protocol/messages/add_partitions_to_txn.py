"""AddPartitionsToTxn: add partitions to a transaction (KIP-98).

API 24, v0-2. v2: PRODUCER_FENCED (KIP-588).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, int64, string


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = int32_array()


class AddPartitionsToTxnRequest(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN):
    """Partitions that the transaction is going to write."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnPartitionResult(Struct):
    """The outcome of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """Outcomes of one topic."""

    name: str = string()
    results: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResponse(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN):
    """Outcomes by partition."""

    throttle_time_ms: int = int32()
    results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)
