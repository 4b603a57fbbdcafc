"""OffsetsClient: offsets of partitions, committed offsets of groups, and deletion of records.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, kafka.tools.GetOffsetShell; KIP-79,
KIP-107, KIP-496, KIP-734, KIP-405, KIP-1005
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kctl.client.results import error_of, raise_for
from kctl.errors import KctlError, UnreachableError, UnsupportedVersionError
from kctl.lazy_dataclass import dataclass
from kctl.model import Position, PositionKind, TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import (
    CONSUMER_REPLICA_ID,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    READ_UNCOMMITTED,
)
from kctl.protocol.error_codes import ApiError
from kctl.protocol.later_apis import LaterApi

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.messages.offset_commit import OffsetCommitRequestTopic, OffsetCommitResponse
    from kctl.protocol.schema import Message

NO_OFFSET = -1
# The version of OffsetFetch that waits for transactions.
_STABLE_OFFSETS_VERSION = 7
# The version of ListOffsets that takes an isolation level.
_ISOLATION_VERSION = 2
# The timestamps that later brokers accept: the first version of ListOffsets and release with each.
_LATER_TIMESTAMPS = {
    MAX_TIMESTAMP: (7, "3.0"),
    EARLIEST_LOCAL_TIMESTAMP: (8, "3.5"),
    LATEST_TIERED_TIMESTAMP: (9, "3.9"),
}
_LATER_POSITIONS = {
    PositionKind.MAX_TIMESTAMP: MAX_TIMESTAMP,
    PositionKind.EARLIEST_LOCAL: EARLIEST_LOCAL_TIMESTAMP,
    PositionKind.LATEST_TIERED: LATEST_TIERED_TIMESTAMP,
}


@dataclass(slots=True)
class ListedOffset:
    """The offset found in one partition; -1 if no record has that timestamp or a later one."""

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1
    error: KctlError | None = None


@dataclass(slots=True)
class CommittedOffset:
    """The offset that a group has committed for a partition; -1 if none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    error: KctlError | None = None


@dataclass(slots=True)
class PartitionResult:
    """The result of changing one partition's offset."""

    partition: TopicPartition
    offset: int = -1
    error: KctlError | None = None


