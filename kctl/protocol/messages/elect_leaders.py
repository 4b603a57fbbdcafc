"""ElectLeaders: elect preferred leaders (KIP-183), or unclean ones (v1, KIP-460).

API 43, v0-2.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int8, int16, int32, int32_array, string


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partition_id: list[int] = int32_array()


class ElectLeadersRequest(Message, api=ApiKey.ELECT_LEADERS):
    """Partitions that need a leader; null: all. Election type 0: preferred, 1: unclean."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    """The outcome of one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReplicaElectionResult(Struct):
    """The results of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, api=ApiKey.ELECT_LEADERS):
    """Outcomes by partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
