"""Transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn (KIP-98).

Behaviour:

- InitProducerId without a transactional id returns a fresh producer id with epoch 0, even if the
  client names a previous one (KIP-360).
- AddPartitionsToTxn adds all or none: if a partition is unknown, internal, or of a topic that the
  client may not write, the others are OPERATION_NOT_ATTEMPTED.
- EndTxn replies when the decision is in the coordinator's log; the markers follow.
- A late request, over a connection that its producer has abandoned, is not executed: the
  connection is closed without a response (KAFKA-17754; `coordinator.connection_order`).

Versions: InitProducerId 0-4 (v2 flexible; v3 producer id and epoch, KIP-360; v4 PRODUCER_FENCED,
KIP-588), the others 0-2 (v2 PRODUCER_FENCED; INVALID_PRODUCER_EPOCH before).

Kafka 2.7: kafka.server.KafkaApis.handleInitProducerIdRequest and related methods.
"""

from collections.abc import Callable, Container, Iterable, Sequence

from kctl.broker.coordinator.transaction.transaction_coordinator import Producer, ProducerIdResult
from kctl.broker.replies import reply_from
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.broker.topic_creation import is_internal
from kctl.model import TopicPartition
from kctl.protocol.acl import AclOperation, ResourceType
from kctl.protocol.constants import GROUP_METADATA_TOPIC
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kctl.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kctl.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.schema import Message
from kctl.store.errors import StoreError

# From these versions on clients know PRODUCER_FENCED (KIP-588).
_INIT_KNOWS_FENCED = 4
_TXN_KNOWS_FENCED = 2


def handle_init_producer_id(services: Services, request: Request) -> None:
    """Assign a producer its id and epoch."""
    body: InitProducerIdRequest = request.body
    if (body.producer_id < 0) != (body.producer_epoch < 0):
        request.reply(_init_error(ErrorCode.INVALID_REQUEST))
    elif body.transactional_id is None:
        reply_from(
            services.runtime.scheduler,
            request,
            _assign_fresh_id(services, request),
            "init-producer-id",
        )
    else:

        def answer(result: ProducerIdResult) -> None:
            code = _fenced_for(result.error_code, request.api_version >= _INIT_KNOWS_FENCED)
            request.reply(
                InitProducerIdResponse(
                    error_code=code,
                    producer_id=result.producer_id,
                    producer_epoch=result.producer_epoch,
                )
            )

        claimed = Producer(body.transactional_id, body.producer_id, body.producer_epoch)
        services.transaction_coordinator.init_producer_id(
            claimed, body.transaction_timeout_ms, answer
        )


async def _assign_fresh_id(services: Services, request: Request) -> None:
    try:
        producer_id = await services.producer_ids.next_producer_id()
    except StoreError:
        request.reply(_init_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    request.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def _init_error(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


def handle_add_partitions_to_txn(services: Services, request: Request) -> None:
    """Add partitions to a transaction."""
    body: AddPartitionsToTxnRequest = request.body
    names = (topic.name for topic in body.topics for _ in topic.partitions)
    writable = request.access.allowed(AclOperation.WRITE, ResourceType.TOPIC, names)
    refused = [_refusals(services, topic, writable) for topic in body.topics]
    if any(map(any, refused)):
        others = ErrorCode.OPERATION_NOT_ATTEMPTED
        request.reply(_added(body, ([code or others for code in codes] for codes in refused)))
        return
    services.transaction_coordinator.add_partitions(
        Producer(body.transactional_id, body.producer_id, body.producer_epoch),
        [TopicPartition(it.name, partition) for it in body.topics for partition in it.partitions],
        request.context.connection_number,
        _answer(request, lambda code: _added(body, ([code] * len(codes) for codes in refused))),
    )


def _refusals(
    services: Services, topic: AddPartitionsToTxnTopic, writable: Container[str]
) -> list[int]:
    """Return for each partition the error if the transaction cannot write to it, or 0."""
    if topic.name not in writable or is_internal(topic.name):
        return [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(topic.partitions)
    known = services.metadata_cache.snapshot.topics.get(topic.name, ())
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [0 if partition in known else unknown for partition in topic.partitions]


def _added(
    body: AddPartitionsToTxnRequest, codes: Iterable[Sequence[int]]
) -> AddPartitionsToTxnResponse:
    """Return the response with the code of each partition of each topic."""
    return AddPartitionsToTxnResponse(
        results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results=[
                    AddPartitionsToTxnPartitionResult(partition_index=partition, error_code=code)
                    for partition, code in zip(topic.partitions, of_topic, strict=True)
                ],
            )
            for topic, of_topic in zip(body.topics, codes, strict=True)
        ]
    )


def handle_add_offsets_to_txn(services: Services, request: Request) -> None:
    """Add the partition of a group's offsets to a transaction."""
    body: AddOffsetsToTxnRequest = request.body
    number = services.group_coordinator.partition_for(body.group_id)
    services.transaction_coordinator.add_partitions(
        Producer(body.transactional_id, body.producer_id, body.producer_epoch),
        [TopicPartition(GROUP_METADATA_TOPIC, number)],
        request.context.connection_number,
        _answer(request, lambda code: AddOffsetsToTxnResponse(error_code=code)),
    )


def handle_end_txn(services: Services, request: Request) -> None:
    """Commit or abort a transaction."""
    body: EndTxnRequest = request.body
    services.transaction_coordinator.end_transaction(
        Producer(body.transactional_id, body.producer_id, body.producer_epoch),
        request.context.connection_number,
        _answer(request, lambda code: EndTxnResponse(error_code=code)),
        is_commit=body.committed,
    )


def _answer(request: Request, response: Callable[[int], Message]) -> Callable[[int | None], None]:
    """Return the reply callback for an error code; None, for a late request, closes the
    connection."""

    def answer(code: int | None) -> None:
        if code is None:
            request.close()
        else:
            knows_fenced = request.api_version >= _TXN_KNOWS_FENCED
            request.reply(response(_fenced_for(code, knows_fenced)))

    return answer


def _fenced_for(code: int, knows_fenced: bool) -> int:
    if code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return code
