"""Fetch: reads record batches, waiting for more if there are too few.

Behaviour:

- Responses hold slices of segment files; record bytes are not read here (sendfile).
- The first batch found is returned whole even beyond the limits (KIP-74), except in versions 0-2:
  their clients receive the part that fits, unconverted, and enlarge their buffer.
- Partitions keep the order of the request; one that is named twice has one response, for its last
  occurrence.
- Waits up to max_wait_ms for min_bytes; any error completes the request at once.
- Versions 0-3 get batches in the format they know (down-conversion), converted while they are sent,
  and no more bytes than are stored, except for a larger first batch.
- Incremental sessions store the partitions that a client requested (KIP-227).
- Partitions that the client may not read have an error, also in later fetches of a session; those
  of a follower without ClusterAction all have TOPIC_AUTHORIZATION_FAILED (CVE-2018-1288).
- A client that exceeds its quota of bytes gets an empty response and has to pause (KIP-219).
- Many partitions are read, and encoded, in parts, with turns of the loop for others.

Versions: 0-12. v3 max bytes; v4 isolation level (KIP-98); v5 log start offset; v7 sessions; v9
leader epoch (KIP-320); v10 zstd (KIP-110); v11 rack (KIP-392); v12 flexible, tagged.

Kafka 2.7: kafka.server.KafkaApis.handleFetchRequest, FetchManager.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from kctl.broker.fetch_session import INVALID_SESSION_ID, FetchContext, Key
from kctl.broker.replication.replica_manager import (
    FetchIsolation,
    FetchParams,
    FetchResult,
)
from kctl.broker.replies import reply_in_turns
from kctl.broker.request import Request
from kctl.broker.security.access import UNRESTRICTED, Access
from kctl.broker.services import Services
from kctl.errors import CorruptDataError, StorageError
from kctl.protocol.acl import AclOperation, ResourceType
from kctl.protocol.constants import READ_COMMITTED
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
from kctl.records.down_convert import DownConversion
from kctl.runtime.disk import FileSlice
from kctl.runtime.turns import in_turns
from kctl.work import ClaimingWork, Work, parts

# From this version on consumers know that a follower may serve them (KIP-392).
FOLLOWER_FETCH_VERSION: Final = 11
FIRST_VERSION_OF_V1_BATCHES: Final = 2
FIRST_VERSION_OF_V2_BATCHES: Final = 4
FIRST_VERSION_OF_ZSTD: Final = 10
# Partitions encoded per turn of the loop, about 5 ms.
PARTITIONS_PER_TURN: Final = 2_000
# Topics whose access is decided per turn, about 5 ms.
TOPICS_JUDGED_PER_TURN: Final = 250
_EMPTY: Final = b""
# Of a response besides its records, for quotas: once, and per topic and partition.
RESPONSE_BYTES: Final = 18
TOPIC_BYTES: Final = 6
PARTITION_BYTES: Final = 42


class _Authorized(NamedTuple):
    """The partitions of a request: those that its client may read, and results for the others."""

    allowed: Sequence[tuple[str, FetchPartition]]
    refused: list[FetchResult]


def handle_fetch(services: Services, request: Request) -> None:
    """Read, and reply when there is enough data."""
    body: FetchRequest = request.body
    now_ms = services.runtime.clock.monotonic_ms()
    sessions = services.fetch_sessions
    # What was decoded at once can be read at once.
    if request.release is not None or sessions.is_wide(body.session_id):
        opening = _opening(services, request, now_ms)
        opened = partial(_opened, services, request)
        in_turns(services.runtime.scheduler, opening, opened, request.fail)
        return
    context = sessions.open_context(body, request.api_version, now_ms)
    if request.access is UNRESTRICTED:
        _fetch(services, request, context, context.partitions, [])
        return
    judging = _authorized(request, context.partitions)
    in_turns(
        services.runtime.scheduler,
        judging,
        lambda judged: _fetch(services, request, context, *judged),
        request.fail,
    )


def _opening(
    services: Services, request: Request, now_ms: int
) -> Work[tuple[FetchContext, _Authorized]]:
    sessions, version = services.fetch_sessions, request.api_version
    context = yield from sessions.opening_context(request.body, version, now_ms)
    yield
    return context, (yield from _authorized(request, context.partitions))


def _opened(services: Services, request: Request, opened: tuple[FetchContext, _Authorized]) -> None:
    context, authorized = opened
    _fetch(services, request, context, *authorized)


def _fetch(
    services: Services,
    request: Request,
    context: FetchContext,
    allowed: Sequence[tuple[str, FetchPartition]],
    refused: list[FetchResult],
) -> None:
    if context.error_code:
        request.reply(FetchResponse(error_code=context.error_code))
        return
    body: FetchRequest = request.body
    version = request.api_version
    params = _params(services, body, version)
    quotas = services.client_quotas
    is_limited = quotas.is_enabled and body.replica_id < 0
    if is_limited:
        params = _within_quota(params, quotas.fetch_bytes_max(request), context)

    def answer(results: list[FetchResult]) -> None:
        results = [*refused, *results] if refused else results
        if is_limited and _is_throttled(services, request, context, results):
            return
        if version < FIRST_VERSION_OF_V2_BATCHES:
            converting = _converted_response(services, context, results, version)
            services.replica_manager.work_queue.start(
                converting, request.reply, request.fail, request.cancellable()
            )
        elif len(results) < PARTITIONS_PER_TURN:
            responses = [_partition_response(services, result, version) for result in results]
            request.reply(_response(context, responses))
        else:
            work = _response_in_parts(services, context, results, version)
            reply_in_turns(services.runtime.scheduler, request, work)

    if refused and not allowed:
        answer([])
    else:
        services.replica_manager.fetch(params, allowed, answer, request.fail)


def _authorized(
    request: Request, partitions: Sequence[tuple[str, FetchPartition]]
) -> Work[_Authorized]:
    """Return the partitions that the client may fetch, and the results of the others."""
    access, body = request.access, request.body
    if access is UNRESTRICTED:
        return _Authorized(partitions, [])
    if body.replica_id < 0:
        readable = yield from _readable(access, partitions)
    elif access.allows_cluster(AclOperation.CLUSTER_ACTION):
        return _Authorized(partitions, [])
    else:
        readable = set()
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allowed: list[tuple[str, FetchPartition]] = []
    refused: list[FetchResult] = []
    for number, part in enumerate(parts(partitions, PARTITIONS_PER_TURN)):
        if number:
            yield
        refused += [FetchResult(topic, it, code) for topic, it in part if topic not in readable]
        allowed += [it for it in part if it[0] in readable]
    return _Authorized(allowed, refused)


def _readable(access: Access, partitions: Sequence[tuple[str, FetchPartition]]) -> Work[set[str]]:
    """Return the topics that the client may read."""
    counts: Counter[str] = Counter()
    for number, part in enumerate(parts(partitions, PARTITIONS_PER_TURN)):
        if number:
            yield
        counts.update(topic for topic, _ in part)
    readable: set[str] = set()
    for number, (topic, count) in enumerate(counts.items()):
        if number and number % TOPICS_JUDGED_PER_TURN == 0:
            yield
        if access.allows(AclOperation.READ, ResourceType.TOPIC, topic, count=count):
            readable.add(topic)
    return readable


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


def _within_quota(
    params: FetchParams, response_bytes_max: int | None, context: FetchContext
) -> FetchParams:
    """Return `params` with at most the records that do not exceed a quota by themselves."""
    if response_bytes_max is None or response_bytes_max >= params.max_bytes:
        return params
    others = RESPONSE_BYTES + sum(
        TOPIC_BYTES + len(topic) + PARTITION_BYTES for topic, _ in context.partitions
    )
    bytes_max = max(response_bytes_max - others, response_bytes_max // 2)
    return replace(params, max_bytes=bytes_max, min_bytes=min(params.min_bytes, bytes_max))


def _is_throttled(
    services: Services, request: Request, context: FetchContext, results: Sequence[FetchResult]
) -> bool:
    """Reply without any data if the client has to pause first, and return whether it has to."""
    now_ms = services.runtime.clock.monotonic_ms()
    wait_ms = services.client_quotas.fetched(request, _response_bytes(results), now_ms)
    if not wait_ms:
        return False
    request.throttle_ms = wait_ms
    session_id = context.session_id
    if context.session is not None and not context.is_incremental:
        # The client sends its full request again.
        services.fetch_sessions.discard(context.session)
        session_id = INVALID_SESSION_ID
    request.reply(FetchResponse(session_id=session_id, responses=[]))
    return True


def _response_bytes(results: Sequence[FetchResult]) -> int:
    """Return the size of a response, before records are converted."""
    size, last_topic = RESPONSE_BYTES, None
    for result in results:
        records = result.data.records if result.data is not None else None
        if records is None and not result.error_code:
            continue
        if result.topic != last_topic:
            last_topic = result.topic
            size += TOPIC_BYTES + len(last_topic)
        size += PARTITION_BYTES + (len(records) if records is not None else 0)
    return size


def _response_in_parts(
    services: Services, context: FetchContext, results: Sequence[FetchResult], version: int
) -> Work[FetchResponse]:
    responses = []
    for number, result in enumerate(results, 1):
        if number % PARTITIONS_PER_TURN == 0:
            yield
        responses.append(_partition_response(services, result, version))
    yield
    topics: list[FetchableTopicResponse] = []
    for part in parts(responses, PARTITIONS_PER_TURN):
        kept = part if context.session is None else _note_session(context, part)
        _add_to_topics(topics, kept)
        yield
    return FetchResponse(session_id=context.session_id, responses=topics)


def _response(
    context: FetchContext, responses: Sequence[tuple[str, FetchablePartitionResponse]]
) -> FetchResponse:
    if context.session is not None:
        responses = _note_session(context, responses)
    topics: list[FetchableTopicResponse] = []
    _add_to_topics(topics, responses)
    return FetchResponse(session_id=context.session_id, responses=topics)


def _add_to_topics(
    topics: list[FetchableTopicResponse],
    responses: Sequence[tuple[str, FetchablePartitionResponse]],
) -> None:
    # Only adjacent partitions share an entry: the order of the partitions is the client's, which
    # uses it for its next fetch.
    for topic, response in responses:
        if not topics or topics[-1].topic != topic:
            topics.append(FetchableTopicResponse(topic=topic))
        topics[-1].partition_responses.append(response)


def _note_session(
    context: FetchContext, responses: Sequence[tuple[str, FetchablePartitionResponse]]
) -> list[tuple[str, FetchablePartitionResponse]]:
    """Remove what the client already knows; served partitions move to the end of the session."""
    session = context.session
    assert session is not None
    kept, served = [], list[Key]()
    for topic, response in responses:
        cached = session.partitions.get((topic, response.partition))
        has_records = bool(response.record_set)
        is_news = cached is None or cached.record_response(
            error_code=response.error_code,
            high_watermark=response.high_watermark,
            log_start_offset=response.log_start_offset,
            has_records=has_records,
        )
        # A reader must receive the request to truncate, and the rest again afterwards.
        if response.diverging_epoch.epoch >= 0:
            is_news = True
            if cached is not None:
                cached.was_in_error = True
        # The same holds for a redirection to another replica.
        is_news = is_news or response.preferred_read_replica >= 0
        if is_news or not context.is_incremental:
            kept.append((topic, response))
            if has_records:
                served.append((topic, response.partition))
    session.move_to_end(served)
    return kept


def _converted_response(
    services: Services, context: FetchContext, results: Sequence[FetchResult], version: int
) -> ClaimingWork[FetchResponse]:
    """Return the response for a client that does not know v2 batches."""
    responses = []
    for number, result in enumerate(results, 1):
        if number % PARTITIONS_PER_TURN == 0:
            yield None
        converted = yield from _converted(services, result, version)
        responses.append(_partition_response(services, result, version, converted))
    return _response(context, responses)


def _partition_response(
    services: Services,
    result: FetchResult,
    version: int,
    converted: tuple[int, Any] | None = None,
) -> tuple[str, FetchablePartitionResponse]:
    """Return the response for one partition; `converted` has its error code and records in an older
    format."""
    data = result.data
    records: Any = _EMPTY
    error_code = result.error_code
    if data is not None and data.records is not None:
        records = data.records
        if converted is not None:
            error_code, records = converted
        elif version < FIRST_VERSION_OF_ZSTD and _is_zstd(services, result):
            error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
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


def _is_zstd(services: Services, result: FetchResult) -> bool:
    """Return whether the topic's config compresses its batches with zstd."""
    partition = services.replica_manager.partitions.get((result.topic, result.request.partition))
    # None: it was removed after the read.
    log = partition.log if partition is not None else None
    return log is not None and log.config.compression_type == "zstd"


