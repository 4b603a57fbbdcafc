"""ReplicaFetcher: a follower's requests to one leader, and the actions that responses require.
Pure.

A partition is fetched from the end of its log: the log is the only record of its progress.

    TRUNCATING ----- logs agree ----> FETCHING -- offset out of range --> FINDING_END
        ^ |                             ^   ^                               |     |
        +-+ truncate, check again       |   +- leader is behind: truncate --+     |
                                        +-- start at leader's start ---- FINDING_START

Logs agree when the leader has the follower's last epoch up to the follower's end. With inter-broker
protocol 2.7-IV1 every fetch carries that epoch and the leader returns where the logs diverge
(KIP-595); before it, OffsetForLeaderEpoch is sent first (KIP-101, KIP-279). Without epochs, the
high watermark decides.

A leader knows no epochs before its log start. Where agreement would end exactly there, nothing of
the follower's log is known to agree: its records are gone from the leader, and its producers may
have sequence numbers of records that the leader never had, whose retries it would confirm as
duplicates once it leads. Such a log starts over (in 2.7.2 its producers survive).

Invariants: a response applies only if the partition is as it was at the request (same leader epoch,
same end); the high watermark never moves by a response that truncates the log (KAFKA-14704); a
fenced partition is dropped until the controller's next request (KIP-320).

Kafka 2.7: kafka.server.{AbstractFetcherThread, ReplicaFetcherThread}.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from kctl.broker.quotas import ReplicationQuota
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
    epochs_request,
    offsets_request,
)
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from kctl.protocol.messages.list_offsets import ListOffsetPartitionResponse, ListOffsetResponse
from kctl.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResult,
)
from kctl.protocol.schema import Message
from kctl.work import Work

# How long a throttled partition pauses before the rate is checked again.
THROTTLED_PAUSE_MS = 100
UNDEFINED_OFFSET = -1


class Phase(Enum):
    """The progress of a partition towards agreement with its leader."""

    TRUNCATING = "truncating"
    FETCHING = "fetching"
    FINDING_END = "finding the leader's end"
    FINDING_START = "finding the leader's start"


NEXT_PHASES = {
    Phase.TRUNCATING: {Phase.TRUNCATING, Phase.FETCHING},
    Phase.FETCHING: {Phase.FETCHING, Phase.FINDING_END},
    Phase.FINDING_END: {Phase.FETCHING, Phase.FINDING_START},
    Phase.FINDING_START: {Phase.FETCHING},
}


# --- actions on a log
# ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Append these batches, then adopt the leader's high watermark and log start offset."""

    topic_partition: TopicPartition
    records: Any
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log to `offset`."""

    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class StartOver:
    """Delete all records and continue at `offset`, the leader's log start offset."""

    topic_partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop fetching the partition until the controller's next request."""

    topic_partition: TopicPartition
    why: str


Action = Append | Truncate | StartOver | GiveUp


@dataclass(frozen=True, slots=True)
class FetcherOptions:
    """Settings of a follower: replica.fetch.*."""

    broker_id: int
    wait_ms_max: int
    bytes_min: int
    response_bytes_max: int
    partition_bytes_max: int
    backoff_ms: int
    # Inter-broker protocol 2.7-IV1 and later (KIP-595).
    truncates_on_fetch: bool = True


@dataclass(slots=True)
class Followed:
    """A partition that follows a leader of one leader epoch."""

    log: FollowerLog
    leader_epoch: int
    phase: Phase
    # Monotonic milliseconds before which the partition is not fetched.
    wait_until_ms: int = 0
    # Not fetched until it is released.
    is_held: bool = False
    # Has everything that was committed on the leader at its last response.
    is_in_sync: bool = False
    # The leader's log overlaps with this one, or did when this one began to follow it.
    has_overlap: bool = False

    def move_to(self, phase: Phase) -> None:
        """Raise RuntimeError if NEXT_PHASES has no such move."""
        if phase not in NEXT_PHASES[self.phase]:
            raise RuntimeError(f"a follower cannot move from {self.phase.name} to {phase.name}")
        self.phase = phase


