"""ListPartitionReassignments: reassignments that are under way (KIP-455).

API 46, v0.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, string


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = int32_array()


class ListPartitionReassignmentsRequest(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    """Partitions to look at; null: all."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    """A partition on the move."""

    partition_index: int = int32()
    replicas: list[int] = int32_array()
    adding_replicas: list[int] = int32_array()
    removing_replicas: list[int] = int32_array()


class OngoingTopicReassignment(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    """The reassignments in progress."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
