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

from collections.abc import Callable, Iterator, Sequence

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
    AddPartitionsToTxnTopicResult,
)
from kctl.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kctl.protocol.schema import Message
from kctl.runtime.turns import in_turns
from kctl.store.errors import StoreError
from kctl.work import Work, nested_parts, parts

# Partitions of AddPartitionsToTxn that are looked up, or answered, in one turn.
PARTITIONS_PER_TURN = 500
# Topics whose permissions are looked up in one turn.
ACCESSES_PER_TURN = 250

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
    scheduler = services.runtime.scheduler
    # The code of each partition, in order.
    codes: list[int] = []
    added: list[TopicPartition] = []

    def looked_up(_: None) -> None:
        if any(codes):
            others = int(ErrorCode.OPERATION_NOT_ATTEMPTED)
            answer([code or others for code in codes])
            return
        services.transaction_coordinator.add_partitions(
            Producer(body.transactional_id, body.producer_id, body.producer_epoch),
            added,
            request.context.connection_number,
            settled,
        )

    def settled(code: int | None) -> None:
        if code is None:
            request.close()
        else:
            code = _fenced_for(code, request.api_version >= _TXN_KNOWS_FENCED)
            answer([code] * len(codes))

    def answer(final: Sequence[int]) -> None:
        in_turns(scheduler, _added(body, final), request.reply, request.fail)

    in_turns(scheduler, _looking_up(services, request, codes, added), looked_up, request.fail)


def _looking_up(
    services: Services, request: Request, codes: list[int], added: list[TopicPartition]
) -> Work[None]:
    """Add the partitions of the request to `added`, and to `codes` for each of them the error if
    the transaction cannot write to it, or 0."""
    body: AddPartitionsToTxnRequest = request.body
    writable = yield from _writable(request)
    topics = services.metadata_cache.snapshot.topics
    refused = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    groups = ((topic.name, topic.partitions) for topic in body.topics)
    for part in nested_parts(groups, PARTITIONS_PER_TURN):
        if part is None:
            yield
            continue
        name, numbers = part
        added += [TopicPartition(name, number) for number in numbers]
        if name not in writable or is_internal(name):
            codes += [refused] * len(numbers)
        else:
            known = topics.get(name, ())
            codes += [0 if number in known else unknown for number in numbers]


def _writable(request: Request) -> Work[set[str]]:
    """Return the topics of the request that the client may write."""
    body: AddPartitionsToTxnRequest = request.body
    counts: dict[str, int] = {}
    for topics in parts(body.topics, PARTITIONS_PER_TURN):
        for topic in topics:
            counts[topic.name] = counts.get(topic.name, 0) + len(topic.partitions)
        if len(topics) == PARTITIONS_PER_TURN:
            yield
    writable: set[str] = set()
    for named in parts([it for it in counts.items() if it[1]], ACCESSES_PER_TURN):
        writable.update(
            name
            for name, count in named
            if request.access.allows(AclOperation.WRITE, ResourceType.TOPIC, name, count=count)
        )
        if len(named) == ACCESSES_PER_TURN:
            yield
    return writable


def _added(
    body: AddPartitionsToTxnRequest, codes: Sequence[int]
) -> Work[AddPartitionsToTxnResponse]:
    """Return the response; `codes` has one for each requested partition, in order."""
    response = AddPartitionsToTxnResponse()
    code_of = iter(codes)

    def groups() -> Iterator[tuple[AddPartitionsToTxnTopicResult, Sequence[int]]]:
        for topic in body.topics:
            result = AddPartitionsToTxnTopicResult(name=topic.name)
            response.results.append(result)
            yield result, topic.partitions

    for part in nested_parts(groups(), PARTITIONS_PER_TURN):
        if part is None:
            yield
            continue
        result, numbers = part
        result.results += [
            AddPartitionsToTxnPartitionResult(partition_index=it, error_code=next(code_of))
            for it in numbers
        ]
    return response


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
