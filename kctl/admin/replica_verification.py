"""Compares the replicas of a partition over the network, batch by batch.

Every replica is asked for the same offsets (a consumer may fetch from a follower since Fetch v11),
and what they answer is compared batch by batch, up to the lowest high watermark. So a follower
that lags is no difference, one that holds other bytes is. Between rounds the offset advances by
what all had.

Kafka 2.7: kafka.tools.ReplicaVerificationTool; KIP-392
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kctl.errors import CorruptDataError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.records.memory_records import batches

if TYPE_CHECKING:
    from kctl.client.cluster_view import BrokerAddress
    from kctl.client.router import Router

_PARTITION_BYTES_MAX = 1024 * 1024


class FetchedBatch(NamedTuple):
    """What of a batch is compared."""

    last_offset: int
    leader_epoch: int
    size: int
    crc: int
    is_crc_valid: bool


@dataclass(frozen=True, slots=True)
class ReplicaDifference:
    """Two replicas that part at an offset; a batch is None where that replica has none there."""

    partition: TopicPartition
    offset: int
    brokers: tuple[int, int]
    batches: tuple[FetchedBatch | None, FetchedBatch | None]


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    """What was compared of one partition, and where replicas first part."""

    partition: TopicPartition
    batches: int
    end_offset: int
    differences: list[ReplicaDifference]


async def compare_replicas(
    router: "Router", partition: TopicPartition, brokers: "Sequence[BrokerAddress]", offset: int
) -> ReplicaComparison:
    """Compare what `brokers` (the leader first) hold from `offset` on; ApiError if one of them
    has no such replica."""
    differences: list[ReplicaDifference] = []
    compared = 0
    others = list(brokers[1:])
    while others:
        mine, end = await _fetch(router, brokers[0], partition, offset)
        fetched = [await _fetch(router, broker, partition, offset) for broker in others]
        shared = min([end, *(high_watermark for _, high_watermark in fetched)])
        done = [batch for batch in mine if batch.last_offset < shared]
        for broker, (answered, _) in zip(list(others), fetched, strict=True):
            theirs = [batch for batch in answered if batch.last_offset < shared]
            found = _first_difference(done, theirs)
            if found is not None:
                ids = brokers[0].broker_id, broker.broker_id
                at = offset if not found[0] else _offset_of(done, found[0], offset)
                differences.append(ReplicaDifference(partition, at, ids, found[1]))
                others.remove(broker)
            else:
                done = done[: len(theirs)] if theirs else done[:0]
        if not done:
            break
        compared += len(done)
        offset = done[-1].last_offset + 1
    return ReplicaComparison(partition, compared, offset, differences)


def _first_difference(
    mine: list[FetchedBatch], theirs: list[FetchedBatch]
) -> tuple[int, tuple[FetchedBatch | None, FetchedBatch | None]] | None:
    for i, (a, b) in enumerate(zip(mine, theirs, strict=False)):
        if a != b or not a.is_crc_valid:
            return i, (a, b)
    return None


def _offset_of(fetched: list[FetchedBatch], index: int, offset: int) -> int:
    return fetched[index - 1].last_offset + 1 if index else offset


async def _fetch(
    router: "Router", broker: "BrokerAddress", partition: TopicPartition, offset: int
) -> tuple[list[FetchedBatch], int]:
    """The batches from `offset` on, and the replica's high watermark."""
    channel = await router.channel_to(broker)
    item = FetchPartition(
        partition=partition.partition,
        fetch_offset=offset,
        partition_max_bytes=_PARTITION_BYTES_MAX,
    )
    response = await channel.send(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_PARTITION_BYTES_MAX,
            topics=[FetchTopic(topic=partition.topic, partitions=[item])],
        )
    )
    if response.error_code:
        raise ApiError(response.error_code)
    found = response.responses[0].partition_responses[0]
    if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # A follower that has not got so far yet.
        return [], offset
    if found.error_code:
        text = ErrorCode(found.error_code).text
        raise ApiError(
            found.error_code, f"Cannot read {partition} of broker {broker.broker_id}: {text}"
        )
    return _whole_batches(found.record_set or b"", offset), found.high_watermark


def _whole_batches(data: bytes | memoryview, offset: int) -> list[FetchedBatch]:
    fetched: list[FetchedBatch] = []
    # What follows a place that is no batch is not compared: the other replica has one there.
    with suppress(CorruptDataError):
        fetched.extend(
            FetchedBatch(
                batch.last_offset, batch.partition_leader_epoch, batch.size, batch.crc,
                batch.is_crc_valid(),
            )
            for batch in batches(data)
            if batch.last_offset >= offset
        )  # fmt: skip
    return fetched
