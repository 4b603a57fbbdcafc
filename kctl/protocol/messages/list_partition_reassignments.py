"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, string


class ListPartitionReassignmentsTopics(Struct):
    """TODO."""

    name: str = string()
    partition_indexes: list[int] = int32_array()


class ListPartitionReassignmentsRequest(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    """TODO."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    """TODO."""

    partition_index: int = int32()
    replicas: list[int] = int32_array()
    adding_replicas: list[int] = int32_array()
    removing_replicas: list[int] = int32_array()


class OngoingTopicReassignment(Struct):
    """TODO."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    """TODO."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
