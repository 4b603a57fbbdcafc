"""Fetch: read record batches, as a consumer or as a follower.

API 1, v0-12. v4: isolation levels (KIP-98); v7: incremental sessions (KIP-227); v9: leader epochs
(KIP-320); v10: zstd (KIP-110); v11: fetch from the closest replica (KIP-392); v12: truncation on
fetch (KIP-595).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import (
    Message,
    Records,
    Struct,
    array,
    int8,
    int16,
    int32,
    int32_array,
    int64,
    records,
    string,
    struct,
)


class FetchPartition(Struct):
    """The fetch position in one partition, and the largest size of the result."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()


class FetchTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions to drop from the session."""

    topic: str = string("7+")
    partitions: list[int] = int32_array("7+")


class FetchRequest(Message, api=ApiKey.FETCH):
    """The partitions to fetch; replica_id -1 is a consumer, session epoch -1 a fetch without
    session."""

    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None)
    replica_id: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class EpochEndOffset(Struct):
    """The largest epoch not above the fetcher's, and its end offset."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    """The current leader."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class AbortedTransaction(Struct):
    """A producer's transaction in this data that must not be shown."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class FetchablePartitionResponse(Struct):
    """Batches of one partition, whole except perhaps the last, or an error."""

    partition: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    record_set: Records = records(nullable="0+")


class FetchableTopicResponse(Struct):
    """Answers of one topic."""

    topic: str = string()
    partition_responses: list[FetchablePartitionResponse] = array(FetchablePartitionResponse)


class FetchResponse(Message, api=ApiKey.FETCH):
    """The fetched data; session id 0 is no session."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