class OffsetsClient:
    """The offsets of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        """Return, per partition, the first offset whose timestamp (ms) is at or after the given
        one.

        EARLIEST_TIMESTAMP and LATEST_TIMESTAMP select the log start and end offset; with isolation
        level READ_COMMITTED the latest is the last stable offset. MAX_TIMESTAMP,
        EARLIEST_LOCAL_TIMESTAMP and LATEST_TIERED_TIMESTAMP select what their names say. Errors of
        partitions are in the results. Raise UnsupportedVersionError if the brokers do not support
        one of the timestamps, UnreachableError if no leader answered (KIP-79).
        """
        later = sorted({it for it in timestamps.values() if it in _LATER_TIMESTAMPS})
        if later:
            await self._check_later(later)
        version = await self._router.max_version(ApiKey.LIST_OFFSETS)
        if version < _ISOLATION_VERSION:
            # Kafka before 0.11 has no transactions: all that is written is stable.
            isolation_level = READ_UNCOMMITTED
        if version == 0 and any(timestamp >= 0 for timestamp in timestamps.values()):
            # Version 0 only finds whole segments by time.
            raise UnsupportedVersionError(
                "This broker is older than Kafka 0.10.1: it does not support timestamps"
            )

        def build(partitions: list[TopicPartition]) -> "Message":
            wanted = {partition: timestamps[partition] for partition in partitions}
            if later:
                return _later_list_request(wanted, isolation_level, self._router.timeout_ms)
            return _list_request(wanted, isolation_level=isolation_level)

        answers = await self._router.send_to_leaders(timestamps, build, _read_listed)
        _raise_if_unreachable(answers)
        return {
            partition: ListedOffset(NO_OFFSET, error=answer)
            if isinstance(answer, KctlError)
            else answer
            for partition, answer in answers.items()
        }

    async def _check_later(self, timestamps: Iterable[int]) -> None:
        version = await self._router.max_version(LaterApi.LIST_OFFSETS)
        for timestamp in timestamps:
            needed, release = _LATER_TIMESTAMPS[timestamp]
            if version < needed:
                raise UnsupportedVersionError(
                    f"This cluster does not find offsets by timestamp {timestamp}, which needs "
                    f"ListOffsets {needed}: it came with Kafka {release}"
                )

    async def earliest(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the log start offset of each partition."""
        return await self.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    async def latest(
        self, partitions: Iterable[TopicPartition], *, isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the end offset of each partition: that of its next record."""
        return await self.list_offsets(
            dict.fromkeys(partitions, LATEST_TIMESTAMP), isolation_level=isolation_level
        )

    async def resolve(
        self,
        positions: Mapping[TopicPartition, Position],
        *,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offsets of positions. A time after the last record is the end offset, as is
        the largest timestamp of no record; without records in tiered storage, the last one in it is
        the start offset."""
        starts, ends, times = await self._bounds(positions, isolation_level)
        resolved: dict[TopicPartition, ListedOffset] = {}
        for partition, position in positions.items():
            known = [f[partition] for f in (starts, ends, times) if partition in f]
            broken = next((item for item in known if item.error is not None), None)
            resolved[partition] = broken or ListedOffset(
                _resolve(position, starts.get(partition), ends.get(partition), times.get(partition))
            )
        return resolved

    async def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets that `group_id` has committed, for all partitions if none are given.

        With `require_stable`, those that a transaction may still commit have the error
        UNSTABLE_OFFSET_COMMIT, if the broker is Kafka 2.5 or later (KIP-447).
        """
        from kctl.protocol.messages.offset_fetch import (
            OffsetFetchRequest,
            OffsetFetchRequestTopic,
        )

        is_everything = partitions is None
        if is_everything and await self._router.max_version(ApiKey.OFFSET_FETCH) < 2:
            # Before Kafka 0.10.2 OffsetFetch cannot return all partitions: name every one that
            # exists.
            view = await self._router.refresh(None)
            partitions = [
                TopicPartition(topic, number)
                for topic in sorted(view.topics)
                for number in view.partitions_of(topic)
            ]
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in _by_topic(partitions).items()
            ]
        request = OffsetFetchRequest(group_id=group_id, topics=topics)
        if require_stable:
            version = await self._router.max_version(ApiKey.OFFSET_FETCH)
            request.require_stable = version >= _STABLE_OFFSETS_VERSION
        response = await self._router.send_to_coordinator(group_id, request)
        raise_for(response.error_code)
        return {
            TopicPartition(topic.name, item.partition_index): CommittedOffset(
                item.committed_offset,
                item.committed_leader_epoch,
                item.metadata or "",
                error_of(item.error_code),
            )
            for topic in response.topics
            for item in topic.partitions
            if not (is_everything and item.committed_offset < 0)
        }

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
    ) -> list[PartitionResult]:
        """Commit offsets for a group that has no members; return a result per partition."""
        from kctl.protocol.messages.offset_commit import OffsetCommitRequest

        request = OffsetCommitRequest(group_id=group_id, topics=commit_topics(offsets, metadata))
        response = await self._router.send_to_coordinator(group_id, request)
        return [
            PartitionResult(partition, offsets[partition], error_of(code))
            for partition, code in commit_codes(response).items()
        ]

    async def delete_committed(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[PartitionResult]:
        """Delete the offsets that a group committed for partitions it does not consume
        (KIP-496)."""
        from kctl.protocol.messages.offset_delete import (
            OffsetDeleteRequest,
            OffsetDeleteRequestPartition,
            OffsetDeleteRequestTopic,
        )

        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in numbers],
                )
                for topic, numbers in _by_topic(partitions).items()
            ],
        )
        response = await self._router.send_to_coordinator(group_id, request)
        raise_for(response.error_code)
        return [
            PartitionResult(
                TopicPartition(topic.name, item.partition_index), error=error_of(item.error_code)
            )
            for topic in response.topics
            for item in topic.partitions
        ]

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int = 30_000
    ) -> list[PartitionResult]:
        """Delete each partition's records before an offset (-1: all). The offset of a result is the
        partition's new log start offset (KIP-107)."""

        def build(partitions: list[TopicPartition]) -> "Message":
            return _delete_request({p: offsets[p] for p in partitions}, timeout_ms)

        answers = await self._router.send_to_leaders(offsets, build, _read_deleted)
        _raise_if_unreachable(answers)
        return [
            PartitionResult(partition, error=answer)
            if isinstance(answer, KctlError)
            else PartitionResult(partition, answer)
            for partition, answer in answers.items()
        ]

    async def _bounds(
        self, positions: Mapping[TopicPartition, Position], isolation_level: int
    ) -> tuple[dict[TopicPartition, ListedOffset], ...]:
        """Return start offsets, end offsets and offsets by time, each for the positions that need
        it."""
        kinds = PositionKind
        from_start = (kinds.EARLIEST, kinds.TAIL, kinds.LATEST_TIERED)
        starts = [p for p, at in positions.items() if at.kind in from_start]
        no_ends = (kinds.EARLIEST, kinds.OFFSET, kinds.EARLIEST_LOCAL, kinds.LATEST_TIERED)
        ends = [p for p, at in positions.items() if at.kind not in no_ends]
        times = {p: at.value for p, at in positions.items() if at.kind is kinds.TIME}
        times |= {
            p: _LATER_POSITIONS[at.kind] for p, at in positions.items() if at.kind.needs_broker
        }
        return (
            await self.earliest(starts) if starts else {},
            await self.latest(ends, isolation_level=isolation_level) if ends else {},
            await self.list_offsets(times) if times else {},
        )


def commit_topics(
    offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] | None = None
) -> "list[OffsetCommitRequestTopic]":
    """Return the topics of an OffsetCommit request."""
    from kctl.protocol.messages.offset_commit import (
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

    return [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offsets[TopicPartition(topic, number)],
                    committed_metadata=(metadata or {}).get(TopicPartition(topic, number), ""),
                )
                for number in numbers
            ],
        )
        for topic, numbers in _by_topic(offsets).items()
    ]


