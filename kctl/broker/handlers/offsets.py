"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

Behaviour:

- Partitions that are not in this broker's metadata are rejected by OffsetCommit and OffsetDelete;
  OffsetFetch returns -1 for them, as for any partition without an offset.
- Version 0 stores offsets in the metadata store, as the old consumers did.
- A request for all offsets of a group leaves out topics that the client may not describe.
- An offset's own expiry time comes from `retention_time_ms` (versions 2 to 4); else the broker's
  retention applies (KIP-211). A time that is too large wraps, as in Apache Kafka 2.7.2: the offset
  has expired already, and the next round of expiry removes it.

Versions: OffsetCommit 0-8 (v1 generation, member; v6 leader epoch; v7 static members). OffsetFetch
0-7 (v1 the coordinator's; v2 all partitions, top-level error; v5 leader epoch; v7 stable offsets,
KIP-447). OffsetDelete 0 (KIP-496).

Kafka 2.7: kafka.server.KafkaApis.handleOffsetCommitRequest and related methods.
"""

from collections.abc import Iterable, Sequence

from kctl.broker.coordinator.group.offset_commits import FetchedOffset, OffsetCommit
from kctl.broker.coordinator.group.offsets import NO_EXPIRY, CommittedOffset
from kctl.broker.replies import reply_from, reply_in_turns
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.protocol.acl import AclOperation, ResourceType
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kctl.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kctl.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kctl.store.consumer_znodes import (
    consumer_offset_path,
    decode_consumer_offset,
    encode_consumer_offset,
)
from kctl.work import Work

# Offsets that are read between two turns for others.
OFFSETS_PER_TURN = 1_000
_NONE = int(ErrorCode.NONE)
_UNKNOWN_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def handle_offset_commit(services: Services, request: Request) -> None:
    """Commit a group's offsets; reply when they are in the log."""
    body: OffsetCommitRequest = request.body
    offsets = _offsets(services, body)
    coordinator = services.group_coordinator
    if body.group_instance_id is not None and not coordinator.knows_static_members:
        request.reply(_commit_response(body, [int(ErrorCode.UNSUPPORTED_VERSION)] * len(offsets)))
        return
    known = [offset for offset in offsets if offset is not None]
    if not known:
        request.reply(_commit_response(body, [_UNKNOWN_PARTITION] * len(offsets)))
        return

    def answer(codes: Sequence[int]) -> None:
        if len(codes) < len(offsets):
            rest = iter(codes)
            codes = [_UNKNOWN_PARTITION if offset is None else next(rest) for offset in offsets]
        request.reply(_commit_response(body, codes))

    commit = OffsetCommit(
        body.group_id, body.member_id, body.group_instance_id, body.generation_id, known, answer
    )
    if request.api_version == 0:
        reply_from(
            services.runtime.scheduler,
            request,
            _commit_to_store(services, commit),
            "offset-commit-v0",
        )
    else:
        coordinator.commit_offsets(commit)


def _offsets(
    services: Services, body: OffsetCommitRequest
) -> list[tuple[TopicPartition, CommittedOffset] | None]:
    """Return the requested offsets as they are stored, in order; None for unknown partitions."""
    now_ms = services.runtime.clock.wall_ms()
    retention_ms = body.retention_time_ms
    expire_ms = NO_EXPIRY if retention_ms < 0 else _as_int64(now_ms + retention_ms)
    state_of = services.metadata_cache.partition
    offsets: list[tuple[TopicPartition, CommittedOffset] | None] = []
    for topic in body.topics:
        for asked in topic.partitions:
            topic_partition = TopicPartition(topic.name, asked.partition_index)
            if state_of(topic_partition) is None:
                offsets.append(None)
                continue
            committed = CommittedOffset(
                asked.committed_offset,
                asked.committed_leader_epoch,
                asked.committed_metadata or "",
                now_ms if asked.commit_timestamp < 0 else asked.commit_timestamp,
                expire_ms,
            )
            offsets.append((topic_partition, committed))
    return offsets


def _as_int64(value: int) -> int:
    """Return what is left of `value` in Java's long."""
    return (value + 2**63) % 2**64 - 2**63


def _commit_response(body: OffsetCommitRequest, codes: Iterable[int]) -> OffsetCommitResponse:
    """Return the response; `codes` has one for each requested partition, in order."""
    code_of = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=next(code_of)
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


async def _commit_to_store(services: Services, commit: OffsetCommit) -> None:
    codes = []
    for topic_partition, committed in commit.offsets:
        code = ErrorCode.NONE
        if len(committed.metadata) > services.config.offset_metadata_max_bytes:
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            try:
                path = consumer_offset_path(commit.group_id, topic_partition)
                data = encode_consumer_offset(committed.offset)
                await services.cluster_store.set_or_create(path, data)
            except KctlError:
                code = ErrorCode.UNKNOWN_SERVER_ERROR
        codes.append(int(code))
    commit.reply(codes)


