"""DescribeTopicPartitions: partitions with their eligible leader replicas (KIP-966).

API 75, v0. A response has as many partitions as the broker allows; the next request continues at
its cursor.
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32_array,
    nullable_struct,
    string,
    uuid,
)


class TopicRequest(Struct):
    """A topic to describe."""

    name: str = string()


class Cursor(Struct):
    """The first partition of the next response."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Message, api=LaterApi.DESCRIBE_TOPIC_PARTITIONS):
    """Topics to describe, from a cursor on; no topics: all."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nullable_struct(Cursor, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    """One partition; lists of eligible replicas are null where the cluster does not keep them."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = int32_array()
    isr_nodes: list[int] = int32_array()
    eligible_leader_replicas: list[int] | None = int32_array(nullable="0+", default=None)
    last_known_elr: list[int] | None = int32_array(nullable="0+", default=None)
    offline_replicas: list[int] = int32_array(ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    """One topic, or why it cannot be described."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-(2**31))


class DescribeTopicPartitionsResponse(Message, api=LaterApi.DESCRIBE_TOPIC_PARTITIONS):
    """Topics described; a cursor if there are more partitions."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nullable_struct(Cursor, nullable="0+")
