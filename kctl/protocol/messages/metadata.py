"""Metadata: describe brokers, topics, partitions and their leaders.

API 3, v0-9. v1: racks, controller (KIP-4); v4: auto-creation by choice; v5: offline replicas
(KIP-112); v7: leader epochs (KIP-320); v8: authorized operations (KIP-430).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, boolean, int16, int32, int32_array, string


class MetadataRequestTopic(Struct):
    """A topic to describe."""

    name: str = string()


class MetadataRequest(Message, api=ApiKey.METADATA):
    """Topics to describe; null: all (in v0 an empty list is)."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8+")
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
    """One topic, or why it cannot be described."""

    error_code: int = int16()
    name: str = string()
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-(2**31))


class MetadataResponse(Message, api=ApiKey.METADATA):
    """The cluster as this broker knows it."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8+", default=-(2**31))