def commit_codes(response: "OffsetCommitResponse") -> dict[TopicPartition, int]:
    """Return the error code of each partition in the response to an OffsetCommit request."""
    return {
        TopicPartition(topic.name, item.partition_index): item.error_code
        for topic in response.topics
        for item in topic.partitions
    }


def raise_for_commit(codes: Mapping[TopicPartition, int]) -> None:
    """Raise ApiError with the first error code, and the names of all partitions that have one."""
    failed = {partition: code for partition, code in codes.items() if code}
    if failed:
        first = ApiError(next(iter(failed.values())))
        names = ", ".join(map(str, failed))
        raise ApiError(first.code, f"not committed: {names} ({first})")


def _resolve(
    position: Position,
    start: ListedOffset | None,
    end: ListedOffset | None,
    by_time: ListedOffset | None,
) -> int:
    first = start.offset if start is not None else 0
    last = end.offset if end is not None else 0
    if position.kind is PositionKind.EARLIEST:
        return first
    if position.kind is PositionKind.LATEST:
        return last
    if position.kind is PositionKind.TAIL:
        return max(first, last - position.value)
    if position.kind is PositionKind.TIME or position.kind.needs_broker:
        found = by_time.offset if by_time is not None else NO_OFFSET
        # Of the two, only the one that the kind of position asks for was requested.
        return found if found != NO_OFFSET else max(first, last)
    return position.value


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def _list_request(timestamps: Mapping[TopicPartition, int], *, isolation_level: int) -> "Message":
    from kctl.protocol.messages import list_offsets as messages

    return messages.ListOffsetRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=_topics(
            timestamps, "timestamp", messages.ListOffsetTopic, messages.ListOffsetPartition
        ),
    )


def _later_list_request(
    timestamps: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int
) -> "Message":
    from kctl.protocol.later import list_offsets as messages

    return messages.ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=_topics(
            timestamps, "timestamp", messages.ListOffsetsTopic, messages.ListOffsetsPartition
        ),
        timeout_ms=timeout_ms,
    )


def _topics(
    values: Mapping[TopicPartition, int],
    field: str,
    make_topic: Callable[..., Any],
    make_partition: Callable[..., Any],
) -> list[Any]:
    """Return the topics of a request with a value for each partition in `field`, made of the
    classes of its version."""
    return [
        make_topic(
            name=topic,
            partitions=[
                make_partition(
                    partition_index=number, **{field: values[TopicPartition(topic, number)]}
                )
                for number in numbers
            ],
        )
        for topic, numbers in _by_topic(values).items()
    ]


def offsets_or_error(
    found: Mapping[TopicPartition, ListedOffset] | Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, int]:
    """Return the offsets; raise the first error."""
    for item in found.values():
        if item.error is not None:
            raise item.error
    return {partition: item.offset for partition, item in found.items()}


def _read_listed(response: Any) -> Iterable[tuple[TopicPartition, int, ListedOffset]]:
    for topic in response.topics:
        for item in topic.partitions:
            # Version 0 answers with the base offsets of segments, the latest one first.
            old_style = getattr(item, "old_style_offsets", None)
            offset = old_style[0] if old_style else item.offset
            listed = ListedOffset(offset, item.timestamp, item.leader_epoch)
            yield TopicPartition(topic.name, item.partition_index), item.error_code, listed


def _delete_request(offsets: Mapping[TopicPartition, int], timeout_ms: int) -> "Message":
    from kctl.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    return DeleteRecordsRequest(
        topics=_topics(offsets, "offset", DeleteRecordsTopic, DeleteRecordsPartition),
        timeout_ms=timeout_ms,
    )


def _read_deleted(response: Any) -> Iterable[tuple[TopicPartition, int, int]]:
    for topic in response.topics:
        for item in topic.partitions:
            partition = TopicPartition(topic.name, item.partition_index)
            yield partition, item.error_code, item.low_watermark


def _raise_if_unreachable(answers: Mapping[TopicPartition, object]) -> None:
    """Raise UnreachableError if every partition failed with one: the whole request failed."""
    errors = [answer for answer in answers.values() if isinstance(answer, UnreachableError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
