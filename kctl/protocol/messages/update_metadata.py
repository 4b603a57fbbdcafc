"""UpdateMetadata: the controller sends a broker the state of the whole cluster.

API 6, v0-6. v1-3: endpoints, racks, listener names (KIP-103); v4: offline replicas (KIP-112); v5:
broker epochs (KIP-380).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, int64, string


class UpdateMetadataPartitionState(Struct):
    """One partition as the controller sees it."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32_array()
    zk_version: int = int32()
    replicas: list[int] = int32_array()
    offline_replicas: list[int] = int32_array("4+", ignorable=True)


class UpdateMetadataTopicState(Struct):
    """Partitions of one topic."""

    topic_name: str = string("5+")
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


class UpdateMetadataEndpoint(Struct):
    """The address of one listener of a broker."""

    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


class UpdateMetadataBroker(Struct):
    """A live broker."""

    id: int = int32()
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="0+", ignorable=True)


class UpdateMetadataRequest(Message, api=ApiKey.UPDATE_METADATA):
    """Partitions that changed, and all live brokers."""

    controller_id: int = int32()
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(
        UpdateMetadataPartitionState, "0-4"
    )
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


class UpdateMetadataResponse(Message, api=ApiKey.UPDATE_METADATA):
    """Whether the broker took it in."""

    error_code: int = int16()
