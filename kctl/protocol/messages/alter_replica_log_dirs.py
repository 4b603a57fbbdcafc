"""AlterReplicaLogDirs: move replicas between the log directories of a broker (KIP-113).

API 34, v0-1.
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int32_array, string


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[int] = int32_array()


class AlterReplicaLogDir(Struct):
    """The replicas to move to one directory."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Message, api=ApiKey.ALTER_REPLICA_LOG_DIRS):
    """The target directories of replicas."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    """The outcome of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    """Outcomes of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Message, api=ApiKey.ALTER_REPLICA_LOG_DIRS):
    """Outcomes by partition."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
