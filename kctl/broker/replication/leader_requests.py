"""What is asked of a leader about many partitions, and which of them the response still concerns.
Pure.

A follower and the copy of a linked topic ask the same two questions before they fetch: where the
leader's epochs end, and where its log begins or ends. A request names each partition as it is in
that turn. The partition may change before the response arrives, by an append or by a new leader;
the response then says nothing about it.

Kafka 2.7: kafka.server.AbstractFetcherThread (`fetchOffsetsForEpoch`, `fetchOffsetFromLeader`)
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from kctl.broker.replication.fetch_session_handler import PARTITIONS_PER_TURN
from kctl.model import TopicPartition
from kctl.protocol.messages.fetch import FetchResponse
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartition,
    ListOffsetRequest,
    ListOffsetResponse,
    ListOffsetTopic,
)
from kctl.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kctl.work import Work


class FollowerLog(Protocol):
    """The view of a follower's log; nothing here changes it."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int

    @property
    def latest_epoch(self) -> int:
        """Return the newest leader epoch in the log, or -1."""
        ...

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """Return (the largest epoch not beyond `leader_epoch`, its end offset), or None if
        unknown."""
        ...


class FollowedPartition(Protocol):
    """A partition whose log follows a leader of one leader epoch."""

    log: FollowerLog
    leader_epoch: int


FollowedT = TypeVar("FollowedT", bound=FollowedPartition)
# Partitions that a request is about.
Due = Sequence[tuple[TopicPartition, FollowedT]]


# Topic, partition, and what a response has for it.
Answer = tuple[str, int, Any]


class RequestInFlight:
    """The partitions of the last request, as they were then."""

    def __init__(self) -> None:
        # Partition -> leader epoch, log end offset.
        self._states: dict[TopicPartition, tuple[int, int]] = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._states)

    def clear(self) -> None:
        """Begin another request."""
        self._states = {}

    def record(self, tp: TopicPartition, followed: FollowedPartition) -> None:
        """Remember the state of a partition that the request names."""
        self._states[tp] = _state(followed)

    def forget(self, tp: TopicPartition) -> None:
        """Have no answer apply to the partition."""
        self._states.pop(tp, None)

    def take(self, tp: TopicPartition, followed: FollowedPartition) -> bool:
        """Return whether an answer applies: it is the first for the partition, which is as it was
        at the request."""
        return self._states.pop(tp, None) == _state(followed)


def _state(followed: FollowedPartition) -> tuple[int, int]:
    return followed.leader_epoch, followed.log.log_end_offset


def epochs_request(
    replica_id: int, due: Due[FollowedT], in_flight: RequestInFlight
) -> Work[OffsetForLeaderEpochRequest]:
    """Ask where the leader's epochs end that the logs end with (KIP-101, KIP-279)."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for number, (tp, followed) in enumerate(due, 1):
        if number % PARTITIONS_PER_TURN == 0:
            yield
        in_flight.record(tp, followed)
        topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(name=tp.topic))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition_index=tp.partition,
                current_leader_epoch=followed.leader_epoch,
                leader_epoch=followed.log.latest_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=list(topics.values()))


def offsets_request(
    replica_id: int, due: Due[FollowedT], timestamp: int, in_flight: RequestInFlight
) -> Work[ListOffsetRequest]:
    """Ask where the leader's logs begin or end: `timestamp` is EARLIEST_ or LATEST_TIMESTAMP."""
    topics: dict[str, ListOffsetTopic] = {}
    for number, (tp, followed) in enumerate(due, 1):
        if number % PARTITIONS_PER_TURN == 0:
            yield
        in_flight.record(tp, followed)
        topic = topics.setdefault(tp.topic, ListOffsetTopic(name=tp.topic))
        topic.partitions.append(asked_offset(tp, followed.leader_epoch, timestamp))
    return ListOffsetRequest(replica_id=replica_id, topics=list(topics.values()))


def asked_offset(tp: TopicPartition, leader_epoch: int, timestamp: int) -> ListOffsetPartition:
    """Return the question for one offset of a partition that is led in `leader_epoch`."""
    return ListOffsetPartition(
        partition_index=tp.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
    )


def answers_of(
    response: FetchResponse | OffsetForLeaderEpochResponse | ListOffsetResponse,
) -> Iterator[Answer]:
    """Yield what a response has for each partition, in its order."""
    if isinstance(response, FetchResponse):
        for fetched in response.responses:
            for it in fetched.partition_responses:
                yield fetched.topic, it.partition, it
    else:
        for topic in response.topics:
            for answer in topic.partitions:
                yield topic.name, answer.partition_index, answer