def _converted(
    services: Services, result: FetchResult, version: int
) -> ClaimingWork[tuple[int, Any] | None]:
    """Return error code and records for a client that does not know v2 batches, or None without
    records.

    Batches after the first are converted while they are sent.
    """
    data = result.data
    if data is None or data.records is None:
        return None
    if _is_zstd(services, result):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, _EMPTY
    if data.first_entry_incomplete:
        # Part of a batch has no format; old clients need it to enlarge their buffer.
        return ErrorCode.NONE, data.records
    partition = services.replica_manager.partitions.get((result.topic, result.request.partition))
    log = partition.log if partition is not None else None
    if log is not None and not log.config.message_downconversion_enable:
        return ErrorCode.UNSUPPORTED_VERSION, _EMPTY
    magic = 1 if version >= FIRST_VERSION_OF_V1_BATCHES else 0
    conversion = DownConversion(
        partial(_read, data.records), len(data.records), magic, result.request.fetch_offset
    )
    try:
        yield from conversion.prepare()
    except ApiError as error:
        return error.code, _EMPTY
    except CorruptDataError:
        return ErrorCode.CORRUPT_MESSAGE, _EMPTY
    return ErrorCode.NONE, conversion


def _read(records: FileSlice, length: int, position: int) -> bytes:
    """Read from `records`, at a position relative to their first byte.

    Raise OSError on failure: the response has begun and can only be aborted.
    """
    try:
        return records.file.pread(length, records.position + position)
    except StorageError as error:
        raise OSError(str(error)) from error
