"""Requests that clients of the simulation send, and the batches in them."""

from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.records.builder import RecordBatchBuilder
from kctl.simulation.ledger import Key
from kctl.simulation.runtime import SimEntropy

PRODUCE_TIMEOUT_MS = 1_000


def batch_of(
    name: str, key: Key, sequence: int, count: int, producer_id: int, epoch: int,
    entropy: SimEntropy,
) -> bytes:  # fmt: skip
    """Return a batch of `count` records; without a producer id it is a plain one."""
    is_plain = producer_id < 0
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=-1 if is_plain else sequence
    )
    for n in range(count):
        value = f"{name} {key[0]}-{key[1]} {sequence + n} ".encode()
        builder.append(
            timestamp=1_600_000_000_000 + sequence,
            key=None,
            value=value + entropy.random_bytes(entropy.between(0, 120)),
        )
    return bytes(builder.build())


def produce_request(key: Key, batch: bytes, *, acks: int) -> ProduceRequest:
    """Return a request to append a batch to one partition."""
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=PRODUCE_TIMEOUT_MS,
        topics=[
            TopicProduceData(
                name=key[0],
                partitions=[PartitionProduceData(partition_index=key[1], records=batch)],
            )
        ],
    )


def fetch_request(key: Key, offset: int) -> FetchRequest:
    """Return a consumer's request to read one partition from `offset` on, without waiting."""
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic=key[0],
                partitions=[
                    FetchPartition(
                        partition=key[1], fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
    )


def commit_request(group: str, key: Key, offset: int) -> OffsetCommitRequest:
    """Return a request to commit an offset of one partition, without being a member."""
    return OffsetCommitRequest(
        group_id=group,
        generation_id=-1,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=key[0],
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=key[1], committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
    )
