"""LeaderAndIsr: the controller assigns the partitions that a broker leads and follows.

API 4, v0-4. v2: broker epochs, partitions grouped by topic (KIP-380); v3: adding and removing
replicas (KIP-455).
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


class LeaderAndIsrPartitionState(Struct):
    """The new state of one partition."""

    topic_name: str = string("0-1", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = int32_array()
    zk_version: int = int32()
    replicas: list[int] = int32_array()
    adding_replicas: list[int] = int32_array("3+", ignorable=True)
    removing_replicas: list[int] = int32_array("3+", ignorable=True)
    is_new: bool = boolean("1+", ignorable=True)


class LeaderAndIsrTopicState(Struct):
    """Partitions of one topic."""

    topic_name: str = string("2+")
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


class LeaderAndIsrLiveLeader(Struct):
    """The address of a leader to follow."""

    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


class LeaderAndIsrRequest(Message, api=ApiKey.LEADER_AND_ISR):
    """Partitions to lead or follow; v0 and v1 list them without topics around."""

    controller_id: int = int32()
    controller_epoch: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(
        LeaderAndIsrPartitionState, "0-1"
    )
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


class LeaderAndIsrPartitionError(Struct):
    """The outcome of one partition."""

    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


class LeaderAndIsrResponse(Message, api=ApiKey.LEADER_AND_ISR):
    """Outcomes by partition."""

    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError)
