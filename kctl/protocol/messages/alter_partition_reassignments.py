"""AlterPartitionReassignments: start or cancel reassignments of partitions (KIP-455).

API 45, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, string


class ReassignablePartition(Struct):
    """The target replicas of one partition; null cancels."""

    partition_index: int = int32()
    replicas: list[int] | None = int32_array(nullable="0+", default=None)


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    """Reassignments to start or to cancel."""

    timeout_ms: int = int32(default=60000)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """The outcome of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReassignableTopicResponse(Struct):
    """Outcomes of one topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    """Outcomes by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
