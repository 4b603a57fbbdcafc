"""Compares the replicas of a partition over the network, batch by batch.

Each replica is fetched from the same offset (consumers may fetch from followers since Fetch v11),
and batches are compared up to the lowest high watermark. A follower that lags is not a difference,
but other bytes are. After each round the offset advances past the batches that all replicas
returned.

Kafka 2.7: kafka.tools.ReplicaVerificationTool; KIP-392
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.selection import existing_topics
from kctl.errors import CorruptDataError, KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.records.memory_records import batches

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.topics import PartitionDescription
    from kctl.client.cluster_view import BrokerAddress
    from kctl.client.router import Router

_PARTITION_BYTES_MAX = 1024 * 1024


class FetchedBatch(NamedTuple):
    """The properties of a batch that are compared."""

    last_offset: int
    leader_epoch: int
    size: int
    crc: int
    is_crc_valid: bool


@dataclass(frozen=True, slots=True)
class ReplicaDifference:
    """Two replicas that differ at an offset; a batch is None if that replica has none there."""

    partition: TopicPartition
    offset: int
    brokers: tuple[int, int]
    batches: tuple[FetchedBatch | None, FetchedBatch | None]


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    """The result of one partition, with the first difference of each replica."""

    partition: TopicPartition
    batches: int
    end_offset: int
    differences: list[ReplicaDifference]


@dataclass(frozen=True, slots=True)
class VerifiedPartition:
    """The comparison of a partition's replicas; None if it has one replica or an obstacle."""

    partition: "PartitionDescription"
    comparison: ReplicaComparison | None = None
    # Why the replicas cannot be compared; empty if they can.
    obstacle: str = ""

    @property
    def is_same(self) -> bool:
        """Return whether all replicas have the same batches."""
        return not self.obstacle and not (self.comparison and self.comparison.differences)


async def verify_topics(admin: "AdminClient", names: Sequence[str]) -> list[VerifiedPartition]:
    """Compare the replicas of every partition of topics, from the log start offset on.

    A partition that cannot be compared has an obstacle. Raise KctlError if a topic does not exist
    or cannot be described.
    """
    topics = await existing_topics(admin, names)
    await admin.router.refresh(names)
    return [await _verified(admin, it) for topic in topics for it in topic.partitions]


async def _verified(admin: "AdminClient", partition: "PartitionDescription") -> VerifiedPartition:
    brokers = admin.router.view.brokers
    ids = [partition.leader, *(it for it in partition.replicas if it != partition.leader)]
    if len(ids) == 1:
        return VerifiedPartition(partition)
    gone = [broker_id for broker_id in ids if broker_id not in brokers]
    if gone:
        return VerifiedPartition(partition, obstacle=f"broker {gone[0]} is not alive")
    tp = TopicPartition(partition.topic, partition.partition)
    try:
        start = (await admin.offsets.earliest([tp]))[tp]
        if start.error is not None:
            raise start.error
        addresses = [brokers[broker_id] for broker_id in ids]
        found = await compare_replicas(admin.router, tp, addresses, start.offset)
    except KctlError as error:
        return VerifiedPartition(partition, obstacle=str(error))
    return VerifiedPartition(partition, found)


async def compare_replicas(
    router: "Router", partition: TopicPartition, brokers: "Sequence[BrokerAddress]", offset: int
) -> ReplicaComparison:
    """Compare the replicas of `brokers` (the leader first) from `offset` on; raise ApiError if one
    of them has no replica."""
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
    """Return the batches from `offset` on, and the replica's high watermark."""
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
        # The follower has not reached this offset.
        return [], offset
    if found.error_code:
        text = ErrorCode(found.error_code).text
        raise ApiError(
            found.error_code, f"Cannot read {partition} of broker {broker.broker_id}: {text}"
        )
    return _whole_batches(found.record_set or b"", offset), found.high_watermark


def _whole_batches(data: bytes | memoryview, offset: int) -> list[FetchedBatch]:
    fetched: list[FetchedBatch] = []
    # Batches after an unreadable one are not compared: the other replica has a batch there.
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
