"""TODO."""

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
    """TODO."""

    topic_name: str = string("0")
    partition_index: int = int32("0")


class StopReplicaTopicV1(Struct):
    """TODO."""

    name: str = string("1-2")
    partition_indexes: list[int] = int32_array("1-2")


class StopReplicaPartitionState(Struct):
    """TODO."""

    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+")


class StopReplicaTopicState(Struct):
    """TODO."""

    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


class StopReplicaRequest(Message, api=ApiKey.STOP_REPLICA):
    """TODO."""

    controller_id: int = int32()
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


class StopReplicaPartitionError(Struct):
    """TODO."""

    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class StopReplicaResponse(Message, api=ApiKey.STOP_REPLICA):
    """TODO."""

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
