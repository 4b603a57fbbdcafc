"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Records,
    Struct,
    array,
    int16,
    int32,
    int64,
    records,
    string,
)


class PartitionProduceData(Struct):
    """TODO."""

    partition_index: int = int32()
    records: Records = records(nullable="0+")


class TopicProduceData(Struct):
    """TODO."""

    name: str = string()
    partitions: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api=ApiKey.PRODUCE):
    """TODO."""

    transactional_id: str | None = string("3+", nullable="0+")
    acks: int = int16()
    timeout_ms: int = int32()
    topics: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """TODO."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class PartitionProduceResponse(Struct):
    """TODO."""

    partition_index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", ignorable=True
    )
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class TopicProduceResponse(Struct):
    """TODO."""

    name: str = string()
    partitions: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Message, api=ApiKey.PRODUCE):
    """TODO."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