_Due = Due[Followed]
# What follows from it for a partition that is as it was at the request, at a time.
_OnAnswer = Callable[[TopicPartition, Followed, Any, int], Iterator[Action]]


class ReplicaFetcher:
    """The partitions that this broker follows on one leader."""

    def __init__(self, options: FetcherOptions, quota: ReplicationQuota | None = None) -> None:
        self._options = options
        # Limits throttled partitions that catch up; None: unlimited.
        self._quota = quota
        self._partitions: dict[TopicPartition, Followed] = {}
        self._session = FetchSessionHandler()
        self._in_flight = RequestInFlight()

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self._partitions)

    # --- which partitions --------------------------------------------------------------------

    def add(self, tp: TopicPartition, leader_epoch: int, log: FollowerLog) -> None:
        """Follow the leader of `leader_epoch` with this log; responses in flight are ignored."""
        self._in_flight.forget(tp)
        on_fetch = self._options.truncates_on_fetch and log.latest_epoch != NO_EPOCH
        phase = Phase.FETCHING if on_fetch else Phase.TRUNCATING
        self._partitions[tp] = Followed(log, leader_epoch, phase)

    def remove(self, tp: TopicPartition) -> None:
        """Stop following; responses in flight are ignored."""
        self._in_flight.forget(tp)
        self._partitions.pop(tp, None)

    def replace_log(self, tp: TopicPartition, log: FollowerLog) -> None:
        """Use another log that holds the same records."""
        followed = self._partitions.get(tp)
        if followed is not None:
            followed.log = log

    def leader_epoch_of(self, tp: TopicPartition) -> int | None:
        """Return the leader epoch in which the partition is followed, or None if it is not."""
        followed = self._partitions.get(tp)
        return None if followed is None else followed.leader_epoch

    def delay(self, tp: TopicPartition, now_ms: int) -> None:
        """Do not fetch the partition for replica.fetch.backoff.ms."""
        followed = self._partitions.get(tp)
        if followed is not None:
            followed.wait_until_ms = now_ms + self._options.backoff_ms

    def hold(self, tp: TopicPartition) -> None:
        """Do not fetch the partition until `release`."""
        self._partitions[tp].is_held = True

    def release(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Resume a partition that was held when it began to follow this leader."""
        followed = self._partitions.get(tp)
        if followed is not None and followed.leader_epoch == leader_epoch:
            followed.is_held = False

    def next_due_ms(self) -> int | None:
        """Return when the next partition may be fetched, or None if there is none."""
        return min(
            (p.wait_until_ms for p in self._partitions.values() if not p.is_held), default=None
        )

    # --- requests ----------------------------------------------------------------------------

    def next_request(self, now_ms: int) -> Work[tuple[Message | None, list[Action]]]:
        """Return the next request (None: nothing is due) and the actions to apply before it, in the
        same turn.

        Some partitions are examined in each turn. One that changes in a later turn is requested as
        it was, and its response no longer applies.
        """
        truncations: list[tuple[Followed, Truncate]] = []
        due: dict[Phase, list[tuple[TopicPartition, Followed]]] = {}
        self._in_flight.clear()
        for number, (tp, followed) in enumerate(list(self._partitions.items()), 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            if followed.phase is Phase.TRUNCATING and followed.log.latest_epoch == NO_EPOCH:
                # The high watermark is the only point that is known to agree.
                if followed.log.high_watermark < followed.log.log_end_offset:
                    truncations.append((followed, Truncate(tp, followed.log.high_watermark)))
                followed.move_to(Phase.FETCHING)
            if followed.wait_until_ms <= now_ms and not followed.is_held:
                due.setdefault(followed.phase, []).append((tp, followed))
        request = yield from self._request_of(due, now_ms)
        return request, [
            truncate
            for followed, truncate in truncations
            if self._partitions.get(truncate.topic_partition) is followed
        ]

    def _request_of(self, due: Mapping[Phase, _Due], now_ms: int) -> Work[Message | None]:
        own_id, in_flight = self._options.broker_id, self._in_flight
        if Phase.TRUNCATING in due:
            return (yield from epochs_request(own_id, due[Phase.TRUNCATING], in_flight))
        for phase, timestamp in _LOOKED_UP.items():
            if phase in due:
                return (yield from offsets_request(own_id, due[phase], timestamp, in_flight))
        fetching = yield from self._without_throttled(due.get(Phase.FETCHING, []), now_ms)
        return (yield from self._fetch_request(fetching)) if fetching else None

    def _without_throttled(self, due: _Due, now_ms: int) -> Work[_Due]:
        """Return `due` without throttled partitions if follower.replication.throttled.rate is
        exceeded."""
        quota = self._quota
        if quota is None or not quota.is_exceeded(now_ms):
            return due
        kept = []
        for number, (tp, followed) in enumerate(due, 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            if followed.is_in_sync or not quota.is_throttled(tp):
                kept.append((tp, followed))
            else:
                followed.wait_until_ms = now_ms + THROTTLED_PAUSE_MS
        return kept

    def _fetch_request(self, due: _Due) -> Work[Message]:
        options = self._options
        wanted = {}
        for number, (tp, followed) in enumerate(due, 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            self._in_flight.record(tp, followed)
            log = followed.log
            wanted[tp] = FetchPartition(
                partition=tp.partition,
                current_leader_epoch=followed.leader_epoch,
                fetch_offset=log.log_end_offset,
                last_fetched_epoch=log.latest_epoch if options.truncates_on_fetch else NO_EPOCH,
                log_start_offset=log.log_start_offset,
                partition_max_bytes=options.partition_bytes_max,
            )
        request = FetchRequest(
            replica_id=options.broker_id,
            max_wait_ms=options.wait_ms_max,
            min_bytes=options.bytes_min,
            max_bytes=options.response_bytes_max,
        )
        yield from self._session.fill(request, wanted)
        return request

    # --- responses ---------------------------------------------------------------------------

    def on_error(self, now_ms: int) -> None:
        """Delay all requested partitions, because no response arrived."""
        self._session.on_error()
        for tp in self._in_flight:
            self.delay(tp, now_ms)

    def on_response(self, response: Message, now_ms: int) -> Iterator[Sequence[Action]]:
        """Yield the actions that the leader's response requires, one partition after the other.

        Each partition is judged when its actions are asked for, so that these still apply to what
        has changed since the response arrived. A session is continued, or ended, at once.
        """
        if isinstance(response, FetchResponse):
            return self._on_fetch(response, now_ms)
        assert isinstance(response, OffsetForLeaderEpochResponse | ListOffsetResponse)
        answers = answers_of(response)
        is_of_epochs = isinstance(response, OffsetForLeaderEpochResponse)
        return self._on_each(answers, self._on_epoch if is_of_epochs else self._on_offset, now_ms)

    def _on_each(
        self, answers: Iterable[Answer], on_answer: _OnAnswer, now_ms: int
    ) -> Iterator[Sequence[Action]]:
        """Yield what each answer requires; nothing if the partition has changed since."""
        for topic, partition, answer in answers:
            tp = TopicPartition(topic, partition)
            followed = self._current(tp)
            yield () if followed is None else tuple(on_answer(tp, followed, answer, now_ms))

    def _current(self, tp: TopicPartition) -> Followed | None:
        """Return the partition if an answer applies to it, else None."""
        followed = self._partitions.get(tp)
        is_current = followed is not None and self._in_flight.take(tp, followed)
        return followed if is_current else None

    def _on_fetch(self, response: FetchResponse, now_ms: int) -> Iterator[Sequence[Action]]:
        if self._session.on_response(response):
            return self._on_each(answers_of(response), self._on_fetched, now_ms)
        if response.error_code not in SESSION_ERRORS:
            self.on_error(now_ms)
        return iter(())

    def _on_fetched(
        self,
        tp: TopicPartition,
        followed: Followed,
        answer: FetchablePartitionResponse,
        now_ms: int,
    ) -> Iterator[Action]:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.move_to(Phase.FINDING_END)
        elif answer.error_code:
            yield from self._failed(tp, answer.error_code, now_ms)
        elif answer.diverging_epoch.epoch >= 0:
            diverging = answer.diverging_epoch
            offset, _ = common_end(followed.log, diverging.epoch, diverging.end_offset)
            yield Truncate(tp, offset)
        else:
            if not followed.has_overlap:
                yield from self._found_overlap(tp, followed, answer.log_start_offset)
            records, high_watermark = answer.record_set, answer.high_watermark
            if self._quota is not None and self._quota.is_throttled(tp):
                self._quota.record(len(records or b""), now_ms)
            # The records may end the lag, which the next response shows.
            followed.is_in_sync = high_watermark <= followed.log.log_end_offset
            yield Append(tp, answer.record_set, answer.high_watermark, answer.log_start_offset)

    def _found_overlap(
        self, tp: TopicPartition, followed: Followed, leader_start_offset: int
    ) -> Iterator[Action]:
        """Start over if all records of the log are older than the leader's first."""
        followed.has_overlap = True
        if followed.log.log_start_offset < followed.log.log_end_offset <= leader_start_offset:
            yield StartOver(tp, leader_start_offset)

    def _on_epoch(
        self,
        tp: TopicPartition,
        followed: Followed,
        answer: OffsetForLeaderPartitionResult,
        now_ms: int,
    ) -> Iterator[Action]:
        if answer.error_code:
            yield from self._failed(tp, answer.error_code, now_ms)
        else:
            offset, agrees = common_end(followed.log, answer.leader_epoch, answer.end_offset)
            followed.move_to(Phase.FETCHING if agrees else Phase.TRUNCATING)
            yield Truncate(tp, offset)

    def _on_offset(
        self,
        tp: TopicPartition,
        followed: Followed,
        answer: ListOffsetPartitionResponse,
        now_ms: int,
    ) -> Iterator[Action]:
        offset, own_end = answer.offset, followed.log.log_end_offset
        if answer.error_code:
            yield from self._failed(tp, answer.error_code, now_ms)
        elif followed.phase is Phase.FINDING_START:
            followed.move_to(Phase.FETCHING)
            if offset > own_end:
                yield StartOver(tp, offset)
        elif offset < own_end:
            # The leader was elected uncleanly and lacks records of this log.
            followed.move_to(Phase.FETCHING)
            yield Truncate(tp, offset)
        else:
            followed.move_to(Phase.FINDING_START)

    def _failed(self, tp: TopicPartition, error_code: int, now_ms: int) -> Iterator[Action]:
        if error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self.remove(tp)
            yield GiveUp(tp, "there is a newer leader")
        else:
            # The leader does not know the epoch yet, or has a newer one: the controller informs one
            # of us.
            self.delay(tp, now_ms)


_LOOKED_UP = {Phase.FINDING_END: LATEST_TIMESTAMP, Phase.FINDING_START: EARLIEST_TIMESTAMP}


def common_end(log: FollowerLog, epoch: int, end_offset: int) -> tuple[int, bool]:
    """Return where to truncate `log`, and whether the logs agree then (else request again,
    KIP-279).

    `epoch` is the newest epoch that the logs may share, according to the leader, and `end_offset`
    its end there.
    """
    own_end = log.log_end_offset
    if end_offset == UNDEFINED_OFFSET:
        # The leader has no epochs: only committed records are known to agree.
        return min(log.high_watermark, own_end), True
    if epoch == NO_EPOCH:
        # A response of version 0.
        return min(end_offset, own_end), True
    found = log.end_offset_for_epoch(epoch)
    if found is None:
        return min(end_offset, own_end), True
    own_epoch, own_epoch_end = found
    if own_epoch != epoch:
        return min(own_epoch_end, own_end), False
    return min(own_epoch_end, end_offset, own_end), True
