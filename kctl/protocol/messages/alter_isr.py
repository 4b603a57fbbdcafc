"""AlterIsr: a leader asks the controller to change in-sync replicas (KIP-497).

API 56, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, int64, string


class PartitionData(Struct):
    """The in-sync replicas that one partition is to have."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = int32_array()
    current_isr_version: int = int32()


class TopicData(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class AlterIsrRequest(Message, api=ApiKey.ALTER_ISR):
    """Changes that a leader asks for."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


class PartitionDataResponse(Struct):
    """The state of one partition that now holds."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32_array()
    current_isr_version: int = int32()


class TopicDataResponse(Struct):
    """Answers of one topic."""

    name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class AlterIsrResponse(Message, api=ApiKey.ALTER_ISR):
    """Answers by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicDataResponse] = array(TopicDataResponse)
