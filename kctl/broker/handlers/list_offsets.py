"""ListOffsets: offsets by timestamp, and the ends of a log.

Behaviour:

- -1 requests the end: the high watermark, or the last stable offset for read_committed; -2 the
  start; any other timestamp the first record at or after it, or (-1, -1) if there is none.
- A partition named twice is INVALID_REQUEST (version 1 and later).
- Version 0 lists segment boundaries before a timestamp, newest first.

Versions: 0-5. v1 one offset with its timestamp (KIP-79); v2 isolation level; v4 leader epoch
(KIP-320); v5 OFFSET_NOT_AVAILABLE (KIP-207).

Kafka 2.7: kafka.server.KafkaApis.handleListOffsetRequest.
"""

from collections import Counter
from collections.abc import Callable

from kctl.broker.replication.partition import Partition
from kctl.broker.replication.replica_manager import FetchIsolation
from kctl.broker.request import Request
from kctl.broker.services import Services
from kctl.errors import CorruptDataError, StorageError
from kctl.protocol.constants import CONSUMER_REPLICA_ID, READ_COMMITTED
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetPartitionResponse,
    ListOffsetRequest,
    ListOffsetResponse,
    ListOffsetTopicResponse,
)
from kctl.work import ClaimingWork, while_wanted

_FIRST_VERSION_OF_LEADER_EPOCH = 4


def handle_list_offsets(services: Services, request: Request) -> None:
    """Look up partition by partition, in steps, because a search by timestamp may decode a batch,
    and a few bytes may hold very many records."""
    services.replica_manager.work_queue.start(
        _answer(services, request), request.reply, request.fail, request.cancellable()
    )


def _answer(services: Services, request: Request) -> ClaimingWork[ListOffsetResponse]:
    body: ListOffsetRequest = request.body
    version = request.api_version
    counts = Counter(
        (topic.name, partition.partition_index)
        for topic in body.topics
        for partition in topic.partitions
    )
    topics = []
    for topic in body.topics:
        partitions = []
        for partition in topic.partitions:
            answer = ListOffsetPartitionResponse(partition_index=partition.partition_index)
            try:
                if version == 0:
                    _list_segments(services, topic.name, partition, answer)
                elif counts[topic.name, partition.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                else:
                    yield from _look_up(services, request, topic.name, partition, answer)
            except ApiError as error:
                answer.error_code = _code_for_version(error.code, version)
            partitions.append(answer)
        topics.append(ListOffsetTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetResponse(topics=topics)


def _look_up(
    services: Services,
    request: Request,
    topic: str,
    asked: ListOffsetPartition,
    answer: ListOffsetPartitionResponse,
) -> ClaimingWork[None]:
    replica_manager = services.replica_manager
    partition = replica_manager.partition(topic, asked.partition_index)
    is_same = _same_log(partition)
    work = partition.fetch_offset_for_timestamp(
        asked.timestamp, _isolation(request.body), asked.current_leader_epoch
    )
    try:
        found = yield from while_wanted(work, is_same)
    except CorruptDataError as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except StorageError as error:
        replica_manager.handle_storage_failure(partition, error)
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from None
    if not is_same():
        # This broker may still lead it, with its log in another directory: the client asks again.
        partition.leader_log()
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if found is not None:
        answer.timestamp, answer.offset, leader_epoch = found
        if request.api_version >= _FIRST_VERSION_OF_LEADER_EPOCH:
            answer.leader_epoch = leader_epoch


def _same_log(partition: Partition) -> Callable[[], bool]:
    """Return a function that returns whether the partition still has the records that it has now:
    its log was not deleted, moved or truncated, and its directory did not fail."""
    log = partition.log
    truncations = log.truncations if log is not None else 0

    def is_same() -> bool:
        return partition.log is log and (
            log is None or (not log.is_closed and log.truncations == truncations)
        )

    return is_same


def _isolation(body: ListOffsetRequest) -> FetchIsolation | None:
    if body.replica_id != CONSUMER_REPLICA_ID:
        return None
    if body.isolation_level == READ_COMMITTED:
        return FetchIsolation.TXN_COMMITTED
    return FetchIsolation.HIGH_WATERMARK


def _list_segments(
    services: Services, topic: str, asked: ListOffsetPartition, answer: ListOffsetPartitionResponse
) -> None:
    partition = services.replica_manager.partition(topic, asked.partition_index)
    answer.old_style_offsets = partition.segment_offsets_before(
        asked.timestamp, asked.max_num_offsets, services.runtime.clock.wall_ms()
    )


def _code_for_version(code: int, version: int) -> int:
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code
