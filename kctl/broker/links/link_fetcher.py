"""LinkFetcher: what a linked partition's leader asks a leader of the source, and what the responses
mean. Pure.

A link reads as a consumer does, up to the source's high watermark, and continues at the end of its
own log: the log is the only record of its progress.

    CHECKING -- epochs agree --> COMPARING -- same last batch --> FETCHING -- out of range --+
      ^  |                                                         ^  ^                      |
      +--+ truncate, check again               log without records +  +---- FINDING_START <--+

Both logs agree where the source's leader knows the last leader epoch of this log, up to its end
(KIP-101, KIP-279). What lies beyond diverged by an unclean election there, or by a failover here,
and is truncated. Epochs begin again in a topic that is deleted and created again, and both sides of
a failover may count on: so the last batch before the end is compared, too, byte for byte.

Nothing is mixed: a source that does not know the epoch, that is shorter than this log within one
epoch, or whose batch differs, stops the partition. So does one that deleted records before they
were copied.

Invariants: a response applies only if the partition is as it was at the request (same leader of the
source, same end); a batch of a newer epoch than the leader's own epoch here is never appended: the
caller adds a partition only once its leader epoch has reached the source's.

Kafka 2.7: kafka.server.AbstractFetcherThread; KIP-320
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

from kctl.broker.replication.fetch_session_handler import (
    PARTITIONS_PER_TURN,
    SESSION_ERRORS,
    FetchSessionHandler,
)
from kctl.broker.replication.leader_requests import (
    Answer,
    Due,
    FollowerLog,
    RequestInFlight,
    answers_of,
    asked_offset,
    epochs_request,
    offsets_request,
)
from kctl.broker.replication.replica_fetcher import common_end
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.constants import EARLIEST_TIMESTAMP, NO_EPOCH
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kctl.protocol.messages.list_offsets import (
    ListOffsetPartitionResponse,
    ListOffsetRequest,
    ListOffsetResponse,
    ListOffsetTopic,
)
from kctl.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResult,
)
from kctl.protocol.schema import Message
from kctl.work import Work

CONSUMER = -1
WAIT_MS_MAX = 500
RESPONSE_BYTES_MAX = 10 << 20
PARTITION_BYTES_MAX = 1 << 20
BACKOFF_MS = 500
# A fetch without a session (KIP-227).
NO_SESSION_EPOCH = -1
UNDEFINED = -1


class Phase(Enum):
    """How far a partition and its source are known to agree."""

    CHECKING = "comparing epochs"
    COMPARING = "comparing the last batch"
    FETCHING = "following"
    FINDING_START = "finding the source's start"


# A lost connection takes every phase back to the first one: see `on_error`.
NEXT_PHASES = {
    Phase.CHECKING: {Phase.COMPARING},
    Phase.COMPARING: {Phase.FETCHING},
    Phase.FETCHING: {Phase.FINDING_START},
    Phase.FINDING_START: {Phase.FETCHING},
}


@dataclass(frozen=True, slots=True)
class Append:
    """Append these batches, then follow the source's log start offset."""

    topic_partition: TopicPartition
    records: Any
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Remove the records from `offset` on: the source does not have them."""

    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare the last batch of the log with the first of `records`; then call `agreed`."""

    topic_partition: TopicPartition
    records: Any


@dataclass(frozen=True, slots=True)
class StartAt:
    """Begin a log that never had records at `offset`, the source's log start offset."""

    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class FindLeader:
    """Stop asking this leader: another one leads, or in another epoch."""

    topic_partition: TopicPartition
    error_code: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Report that the source does not serve the partition now; it is asked again."""

    topic_partition: TopicPartition
    error_code: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop following for good, because records would be lost or mixed."""

    topic_partition: TopicPartition
    why: str


Action = Append | Truncate | Compare | StartAt | FindLeader | Failed | Stop


