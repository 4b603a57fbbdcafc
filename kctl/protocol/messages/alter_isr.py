"""AlterIsr: change in-sync replicas; a leader sends it to the controller (KIP-497).

API 56, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, int64, string


class PartitionData(Struct):
    """The proposed in-sync replicas of one partition."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = int32_array()
    current_isr_version: int = int32()


class TopicData(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class AlterIsrRequest(Message, api=ApiKey.ALTER_ISR):
    """The proposals of a leader."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class PartitionDataResponse(Struct):
    """The current state of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32_array()
    current_isr_version: int = int32()


class TopicDataResponse(Struct):
    """Results of one topic."""

    name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class AlterIsrResponse(Message, api=ApiKey.ALTER_ISR):
    """Results by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicDataResponse] = array(TopicDataResponse)
