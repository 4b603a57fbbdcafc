"""TxnOffsetCommit: offsets of a group that apply if the producer's transaction commits (KIP-98).

Behaviour:

- Partitions that are not in this broker's metadata are rejected, the others are written.
- Version 3 has the consumer's member id, generation and instance id, so that a consumer that has
  lost its partitions is rejected (KIP-447).
- COORDINATOR_LOAD_IN_PROGRESS is COORDINATOR_NOT_AVAILABLE before version 2.
- A late request, over a connection that its producer has abandoned, is not executed: the
  connection is closed without a response (KAFKA-17754; `coordinator.connection_order`).

Versions: 0-3. v2 leader epoch (KIP-320); v3 flexible, group metadata (KIP-447).

Kafka 2.7: kafka.server.KafkaApis.handleTxnOffsetCommitRequest.
"""

from collections.abc import Iterable, Sequence

from kctl.broker.coordinator.group.offset_commits import OffsetCommit
from kctl.broker.coordinator.group.offsets import CommittedOffset
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_KNOWS_LOADING = 2
_NONE = int(ErrorCode.NONE)
_UNKNOWN_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def handle_txn_offset_commit(services: Services, request: Request) -> None:
    """Commit offsets in a transaction; reply when they are in the log."""
    body: TxnOffsetCommitRequest = request.body
    now_ms = services.runtime.clock.wall_ms()
    state_of = services.metadata_cache.partition
    codes: dict[TopicPartition, int] = {}
    known: list[tuple[TopicPartition, CommittedOffset]] = []
    for topic in body.topics:
        for asked in topic.partitions:
            topic_partition = TopicPartition(topic.name, asked.partition_index)
            if state_of(topic_partition) is None:
                codes[topic_partition] = _UNKNOWN_PARTITION
                continue
            committed = CommittedOffset(
                asked.committed_offset,
                asked.committed_leader_epoch,
                asked.committed_metadata or "",
                now_ms,
            )
            known.append((topic_partition, committed))

    def answer(settled: Sequence[int] | None) -> None:
        if settled is None:
            request.close()
            return
        for (topic_partition, _), code in zip(known, settled, strict=True):
            codes[topic_partition] = _code_for_version(code, request.api_version)
        request.reply(_response(body, codes))

    if not known:
        answer([])
        return
    services.group_coordinator.commit_offsets_in_transaction(
        OffsetCommit(
            body.group_id,
            body.member_id,
            body.group_instance_id,
            body.generation_id,
            known,
            answer,
            body.producer_id,
            body.producer_epoch,
        ),
        request.context.connection_number,
    )


def _code_for_version(code: int, version: int) -> int:
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _KNOWS_LOADING:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return code


def _response(
    body: TxnOffsetCommitRequest, codes: dict[TopicPartition, int]
) -> TxnOffsetCommitResponse:
    def results(name: str, numbers: Iterable[int]) -> list[TxnOffsetCommitResponsePartition]:
        return [
            TxnOffsetCommitResponsePartition(
                partition_index=number, error_code=codes.get(TopicPartition(name, number), _NONE)
            )
            for number in numbers
        ]

    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=results(topic.name, (it.partition_index for it in topic.partitions)),
            )
            for topic in body.topics
        ]
    )
