"""Fetch: read record batches, waiting for more if there are too few.

Behaviour:
- Answers hold slices of segment files; record bytes are not read here (sendfile).
- The first batch found is given whole even beyond the limits (KIP-74), except in versions 0-2,
  whose clients take what fits.
- Waits up to max_wait_ms for min_bytes; any error answers at once.
- Versions 0-3 get batches in the format they know (down-conversion).
- Incremental sessions hold what a client asked for (KIP-227).
- Many partitions are read, and answered, in parts, with turns of the loop for others.

Versions: 0-12. v3 max bytes; v4 isolation level (KIP-98); v5 log start offset; v7 sessions; v9
leader epoch (KIP-320); v10 zstd (KIP-110); v11 rack (KIP-392); v12 flexible, tagged.

Kafka 2.7: kafka.server.KafkaApis.handleFetchRequest, FetchManager.
"""

from collections.abc import Sequence
from typing import Any

from kctl.broker.fetch_session import FetchContext, Key
from kctl.broker.replication.replica_manager import (
    FetchDataInfo,
    FetchIsolation,
    FetchParams,
    FetchResult,
)
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from kctl.records.down_convert import down_convert
from kctl.runtime.turns import Work, in_turns

READ_COMMITTED = 1
# From here on consumers know that a follower may serve them (KIP-392).
FOLLOWER_FETCH_VERSION = 11
# Partitions answered between two turns for others, about 5 ms if no records are converted.
ANSWERS_PER_TURN = 2_000
_EMPTY = b""


def handle_fetch(services: Services, request: Request) -> None:
    """Read, and answer when there is enough."""
    body: FetchRequest = request.body
    version = request.api_version
    now_ms = services.runtime.clock.monotonic_ms()
    context = services.fetch_sessions.open_context(body, version, now_ms)
    if context.error_code:
        request.reply(FetchResponse(error_code=context.error_code))
        return
    params = _params(services, body, version)

    def answer(results: list[FetchResult]) -> None:
        if len(results) < ANSWERS_PER_TURN:
            responses = [_partition_response(services, result, version) for result in results]
            request.reply(_response(context, responses))
        else:
            work = _response_in_parts(services, context, results, version)
            in_turns(services.runtime.scheduler, work, request.reply)

    services.replica_manager.fetch(params, context.partitions, answer)


def _params(services: Services, body: FetchRequest, version: int) -> FetchParams:
    if body.replica_id >= 0:
        isolation = FetchIsolation.LOG_END
    elif body.isolation_level == READ_COMMITTED:
        isolation = FetchIsolation.TXN_COMMITTED
    else:
        isolation = FetchIsolation.HIGH_WATERMARK
    max_bytes = body.max_bytes if version >= 3 else 0x7FFFFFFF
    return FetchParams(
        replica_id=body.replica_id,
        max_wait_ms=body.max_wait_ms,
        min_bytes=body.min_bytes,
        max_bytes=min(max_bytes, services.config.fetch_max_bytes),
        isolation=isolation,
        is_hard_limit=version <= 2,
        client_rack=body.rack_id if version >= FOLLOWER_FETCH_VERSION else None,
    )


def _response_in_parts(
    services: Services, context: FetchContext, results: Sequence[FetchResult], version: int
) -> Work[FetchResponse]:
    responses = []
    for number, result in enumerate(results, 1):
        if number % ANSWERS_PER_TURN == 0:
            yield
        responses.append(_partition_response(services, result, version))
    yield
    return _response(context, responses)


def _response(
    context: FetchContext, responses: Sequence[tuple[str, FetchablePartitionResponse]]
) -> FetchResponse:
    if context.session is not None:
        responses = _note_session(context, responses)
    topics: dict[str, FetchableTopicResponse] = {}
    for topic, response in responses:
        entry = topics.get(topic)
        if entry is None:
            topics[topic] = entry = FetchableTopicResponse(topic=topic)
        entry.partition_responses.append(response)
    return FetchResponse(session_id=context.session_id, responses=list(topics.values()))


def _note_session(
    context: FetchContext, responses: Sequence[tuple[str, FetchablePartitionResponse]]
) -> list[tuple[str, FetchablePartitionResponse]]:
    """Leave out what the client knows already; what is served goes to the session's end."""
    session = context.session
    assert session is not None
    kept, served = [], list[Key]()
    for topic, response in responses:
        cached = session.partitions.get((topic, response.partition))
        has_records = bool(response.record_set)
        is_news = cached is None or cached.note_answer(
            error_code=response.error_code,
            high_watermark=response.high_watermark,
            log_start_offset=response.log_start_offset,
            has_records=has_records,
        )
        # The reader is to cut its log: it must hear of that, and of the rest again afterwards.
        if response.diverging_epoch.epoch >= 0:
            is_news = True
            if cached is not None:
                cached.was_in_error = True
        # Or to ask somebody else.
        is_news = is_news or response.preferred_read_replica >= 0
        if is_news or not context.is_incremental:
            kept.append((topic, response))
            if has_records:
                served.append((topic, response.partition))
    session.move_to_end(served)
    return kept


def _partition_response(
    services: Services, result: FetchResult, version: int
) -> tuple[str, FetchablePartitionResponse]:
    data = result.data
    records: Any = _EMPTY
    error_code = result.error_code
    if data is not None and data.records is not None:
        records = data.records
        if version < 10:
            error_code, records = _for_old_version(services, result, data, version)
            if error_code:
                return result.topic, FetchablePartitionResponse(
                    partition=result.request.partition,
                    error_code=error_code,
                    high_watermark=-1,
                    aborted_transactions=None,
                    record_set=_EMPTY,
                )
    response = FetchablePartitionResponse(
        partition=result.request.partition,
        error_code=error_code,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=result.preferred_read_replica,
        record_set=records,
    )
    if result.diverging_epoch is not None:
        epoch, end_offset = result.diverging_epoch
        response.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if data is not None and data.aborted_transactions is not None:
        response.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in data.aborted_transactions
        ]
    return result.topic, response


def _for_old_version(
    services: Services, result: FetchResult, data: FetchDataInfo, version: int
) -> tuple[int, Any]:
    """Records for a client that does not know zstd (below 10) or v2 batches (below 4)."""
    key = result.topic, result.request.partition
    partition = services.replica_manager.partitions.get(key)
    # None: it went away since it was read.
    log = partition.log if partition is not None else None
    if log is not None and log.config.compression_type == "zstd":
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, _EMPTY
    if version >= 4:
        return ErrorCode.NONE, data.records
    if log is not None and not log.config.message_downconversion_enable:
        return ErrorCode.UNSUPPORTED_VERSION, _EMPTY
    return _down_converted(result.request, data, magic=1 if version >= 2 else 0)


def _down_converted(request: FetchPartition, data: FetchDataInfo, magic: int) -> tuple[int, Any]:
    assert data.records is not None
    raw = data.records.file.pread(data.records.length, data.records.position)
    try:
        converted = down_convert(raw, magic, request.fetch_offset, ends_at_zstd=True)
        return ErrorCode.NONE, converted.data
    except ApiError as error:
        return error.code, _EMPTY
    except CorruptDataError:
        return ErrorCode.CORRUPT_MESSAGE, _EMPTY
