"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, int64, string


class AddPartitionsToTxnTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[int] = int32_array()


class AddPartitionsToTxnRequest(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN):
    """TODO."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnPartitionResult(Struct):
    """TODO."""

    partition_index: int = int32()
    error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """TODO."""

    name: str = string()
    results: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResponse(Message, api=ApiKey.ADD_PARTITIONS_TO_TXN):
    """TODO."""

    throttle_time_ms: int = int32()
    results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)
