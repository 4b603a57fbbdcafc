"""StopReplica: the controller stops replicas of a broker, and may delete them.

API 5, v0-3. v1: broker epochs (KIP-380); v3: leader epochs and deletion per partition (KIP-570).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int32_array,
    int64,
    string,
)


class StopReplicaPartitionV0(Struct):
    """A partition to stop, v0."""

    topic_name: str = string("0")
    partition_index: int = int32("0")


class StopReplicaTopicV1(Struct):
    """Partitions of one topic to stop, v1 and v2."""

    name: str = string("1-2")
    partition_indexes: list[int] = int32_array("1-2")


class StopReplicaPartitionState(Struct):
    """A partition to stop; leader epoch -2: the topic is being deleted."""

    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+")


class StopReplicaTopicState(Struct):
    """Partitions of one topic to stop, since v3."""

    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


class StopReplicaRequest(Message, api=ApiKey.STOP_REPLICA):
    """Replicas to stop."""

    controller_id: int = int32()
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


class StopReplicaPartitionError(Struct):
    """The outcome of one partition."""

    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Message, api=ApiKey.STOP_REPLICA):
    """Outcomes by partition."""

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
