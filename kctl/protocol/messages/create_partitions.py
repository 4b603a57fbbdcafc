"""CreatePartitions: add partitions to topics (KIP-195).

API 37, v0-3. v3: throttling by quota (KIP-599).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, boolean, int16, int32, int32_array, string


class CreatePartitionsAssignment(Struct):
    """Replicas of one new partition."""

    broker_ids: list[int] = int32_array()


class CreatePartitionsTopic(Struct):
    """The new total number of partitions of one topic."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )


class CreatePartitionsRequest(Message, api=ApiKey.CREATE_PARTITIONS):
    """Topics to enlarge."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """The outcome of one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Message, api=ApiKey.CREATE_PARTITIONS):
    """Outcomes by topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
