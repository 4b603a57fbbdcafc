"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32_array,
    int64,
    string,
)


class WritableTxnMarkerTopic(Struct):
    """TODO."""

    name: str = string()
    partition_indexes: list[int] = int32_array()


class WritableTxnMarker(Struct):
    """TODO."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()


class WriteTxnMarkersRequest(Message, api=ApiKey.WRITE_TXN_MARKERS):
    """TODO."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """TODO."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """TODO."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """TODO."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, api=ApiKey.WRITE_TXN_MARKERS):
    """TODO."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
