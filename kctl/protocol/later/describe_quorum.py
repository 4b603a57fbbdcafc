"""DescribeQuorum: the leader, voters and observers of the metadata log (KIP-595).

API 55, v0-2. v1: times of fetches (KIP-836); v2: directories and listeners of voters (KIP-853).
"""

from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class PartitionData(Struct):
    """A partition to describe."""

    partition_index: int = int32()


class TopicData(Struct):
    """A topic to describe: only `__cluster_metadata` has a quorum."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Message, api=LaterApi.DESCRIBE_QUORUM):
    """Partitions to describe."""

    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    """A replica of the metadata log; times are -1 where unknown."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class PartitionDataResponse(Struct):
    """The quorum of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicDataResponse(Struct):
    """The quorums of one topic."""

    topic_name: str = string()
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse)


class Listener(Struct):
    """A listener of a voter."""

    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    """A voter's listeners."""

    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Message, api=LaterApi.DESCRIBE_QUORUM):
    """Quorums described."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[TopicDataResponse] = array(TopicDataResponse)
    nodes: list[Node] = array(Node, "2+")