def handle_offset_fetch(services: Services, request: Request) -> None:
    """Reply with a group's committed offsets."""
    body: OffsetFetchRequest = request.body
    if request.api_version == 0:
        reply_from(
            services.runtime.scheduler,
            request,
            _fetch_from_store(services, request),
            "offset-fetch-v0",
        )
        return
    if body.topics is None:
        reply_in_turns(services.runtime.scheduler, request, _all_offsets(services, request))
        return
    asked = _asked(body)
    code, fetched = services.group_coordinator.fetch_offsets(
        body.group_id, asked, require_stable=body.require_stable
    )
    if code and request.api_version < 2:
        # The response has no top-level error: every partition gets it.
        fetched = [FetchedOffset(tp, error_code=code) for tp in asked]
    request.reply(_fetch_response(fetched, code))


def _all_offsets(services: Services, request: Request) -> Work[OffsetFetchResponse]:
    """Return all offsets of a group, OFFSETS_PER_TURN in a turn."""
    body: OffsetFetchRequest = request.body
    coordinator = services.group_coordinator
    topics: dict[str, OffsetFetchResponseTopic] = {}
    partitions = coordinator.committed_partitions(body.group_id)
    # The first part is read even if it is empty: its code says whether this is the coordinator.
    for start in range(0, max(len(partitions), 1), OFFSETS_PER_TURN):
        if start:
            yield
        code, fetched = coordinator.fetch_offsets(
            body.group_id,
            partitions[start : start + OFFSETS_PER_TURN],
            require_stable=body.require_stable,
        )
        if code:
            return OffsetFetchResponse(error_code=code)
        _add_offsets(topics, _visible(request, fetched))
    return OffsetFetchResponse(topics=list(topics.values()))


def _visible(request: Request, fetched: Sequence[FetchedOffset]) -> Sequence[FetchedOffset]:
    """Return the offsets of topics that the client may describe."""
    names = (it.topic_partition.topic for it in fetched)
    visible = request.access.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    return [it for it in fetched if it.topic_partition.topic in visible]


def _asked(body: OffsetFetchRequest) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition)
        for topic in body.topics or ()
        for partition in topic.partition_indexes
    ]


async def _fetch_from_store(services: Services, request: Request) -> None:
    body: OffsetFetchRequest = request.body
    fetched = []
    for topic_partition in _asked(body):
        code, offset = _UNKNOWN_PARTITION, None
        if services.metadata_cache.partition(topic_partition) is not None:
            try:
                path = consumer_offset_path(body.group_id, topic_partition)
                found = await services.cluster_store.get(path)
                offset = decode_consumer_offset(found[0]) if found is not None else None
                code = _NONE if offset is not None else _UNKNOWN_PARTITION
            except KctlError:
                code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        fetched.append(
            FetchedOffset(topic_partition, error_code=code)
            if offset is None
            else FetchedOffset(topic_partition, offset)
        )
    request.reply(_fetch_response(fetched, _NONE))


def _fetch_response(fetched: Iterable[FetchedOffset], code: int) -> OffsetFetchResponse:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    _add_offsets(topics, fetched)
    return OffsetFetchResponse(topics=list(topics.values()), error_code=code)


def _add_offsets(
    topics: dict[str, OffsetFetchResponseTopic], fetched: Iterable[FetchedOffset]
) -> None:
    for one in fetched:
        name, partition = one.topic_partition
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = OffsetFetchResponseTopic(name=name)
        topic.partitions.append(
            OffsetFetchResponsePartition(
                partition_index=partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                metadata=one.metadata,
                error_code=one.error_code,
            )
        )


def handle_offset_delete(services: Services, request: Request) -> None:
    """Delete a group's offsets in topics to which it does not subscribe."""
    body: OffsetDeleteRequest = request.body
    asked = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in body.topics
        for partition in topic.partitions
    ]
    is_known = services.metadata_cache.partition
    known = [tp for tp in asked if is_known(tp) is not None]

    def answer(result: tuple[int, list[int]]) -> None:
        group_code, codes = result
        if group_code:
            request.reply(OffsetDeleteResponse(error_code=group_code))
            return
        by_partition = dict(zip(known, codes, strict=True))
        topics: dict[str, OffsetDeleteResponseTopic] = {}
        for tp in asked:
            topic = topics.setdefault(tp.topic, OffsetDeleteResponseTopic(name=tp.topic))
            topic.partitions.append(
                OffsetDeleteResponsePartition(
                    partition_index=tp.partition,
                    error_code=by_partition.get(tp, _UNKNOWN_PARTITION),
                )
            )
        request.reply(OffsetDeleteResponse(topics=list(topics.values())))

    services.group_coordinator.delete_offsets(body.group_id, known, answer)
