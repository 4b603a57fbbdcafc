"""Produce: append record batches to partitions that the broker leads.

API 0, v0-8. v3: transactions and batches v2 (KIP-98); v5: log start offset (KIP-107); v7: zstd
(KIP-110); v8: errors of single records (KIP-467). acks=0 gets no response.
"""

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
    """Batches for one partition."""

    partition_index: int = int32()
    records: Records = records(nullable="0+")


class TopicProduceData(Struct):
    """Batches for one topic."""

    name: str = string()
    partitions: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api=ApiKey.PRODUCE):
    """Batches by topic and partition; acks -1: all in-sync replicas, 1: the leader, 0: none."""

    transactional_id: str | None = string("3+", nullable="0+")
    acks: int = int16()
    timeout_ms: int = int32()
    topics: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """A rejected record, by its index in the batch."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class PartitionProduceResponse(Struct):
    """The offset of the appended batch, or an error."""

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
    """Answers of one topic."""

    name: str = string()
    partitions: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Message, api=ApiKey.PRODUCE):
    """Answers in the order of the request."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
