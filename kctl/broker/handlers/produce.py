"""Produce: appends record batches to partitions.

Behaviour:

- acks must be -1, 0 or 1; anything else is INVALID_REQUIRED_ACKS for every partition.
- acks=0 gets no response; an error closes the connection, which is all that the client can see.
- Versions 3 and later must hold exactly one v2 batch per partition; zstd needs version 7.
- Records without a whole batch (null, empty or incomplete) close the connection.
- Transactional records need a transactional id: without one the whole request is rejected.
- Records pass from the request's buffer to the file; they are not decoded unless the topic's
  format or compression requires it.

Versions: 0-8. v2 log append time; v3 transactional id, v2 batches only (KIP-98); v5 log start
offset (KIP-107); v7 zstd (KIP-110); v8 record errors (KIP-467).

Kafka 2.7: kafka.server.KafkaApis.handleProduceRequest.
"""

import struct
from typing import Final

from kctl.broker.replication.delayed import AppendResult
from kctl.broker.replication.replica_manager import AppendEntry
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.errors import CorruptDataError
from kctl.protocol.constants import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kctl.records.compression import CompressionType
from kctl.records.memory_records import CURRENT_MAGIC, locate, locations
from kctl.records.record_batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_MASK,
)

_VALID_ACKS: Final = (ACKS_ALL, ACKS_NONE, ACKS_LEADER)
_FIRST_VERSION_OF_V2_BATCHES: Final = 3
_FIRST_VERSION_OF_ZSTD: Final = 7
_ZSTD: Final = int(CompressionType.ZSTD)
# Length, magic and attributes of the batch at the start of a buffer.
_read_prefix: Final = struct.Struct(">8xi4xb4xh").unpack_from


def handle_produce(services: Services, request: Request) -> None:
    """Append, and reply when `acks` is met."""
    body: ProduceRequest = request.body
    acks = body.acks
    entries = _plain_entries(body, request.api_version)
    refused: list[AppendResult] = []
    if entries is None:
        try:
            entries, refused = _examine(body, request.api_version)
        except CorruptDataError:
            # Kafka's parser fails on such a request as a whole and closes the connection.
            request.close()
            return

    def answer(results: list[AppendResult]) -> None:
        _answer(request, acks, [*results, *refused] if refused else results)

    if entries:
        services.replica_manager.append_records(entries, acks, body.timeout_ms, answer)
    else:
        answer([])


def _plain_entries(body: ProduceRequest, version: int) -> list[AppendEntry] | None:
    """Return the entries to append in the common case that every partition has exactly one whole,
    valid v2 batch; None if closer inspection is needed."""
    if version < _FIRST_VERSION_OF_V2_BATCHES or body.acks not in _VALID_ACKS:
        return None
    entries: list[AppendEntry] = []
    for topic in body.topics:
        name = topic.name
        for partition in topic.partitions:
            records = partition.records
            if records is None or len(records) < RECORD_BATCH_OVERHEAD:
                return None
            length, magic, attributes = _read_prefix(records)
            if (
                magic != CURRENT_MAGIC
                or length + LOG_OVERHEAD != len(records)
                or attributes & TRANSACTIONAL_MASK
                or attributes & COMPRESSION_MASK == _ZSTD
            ):
                return None
            entries.append((name, partition.partition_index, records))
    return entries


def _examine(body: ProduceRequest, version: int) -> tuple[list[AppendEntry], list[AppendResult]]:
    """Return the entries to append and the rejected ones; raise CorruptDataError if there are no
    batches."""
    refused: list[AppendResult] = []
    entries: list[AppendEntry] = []
    for topic in body.topics:
        for partition in topic.partitions:
            code, why = _refusal(body.acks, version, partition.records)
            if code:
                refused.append(AppendResult(topic.name, partition.partition_index, code, why))
            else:
                entries.append((topic.name, partition.partition_index, partition.records))
    has_id = version >= _FIRST_VERSION_OF_V2_BATCHES and body.transactional_id is not None
    if not has_id and _is_transactional(body):
        return [], _all_refused(body, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return entries, refused


def _refusal(
    acks: int, version: int, records: memoryview | bytearray | None
) -> tuple[int, str | None]:
    """Return why a partition's records are rejected: (error code, message), or (0, None).

    Raise CorruptDataError for records without a whole batch: null, empty, or incomplete.
    """
    prefix = f"Produce requests with version {version}"
    found = None if records is None else locate(records)
    if records is None or found is None or found.size > len(records):
        raise CorruptDataError(f"{prefix} must have at least one record batch")
    if acks not in _VALID_ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, None
    if version < _FIRST_VERSION_OF_V2_BATCHES:
        return ErrorCode.NONE, None
    if found.magic != CURRENT_MAGIC:
        return (
            ErrorCode.INVALID_RECORD,
            f"{prefix} are only allowed to contain record batches with magic version 2",
        )
    codec = records[found.position + ATTRIBUTES_OFFSET + 1] & COMPRESSION_MASK
    if codec == CompressionType.ZSTD and version < _FIRST_VERSION_OF_ZSTD:
        return (
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"{prefix} are not allowed to use ZStandard compression",
        )
    if found.size < len(records):
        return _trailing_refusal(records, found.size, prefix)
    return ErrorCode.NONE, None


def _is_transactional(body: ProduceRequest) -> bool:
    """Return whether the first batch of any partition is part of a transaction."""
    for topic in body.topics:
        for partition in topic.partitions:
            records = partition.records
            if (
                records is not None
                and len(records) >= RECORD_BATCH_OVERHEAD
                and records[ATTRIBUTES_OFFSET + 1] & TRANSACTIONAL_MASK
                and records[MAGIC_OFFSET] == CURRENT_MAGIC
            ):
                return True
    return False


def _all_refused(body: ProduceRequest, code: ErrorCode) -> list[AppendResult]:
    return [
        AppendResult(topic.name, partition.partition_index, code)
        for topic in body.topics
        for partition in topic.partitions
    ]


def _trailing_refusal(
    records: memoryview | bytearray, position: int, prefix: str
) -> tuple[int, str | None]:
    """Return the error for bytes after the first batch; an incomplete batch there is ignored."""
    try:
        second = next(locations(records, position), None)
    except CorruptDataError as error:
        return ErrorCode.CORRUPT_MESSAGE, str(error)
    if second is None:
        return ErrorCode.NONE, None
    return (
        ErrorCode.INVALID_RECORD,
        f"{prefix} are only allowed to contain exactly one record batch",
    )


def _answer(request: Request, acks: int, results: list[AppendResult]) -> None:
    if acks == ACKS_NONE:
        if any(result.error_code for result in results):
            request.close()
        else:
            request.reply(None)
        return
    topics: dict[str, TopicProduceResponse] = {}
    for result in results:
        topic = topics.get(result.topic)
        if topic is None:
            topics[result.topic] = topic = TopicProduceResponse(name=result.topic)
        topic.partitions.append(_partition_response(result))
    request.reply(ProduceResponse(responses=list(topics.values())))


def _partition_response(result: AppendResult) -> PartitionProduceResponse:
    info = result.info
    if result.error_code or info is None:
        return PartitionProduceResponse(
            partition_index=result.partition,
            error_code=result.error_code,
            base_offset=-1,
            log_start_offset=result.log_start_offset,
            record_errors=[
                BatchIndexAndErrorMessage(
                    batch_index=error.batch_index, batch_index_error_message=error.message
                )
                for error in result.record_errors
            ],
            error_message=result.error_message,
        )
    return PartitionProduceResponse(
        partition_index=result.partition,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )
