"""TxnOffsetCommit: commit a group's offsets inside a transaction (KIP-98).

API 28, v0-3. v2: leader epochs (KIP-320); v3: member and generation fence zombies (KIP-447).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class TxnOffsetCommitRequestPartition(Struct):
    """The offset that is read next, for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message, api=ApiKey.TXN_OFFSET_COMMIT):
    """Offsets that count once the transaction commits."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    """The outcome of one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    """Outcomes of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, api=ApiKey.TXN_OFFSET_COMMIT):
    """Outcomes by partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
