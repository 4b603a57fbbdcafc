"""OffsetAdmin: where partitions begin and end, what groups have committed, deleting records.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, kafka.tools.GetOffsetShell; KIP-79,
KIP-107, KIP-496
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kctl.admin.result import error_of, raise_for
from kctl.errors import KctlError, UnreachableError, UsageError
from kctl.model import Position as Position
from kctl.model import PositionKind as PositionKind
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.protocol.messages.offset_commit import OffsetCommitRequestTopic
    from kctl.protocol.schema import Message

# ListOffsets takes these two in place of a timestamp.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
NO_OFFSET = -1


@dataclass(slots=True)
class ListedOffset:
    """One partition's answer; offset -1: there is no record at or after that time."""

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1
    error: KctlError | None = None


@dataclass(slots=True)
class CommittedOffset:
    """What a group has committed for a partition; offset -1: nothing."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    error: KctlError | None = None


@dataclass(slots=True)
class PartitionResult:
    """What became of a change to one partition's offset."""

    partition: TopicPartition
    offset: int = -1
    error: KctlError | None = None


class OffsetAdmin:
    """The offsets of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, ListedOffset]:
        """For each partition the first offset at or after a time (ms), or EARLIEST_TIMESTAMP or
        LATEST_TIMESTAMP; with isolation level 1 the latest is the last stable offset. UsageError
        if the broker is too old for times."""
        is_old = await self._router.max_version(ApiKey.LIST_OFFSETS) == 0
        if is_old and any(timestamp >= 0 for timestamp in timestamps.values()):
            # Version 0 knows the ages of whole segments only.
            raise UsageError("This broker is older than Kafka 0.10.1: it cannot find times")

        def build(partitions: list[TopicPartition]) -> "Message":
            wanted = {partition: timestamps[partition] for partition in partitions}
            return _list_request(wanted, isolation_level=0 if is_old else isolation_level)

        answers = await self._router.send_to_leaders(timestamps, build, _read_listed)
        _raise_if_nobody_answered(answers)
        return {
            partition: ListedOffset(NO_OFFSET, error=answer)
            if isinstance(answer, KctlError)
            else answer
            for partition, answer in answers.items()
        }

    async def earliest(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset]:
        """Where each partition begins."""
        return await self.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    async def latest(
        self, partitions: Iterable[TopicPartition], *, isolation_level: int = 0
    ) -> dict[TopicPartition, ListedOffset]:
        """Where the next record of each partition will be."""
        return await self.list_offsets(
            dict.fromkeys(partitions, LATEST_TIMESTAMP), isolation_level=isolation_level
        )

    async def resolve(
        self, positions: Mapping[TopicPartition, Position], *, isolation_level: int = 0
    ) -> dict[TopicPartition, ListedOffset]:
        """Positions to offsets; a time after the last record is the partition's end."""
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
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What `group_id` has committed; everything it has if no partitions are given."""
        from kctl.protocol.messages.offset_fetch import (
            OffsetFetchRequest,
            OffsetFetchRequestTopic,
        )

        is_everything = partitions is None
        if is_everything and await self._router.max_version(ApiKey.OFFSET_FETCH) < 2:
            # Before Kafka 0.10.2 nobody could ask for all: ask for what exists.
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
        response = await self._router.send_to_coordinator(
            group_id, OffsetFetchRequest(group_id=group_id, topics=topics)
        )
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
        """Commit for a group that has no members just now."""
        from kctl.protocol.messages.offset_commit import OffsetCommitRequest

        request = OffsetCommitRequest(group_id=group_id, topics=commit_topics(offsets, metadata))
        response = await self._router.send_to_coordinator(group_id, request)
        return [
            PartitionResult(partition, offsets[partition], error_of(item.error_code))
            for topic in response.topics
            for item in topic.partitions
            for partition in [TopicPartition(topic.name, item.partition_index)]
        ]

    async def delete_committed(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> list[PartitionResult]:
        """Forget what a group committed for partitions that it does not consume (KIP-496)."""
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
        """Delete each partition's records before an offset (-1: all); the result's offset is
        where the partition begins then (KIP-107)."""

        def build(partitions: list[TopicPartition]) -> "Message":
            return _delete_request({p: offsets[p] for p in partitions}, timeout_ms)

        answers = await self._router.send_to_leaders(offsets, build, _read_deleted)
        _raise_if_nobody_answered(answers)
        return [
            PartitionResult(partition, error=answer)
            if isinstance(answer, KctlError)
            else PartitionResult(partition, answer)
            for partition, answer in answers.items()
        ]

    async def _bounds(
        self, positions: Mapping[TopicPartition, Position], isolation_level: int
    ) -> tuple[dict[TopicPartition, ListedOffset], ...]:
        """Beginnings, ends and offsets by time, each only for those who need it."""
        kinds = PositionKind
        starts = [p for p, at in positions.items() if at.kind in (kinds.EARLIEST, kinds.TAIL)]
        no_ends = (kinds.EARLIEST, kinds.OFFSET)
        ends = [p for p, at in positions.items() if at.kind not in no_ends]
        times = {p: at.value for p, at in positions.items() if at.kind is kinds.TIME}
        return (
            await self.earliest(starts) if starts else {},
            await self.latest(ends, isolation_level=isolation_level) if ends else {},
            await self.list_offsets(times) if times else {},
        )


def commit_topics(
    offsets: Mapping[TopicPartition, int], metadata: Mapping[TopicPartition, str] | None = None
) -> "list[OffsetCommitRequestTopic]":
    """The part of an OffsetCommit request that says what."""
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
    if position.kind is PositionKind.TIME:
        found = by_time.offset if by_time is not None else NO_OFFSET
        return found if found != NO_OFFSET else last
    return position.value


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def _list_request(timestamps: Mapping[TopicPartition, int], *, isolation_level: int) -> "Message":
    from kctl.protocol.messages.list_offsets import (
        ListOffsetPartition,
        ListOffsetRequest,
        ListOffsetTopic,
    )

    return ListOffsetRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetTopic(
                name=topic,
                partitions=[
                    ListOffsetPartition(
                        partition_index=number, timestamp=timestamps[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(timestamps).items()
        ],
    )


def _read_listed(response: Any) -> Iterable[tuple[TopicPartition, int, ListedOffset]]:
    for topic in response.topics:
        for item in topic.partitions:
            # Version 0 answers with the bases of segments, the latest one first.
            offset = item.old_style_offsets[0] if item.old_style_offsets else item.offset
            listed = ListedOffset(offset, item.timestamp, item.leader_epoch)
            yield TopicPartition(topic.name, item.partition_index), item.error_code, listed


def _delete_request(offsets: Mapping[TopicPartition, int], timeout_ms: int) -> "Message":
    from kctl.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(
                        partition_index=number, offset=offsets[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(offsets).items()
        ],
        timeout_ms=timeout_ms,
    )


def _read_deleted(response: Any) -> Iterable[tuple[TopicPartition, int, int]]:
    for topic in response.topics:
        for item in topic.partitions:
            partition = TopicPartition(topic.name, item.partition_index)
            yield partition, item.error_code, item.low_watermark


def _raise_if_nobody_answered(answers: Mapping[TopicPartition, object]) -> None:
    """A failure of all partitions to be reached is one failure, of the whole request."""
    errors = [answer for answer in answers.values() if isinstance(answer, UnreachableError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