@dataclass(slots=True)
class Linked:
    """A partition whose copy follows a leader of the source."""

    log: FollowerLog
    # The source's.
    leader_epoch: int
    is_compacted: bool
    phase: Phase
    wait_until_ms: int = 0

    def move_to(self, phase: Phase) -> None:
        """Raise RuntimeError if NEXT_PHASES has no such move."""
        if phase not in NEXT_PHASES[self.phase]:
            raise RuntimeError(f"a copy cannot move from {self.phase.name} to {phase.name}")
        self.phase = phase


_Due = Due[Linked]
# What follows from it for a partition that is as it was at the request, at a time.
_OnAnswer = Callable[[TopicPartition, Linked, Any, int], Iterator[Action]]


class LinkFetcher:
    """The linked partitions that one leader of the source leads."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, Linked] = {}
        self._session = FetchSessionHandler()
        # The phase of the partitions in the request in flight.
        self._asked = Phase.FETCHING
        self._in_flight = RequestInFlight()

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._partitions)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def add(
        self, tp: TopicPartition, leader_epoch: int, log: FollowerLog, *, is_compacted: bool
    ) -> None:
        """Follow the source's leader of `leader_epoch` with this log."""
        self._partitions[tp] = Linked(log, leader_epoch, is_compacted, _first_phase(log))

    def remove(self, tp: TopicPartition) -> None:
        """Stop following; responses in flight are ignored."""
        self._partitions.pop(tp, None)

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions as they are now."""
        return list(self._partitions)

    def phase(self, tp: TopicPartition) -> Phase | None:
        """Return the phase of a partition, or None if it is not followed here."""
        linked = self._partitions.get(tp)
        return None if linked is None else linked.phase

    def agreed(self, tp: TopicPartition) -> None:
        """Continue with a partition whose last batch is the source's."""
        linked = self._partitions.get(tp)
        if linked is not None and linked.phase is Phase.COMPARING:
            linked.move_to(Phase.FETCHING)

    def delay(self, tp: TopicPartition, now_ms: int) -> None:
        """Do not ask for the partition for BACKOFF_MS."""
        linked = self._partitions.get(tp)
        if linked is not None:
            linked.wait_until_ms = now_ms + BACKOFF_MS

    def next_due_ms(self) -> int | None:
        """Return when the next partition is due, or None if there is none."""
        return min((it.wait_until_ms for it in self._partitions.values()), default=None)

    # --- requests ----------------------------------------------------------------------------

    def next_request(self, now_ms: int) -> Work[Message | None]:
        """Return the next request, or None if nothing is due.

        Some partitions are examined in each turn. One that changes in a later turn is requested as
        it was, and its response no longer applies.
        """
        due: dict[Phase, list[tuple[TopicPartition, Linked]]] = {}
        for number, (tp, linked) in enumerate(list(self._partitions.items()), 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            if linked.wait_until_ms <= now_ms:
                due.setdefault(linked.phase, []).append((tp, linked))
        for phase in _MOST_URGENT_FIRST:
            if phase in due:
                self._asked = phase
                self._in_flight.clear()
                return (yield from self._request_of(phase, due[phase]))
        return None

    def _request_of(self, phase: Phase, due: _Due) -> Work[Message]:
        if phase is Phase.CHECKING:
            return (yield from epochs_request(CONSUMER, due, self._in_flight))
        if phase is Phase.FINDING_START:
            earliest = EARLIEST_TIMESTAMP
            return (yield from offsets_request(CONSUMER, due, earliest, self._in_flight))
        if phase is Phase.COMPARING:
            return (yield from self._last_batch_request(due))
        return (yield from self._fetch_request(due))

    def _last_batch_request(self, due: _Due) -> Work[Message]:
        topics: dict[str, FetchTopic] = {}
        for number, (tp, linked) in enumerate(due, 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            self._in_flight.record(tp, linked)
            topic = topics.setdefault(tp.topic, FetchTopic(topic=tp.topic))
            topic.partitions.append(_asked_from(tp, linked, linked.log.log_end_offset - 1))
        request = _fetch_request(max_wait_ms=0)
        request.session_epoch = NO_SESSION_EPOCH
        request.topics = list(topics.values())
        return request

    def _fetch_request(self, due: _Due) -> Work[Message]:
        request = _fetch_request(max_wait_ms=WAIT_MS_MAX)
        wanted: dict[TopicPartition, FetchPartition] = {}
        for number, (tp, linked) in enumerate(due, 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            self._in_flight.record(tp, linked)
            wanted[tp] = _asked_from(tp, linked, linked.log.log_end_offset)
        yield from self._session.fill(request, wanted)
        return request

    # --- responses ---------------------------------------------------------------------------

    def on_error(self, now_ms: int) -> None:
        """Delay all requested partitions, because no response arrived. The source may be another
        one when it can be reached again, so that they are compared again."""
        self._session.on_error()
        for tp, linked in self._partitions.items():
            linked.phase = _first_phase(linked.log)
            self.delay(tp, now_ms)

    def on_response(self, response: Message, now_ms: int) -> Iterator[Action | None]:
        """Yield what the response requires, partition by partition, and None after every
        PARTITIONS_PER_TURN, where others may have a turn. Each partition is looked at when the
        actions before it have been carried out."""
        if isinstance(response, FetchResponse):
            return self._on_fetch(response, now_ms)
        assert isinstance(response, OffsetForLeaderEpochResponse | ListOffsetResponse)
        answers = answers_of(response)
        is_of_epochs = isinstance(response, OffsetForLeaderEpochResponse)
        return self._on_each(answers, self._on_epoch if is_of_epochs else self._on_start, now_ms)

    def _on_each(
        self, answers: Iterable[Answer], on_answer: _OnAnswer, now_ms: int
    ) -> Iterator[Action | None]:
        """Yield what the answers require for partitions that are as they were at the request, and
        None after every PARTITIONS_PER_TURN."""
        for number, (topic, partition, answer) in enumerate(answers, 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield None
            tp = TopicPartition(topic, partition)
            linked = self._current(tp)
            if linked is not None:
                yield from on_answer(tp, linked, answer, now_ms)

    def _on_fetch(self, response: FetchResponse, now_ms: int) -> Iterator[Action | None]:
        is_comparing = self._asked is Phase.COMPARING
        if not is_comparing and not self._session.on_response(response):
            if response.error_code not in SESSION_ERRORS:
                self.on_error(now_ms)
                yield from self._all_failed(response.error_code)
            return
        on_answer = self._on_last_batch if is_comparing else self._on_fetched
        yield from self._on_each(answers_of(response), on_answer, now_ms)

    def _current(self, tp: TopicPartition) -> Linked | None:
        """Return the partition if an answer applies to it, else None."""
        linked = self._partitions.get(tp)
        if linked is None or linked.phase is not self._asked:
            return None
        return linked if self._in_flight.take(tp, linked) else None

    def _on_epoch(
        self,
        tp: TopicPartition,
        linked: Linked,
        answer: OffsetForLeaderPartitionResult,
        now_ms: int,
    ) -> Iterator[Action]:
        if answer.error_code:
            yield from self._failed(tp, answer.error_code, now_ms)
            return
        epoch, end_offset = answer.leader_epoch, answer.end_offset
        own_epoch, own_end = linked.log.latest_epoch, linked.log.log_end_offset
        if end_offset == UNDEFINED or epoch == NO_EPOCH:
            yield Stop(
                tp, f"the source does not know leader epoch {own_epoch}, in which the copy ends:"
                " its topic was created again, or is another one",
            )  # fmt: skip
            return
        end, agrees = common_end(linked.log, epoch, end_offset)
        if end < own_end and own_epoch == linked.leader_epoch:
            yield Stop(
                tp, f"the source ends at {end}, before the copy's end {own_end}, in the same leader"
                f" epoch {own_epoch}: its topic was created again, or its disk lost records",
            )  # fmt: skip
            return
        if end < own_end and end <= linked.log.log_start_offset:
            yield Stop(
                tp, f"no record of the copy, which ends at {own_end}, is known to the source"
            )
            return
        if agrees:
            linked.move_to(Phase.COMPARING)
        yield Truncate(tp, end)

    def _on_last_batch(
        self, tp: TopicPartition, linked: Linked, answer: FetchablePartitionResponse, now_ms: int
    ) -> Iterator[Action]:
        log = linked.log
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or is_empty(log):
            # The source has deleted that batch, or this log has: there is nothing to compare.
            linked.move_to(Phase.FETCHING)
        elif answer.error_code:
            yield from self._failed(tp, answer.error_code, now_ms)
        elif not answer.record_set:
            # A new leader's high watermark is not there yet.
            self.delay(tp, now_ms)
        elif linked.is_compacted:
            # Either side may have compacted the batch.
            linked.move_to(Phase.FETCHING)
        else:
            yield Compare(tp, answer.record_set)

    def _on_fetched(
        self, tp: TopicPartition, linked: Linked, answer: FetchablePartitionResponse, now_ms: int
    ) -> Iterator[Action]:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            linked.move_to(Phase.FINDING_START)
        elif answer.error_code:
            yield from self._failed(tp, answer.error_code, now_ms)
        else:
            yield Append(tp, answer.record_set, answer.high_watermark, answer.log_start_offset)

    def _on_start(
        self,
        tp: TopicPartition,
        linked: Linked,
        answer: ListOffsetPartitionResponse,
        now_ms: int,
    ) -> Iterator[Action]:
        start, own_end = answer.offset, linked.log.log_end_offset
        if answer.error_code:
            yield from self._failed(tp, answer.error_code, now_ms)
        elif start > own_end and own_end > 0:
            yield Stop(
                tp, f"the source deleted {start - own_end} offsets before they were copied: the"
                f" copy ends at {own_end}, the source begins at {start}",
            )  # fmt: skip
        elif start > own_end:
            linked.move_to(Phase.FETCHING)
            yield StartAt(tp, start)
        else:
            yield Stop(
                tp, f"the source ends before the copy's end {own_end}, in the same leader epoch:"
                " its topic was created again, or its disk lost records",
            )  # fmt: skip

    def _failed(self, tp: TopicPartition, error_code: int, now_ms: int) -> Iterator[Action]:
        if error_code in _OTHER_LEADER:
            self.remove(tp)
            yield FindLeader(tp, error_code)
        else:
            self.delay(tp, now_ms)
            yield Failed(tp, error_code)

    def _all_failed(self, error_code: int) -> Iterator[Action | None]:
        for number, tp in enumerate(self.partitions(), 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield None
            yield Failed(tp, error_code)


def earliest_request(tp: TopicPartition, leader_epoch: int) -> ListOffsetRequest:
    """Return a request for the log start offset of a partition that is led in `leader_epoch`."""
    asked = asked_offset(tp, leader_epoch, EARLIEST_TIMESTAMP)
    topic = ListOffsetTopic(name=tp.topic, partitions=[asked])
    return ListOffsetRequest(replica_id=CONSUMER, topics=[topic])


_MOST_URGENT_FIRST = (Phase.CHECKING, Phase.COMPARING, Phase.FINDING_START, Phase.FETCHING)


def is_empty(log: FollowerLog) -> bool:
    """Return whether a log has no records, so that there are none to compare."""
    return log.log_start_offset >= log.log_end_offset


def _first_phase(log: FollowerLog) -> Phase:
    return Phase.FETCHING if is_empty(log) else Phase.CHECKING


def _asked_from(tp: TopicPartition, linked: Linked, offset: int) -> FetchPartition:
    return FetchPartition(
        partition=tp.partition,
        current_leader_epoch=linked.leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=NO_EPOCH,
        log_start_offset=-1,
        partition_max_bytes=PARTITION_BYTES_MAX,
    )


def _fetch_request(max_wait_ms: int) -> FetchRequest:
    return FetchRequest(
        replica_id=CONSUMER, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=RESPONSE_BYTES_MAX
    )


_OTHER_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
