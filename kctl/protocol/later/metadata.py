"""Metadata: describe brokers and topics with their ids.

API 3, v10-12. v10: topic ids (KIP-516); v11: no authorized operations of the cluster (KIP-700);
v12: topics requested by id.
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
    string,
    uuid,
)


class MetadataRequestTopic(Struct):
    """A topic to describe, by name or, with a null name, by id."""

    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


class MetadataRequest(Message, api=LaterApi.METADATA):
    """Topics to describe; null: all."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    """A live broker, at the listener that received the request."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """Leader and replicas of one partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = int32_array()
    isr_nodes: list[int] = int32_array()
    offline_replicas: list[int] = int32_array("5+", ignorable=True)


class MetadataResponseTopic(Struct):
    """One topic, or why it cannot be described; the name of an unknown id is null."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-(2**31))


class MetadataResponse(Message, api=LaterApi.METADATA):
    """The cluster as this broker knows it."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-(2**31))
