"""PipelinedProducer: an idempotent producer with several batches of a partition in flight, as in
librdkafka and the Java producer.

    send up to five batches in order -> await all responses -> drop what is stored -> send the rest

A success of a later batch vouches for the earlier ones: the leader accepts a batch only if the one
before it is in the log. A batch may be rejected as out of order only after an earlier one of the
round failed, or was not sent: after a leader change, librdkafka may send the batches after a failed
one before it puts that one back into the queue. Then the producer may raise its epoch and number
all remaining batches from 0. That is safe only while no remaining batch may be in a log already:
under another epoch no broker recognizes it. (librdkafka does not check: decision 0055.)

The guarantee: every batch is committed once, whatever epochs it was sent under, and at the offset
that the response reports.

Kafka 2.7: org.apache.kafka.clients.producer.internals.{Sender, TransactionManager}; KIP-98, 360.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import Protocol

from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.schema import Message
from kctl.records.builder import RecordBatchBuilder
from kctl.runtime.future import Future, sleep
from kctl.simulation.cluster import SimCluster
from kctl.simulation.ledger import CommittedBatch, Key, identities
from kctl.simulation.runtime import SimEntropy

IN_FLIGHT_MAX = 5
# Batches of a partition that wait, at most.
WAITING_MAX = 12
PAUSE_MS = 40
REQUEST_TIMEOUT_MS = 3_000
# Used in place of a Kafka error code.
NO_ANSWER = -1000
NOT_SENT = -1001
# Chance in thousandths that the batches after a failed one are sent before it is.
STEP_OVER_CHANCE = 300
# After these errors no part of the batch is in the leader's log.
CERTAINLY_NOT_STORED = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        NOT_SENT,
    }
)
# A producer that gets one of these for its first remaining batch has lost its place.
REFUSALS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


@dataclass(slots=True)
class Batch:
    """Records that are sent together; `sent_as` has the identities under which they may be in a
    log.
    """

    number: int
    values: list[bytes]
    data: bytes = b""
    may_be_stored: bool = False
    sent_as: list[CommittedBatch] = field(default_factory=list)


@dataclass(slots=True)
class Lane:
    """The batches of one partition, in order."""

    key: Key
    waiting: deque[Batch] = field(default_factory=deque)
    done: list[Batch] = field(default_factory=list)
    next_sequence: int = 0
    # Whether the first batch failed in the last round.
    has_failed: bool = False


@dataclass(slots=True)
class Answer:
    """An error code, NO_ANSWER or NOT_SENT, and the offset of the batch."""

    code: int
    base_offset: int = -1


class Host(Protocol):
    """What a producer needs of the workload that it is part of."""

    cluster: SimCluster
    is_over: bool
    # No new work: only what was begun is finished.
    is_draining: bool
    epochs_raised: int
    # What each client has yet to do.
    unfinished: dict[str, str]

    @property
    def partitions(self) -> list[Key]:
        """Return the partitions that keep all that was committed."""
        ...

    async def producer_id(self, router: Router) -> tuple[int, int]:
        """Return a new producer id and its epoch."""
        ...

    def check_stored(self, key: Key, batch: bytes, base_offset: int) -> None:
        """Report a violation unless the batch is committed, at `base_offset` if that is not -1."""
        ...

    def refused_in_order(self, router: Router, key: Key, code: int) -> bool:
        """Return whether a current leader rejected the next batch; report a violation if it must
        not.
        """
        ...

    def committed_identities(self, key: Key) -> set[tuple[int, int, int]] | None:
        """Return (producer id, epoch, first sequence) of every committed batch; None if unknown."""
        ...


class PipelinedProducer:
    """A producer; `run` is its life."""

    def __init__(
        self, workload: Host, name: str, router: Router, entropy: SimEntropy,
        request: Callable[[Key, bytes], Message],
    ) -> None:  # fmt: skip
        """Take `request(key, data)`, which builds a Produce request with acks=all."""
        self._workload = workload
        self._name = name
        self._router = router
        self._entropy = entropy
        self._request = request
        self._id = self._epoch = -1
        self._lanes: dict[Key, Lane] = {}
        self._number = 0

    async def run(self) -> None:
        """Produce until the workload drains and all batches are stored; then check the log once."""
        workload, scheduler = self._workload, self._router.runtime.scheduler
        self._id, self._epoch = await workload.producer_id(self._router)
        while not workload.is_over:
            if not workload.is_draining:
                self._add_batches()
            busy = [lane for lane in self._lanes.values() if lane.waiting]
            if workload.is_draining and not busy:
                break
            for lane in busy:
                workload.unfinished[self._name] = f"{len(lane.waiting)} batches to {lane.key}"
                await self._play_round(lane)
            workload.unfinished.pop(self._name, None)
            await sleep(scheduler, self._entropy.between(1, PAUSE_MS))
        for lane in self._lanes.values():
            self._check_once(lane)

    # --- batches -----------------------------------------------------------------------------

    def _add_batches(self) -> None:
        partitions = self._workload.partitions
        if not partitions:
            return
        key = self._entropy.choice(partitions)
        lane = self._lanes.setdefault(key, Lane(key))
        for _ in range(self._entropy.between(1, IN_FLIGHT_MAX)):
            if len(lane.waiting) >= WAITING_MAX:
                return
            count = self._entropy.between(1, 3)
            values = [f"{self._name} {key} {self._number + n}".encode() for n in range(count)]
            batch = Batch(self._number, values)
            self._number += count
            self._number_batch(lane, batch)
            lane.waiting.append(batch)

    def _number_batch(self, lane: Lane, batch: Batch) -> None:
        """Give the batch the next sequence of the current epoch."""
        builder = RecordBatchBuilder(
            producer_id=self._id, producer_epoch=self._epoch, base_sequence=lane.next_sequence
        )
        for value in batch.values:
            builder.append(timestamp=1_600_000_000_000 + batch.number, key=None, value=value)
        batch.data = bytes(builder.build())
        batch.sent_as += identities(batch.data, 1 << 62)
        lane.next_sequence += len(batch.values)

    # --- rounds ------------------------------------------------------------------------------

    async def _play_round(self, lane: Lane) -> None:
        sent = self._next_to_send(lane)
        steps_over = len(sent) > 1 and lane.has_failed and self._entropy.chance(STEP_OVER_CHANCE)
        first = 1 if steps_over else 0
        answers = [Answer(NOT_SENT)] * first + await self._answers(lane.key, sent[first:])
        lane.has_failed = answers[0].code not in (ErrorCode.NONE, NOT_SENT)
        if all(it.code == ErrorCode.NONE for it in answers):
            self._take_stored(lane, answers)
            return
        self._recognize_forgotten(lane.key, sent, answers)
        is_refused = self._is_first_refused(lane.key, answers)
        self._note_doubts(sent, answers)
        self._take_stored(lane, answers)
        if is_refused:
            await self._start_again(lane.key)
        elif any(it.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER for it in answers):
            self._raise_epoch()
        try:
            await self._router.refresh([lane.key[0]], timeout_ms=REQUEST_TIMEOUT_MS)
        except KctlError:
            await sleep(self._router.runtime.scheduler, PAUSE_MS)

    def _next_to_send(self, lane: Lane) -> list[Batch]:
        """Return up to five batches."""
        return [lane.waiting[n] for n in range(min(len(lane.waiting), IN_FLIGHT_MAX))]

    async def _answers(self, key: Key, sent: list[Batch]) -> list[Answer]:
        """Send all batches before the first response arrives, and return the responses."""
        router = self._router
        address = router.view.leader(TopicPartition(*key))
        if address is None:
            return [Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for _ in sent]
        try:
            channel = await router.channel_to(address, REQUEST_TIMEOUT_MS)
            requests = [self._request(key, it.data) for it in sent]
            futures = [channel.request(it, timeout_ms=REQUEST_TIMEOUT_MS) for it in requests]
        except KctlError:
            return [Answer(NO_ANSWER) for _ in sent]
        return [await _answer(future) for future in futures]

    def _note_doubts(self, sent: list[Batch], answers: list[Answer]) -> None:
        for batch, answer in zip(sent, answers, strict=True):
            if answer.code not in CERTAINLY_NOT_STORED:
                batch.may_be_stored = True

    def _take_stored(self, lane: Lane, answers: list[Answer]) -> None:
        """Drop stored batches: all up to the last success, which vouches for those before it."""
        last = max((n for n, it in enumerate(answers) if it.code == ErrorCode.NONE), default=-1)
        for answer in answers[: last + 1]:
            batch = lane.waiting.popleft()
            is_told = answer.code == ErrorCode.NONE
            self._workload.check_stored(lane.key, batch.data, answer.base_offset if is_told else -1)
            lane.done.append(batch)

    def _recognize_forgotten(self, key: Key, sent: list[Batch], answers: list[Answer]) -> None:
        """Treat an out-of-order batch that is in the log as stored. A log that was loaded from a
        snapshot remembers only the last batch of a producer, as in Apache Kafka.
        """
        committed = self._workload.committed_identities(key) or set()
        for batch, answer in zip(sent, answers, strict=True):
            is_stored = batch.may_be_stored and any(
                _identity(it) in committed for it in batch.sent_as
            )
            if answer.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_stored:
                answer.code = ErrorCode.NONE

    def _is_first_refused(self, key: Key, answers: list[Answer]) -> bool:
        """Return whether a batch is rejected though nothing before it failed, which
        is a violation.
        """
        failed = next((it.code for it in answers if it.code != ErrorCode.NONE), ErrorCode.NONE)
        if failed not in REFUSALS:
            return False
        return self._workload.refused_in_order(self._router, key, failed)

    # --- epochs ------------------------------------------------------------------------------

    def _raise_epoch(self) -> None:
        """Number all waiting batches from 0, unless one of them may be stored already."""
        if not self._may_raise_epoch():
            return
        self._epoch += 1
        self._workload.epochs_raised += 1
        for lane in self._lanes.values():
            lane.next_sequence = 0
            for batch in lane.waiting:
                self._number_batch(lane, batch)

    def _may_raise_epoch(self) -> bool:
        return not any(it.may_be_stored for lane in self._lanes.values() for it in lane.waiting)

    async def _start_again(self, lost: Key) -> None:
        """Start over with a new producer id after an unclean election in `lost`; waiting batches
        are given up.
        """
        self._id, self._epoch = await self._workload.producer_id(self._router)
        del self._lanes[lost]
        for lane in self._lanes.values():
            lane.waiting.clear()
            lane.next_sequence = 0

    # --- the end -----------------------------------------------------------------------------

    def _check_once(self, lane: Lane) -> None:
        committed = self._workload.committed_identities(lane.key)
        if committed is None:
            return
        for batch in lane.done:
            found = [it for it in batch.sent_as if _identity(it) in committed]
            if len(found) > 1:
                self._workload.cluster.fail(
                    f"{lane.key}: one batch is committed {len(found)} times: "
                    f"{', '.join(map(str, found))}"
                )


def _identity(batch: CommittedBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def committed_identities(batches: list[CommittedBatch]) -> set[tuple[int, int, int]]:
    """Return (producer id, epoch, first sequence) of each batch."""
    return {_identity(it) for it in batches}


async def _answer(future: "Future[object]") -> Answer:
    try:
        response = await future
    except KctlError:
        return Answer(NO_ANSWER)
    found = response.responses[0].partitions[0]  # type: ignore[attr-defined]
    return Answer(found.error_code, found.base_offset)
