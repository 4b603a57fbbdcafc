"""WriteTxnMarkers: write COMMIT or ABORT markers into partition logs (KIP-98).

API 27, v0.
"""

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
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = int32_array()


class WritableTxnMarker(Struct):
    """A marker; transaction_result true is COMMIT."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()


class WriteTxnMarkersRequest(Message, api=ApiKey.WRITE_TXN_MARKERS):
    """Markers to write."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """The outcome of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """Outcomes of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """Outcomes of one producer's marker."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, api=ApiKey.WRITE_TXN_MARKERS):
    """Outcomes by marker."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
