"""OffsetCommit: a group stores how far it has read.

API 8, v0-8. v1: into Kafka instead of ZooKeeper; v2-4: retention time, gone in v5 (KIP-211); v6:
leader epochs (KIP-320); v7: static members (KIP-345).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class OffsetCommitRequestPartition(Struct):
    """The offset that is read next, for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api=ApiKey.OFFSET_COMMIT):
    """Offsets to store; generation -1 and no member: from outside of the group."""

    group_id: str = string()
    generation_id: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """The outcome of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    """Outcomes of one topic."""

    name: str = string()
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, api=ApiKey.OFFSET_COMMIT):
    """Outcomes by partition."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
