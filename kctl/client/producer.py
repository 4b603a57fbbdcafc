"""Producer: writes records to a topic and reports the offset of each.

Records are collected into one batch per partition and sent to all leaders at once; a call returns
when all are acknowledged. With acks=all, batches are numbered (an idempotent producer) if the
broker supports it, so that a retry after a lost response writes nothing twice (`batch_numbers`).

Every result has an `Outcome`. A call retries for `timeout_ms` without progress, then it stops: it
sends nothing more, and `stopped_by` is the error. An error that concerns only its own records (one
of them is too large) does not stop the call.

With a `transaction` all records belong to it; the caller that created it ends it.

Kafka 2.7: org.apache.kafka.clients.producer.KafkaProducer, internals.Sender; KIP-98
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.client.batch_numbers import BatchNumbers
from kctl.client.partitioner import StickyPartitioner
from kctl.client.results import error_of
from kctl.client.retry import WRONG_LEADER
from kctl.client.router import out_of_time
from kctl.client.single_record import VERSIONS, SingleRecordRequests, Written, single_record_batch
from kctl.errors import KctlError, UnsupportedVersionError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import ACKS_ALL, ACKS_NONE
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import ZSTD
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.record_batch import NO_SEQUENCE
from kctl.runtime.future import CancelledError, Future, sleep

if TYPE_CHECKING:
    from kctl.client.broker_channel import BrokerChannel
    from kctl.client.producer_transaction import ProducerTransaction
    from kctl.client.router import Router

# The size at which a batch is closed; leaves room below the default of max.message.bytes.
BATCH_BYTES_MAX = 900_000
# The Produce versions that introduced v2 batches and zstd.
_BATCH_V2_VERSION = 3
_MESSAGE_V1_VERSION = 2
_ZSTD_VERSION = 7
_BACKOFF_MS = 100
# How often, and how long apart, a topic that is being created is looked for.
_TOPIC_ROUNDS = 30
_TOPIC_WAIT_MS = 100
_BACKOFF_DOUBLINGS_MAX = 4
# Errors that a retry may cure, besides a wrong leader, which the router handles.
_RETRY = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
# Errors of single records: the next batch may succeed.
_OF_RECORDS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
# The broker expects other numbers than those of a batch.
_OUT_OF_STEP = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
# The maximum size of a record besides its key, value and headers.
_RECORD_OVERHEAD_BYTES = 40

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class NewRecord:
    """A record to write; its partition follows from its key if None, its timestamp is now if
    None."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None

    @property
    def size_bytes(self) -> int:
        """Return an upper bound of the record's size in a batch, before compression."""
        headers = sum(len(n) * 4 + len(v or b"") + 10 for n, v in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + _RECORD_OVERHEAD_BYTES


class Outcome(Enum):
    """The outcome of sending a record."""

    # Acknowledged; with acks=0, sent.
    WRITTEN = "written"
    # The broker refused it.
    REJECTED = "rejected"
    # It may have been sent, and no acknowledgement arrived: it is in the log, or it is not.
    UNKNOWN = "unknown"
    NOT_SENT = "not sent"


@dataclass(slots=True)
class ProducedRecord:
    """The place of a written record; offset -1 if unknown (acks=0, or an earlier try wrote it)."""

    partition: int
    offset: int
    timestamp: int
    error: KctlError | None = None
    outcome: Outcome = Outcome.WRITTEN


@dataclass(slots=True)
class PartitionBatch:
    """Records of one partition, and what became of them."""

    partition: TopicPartition
    builder: RecordBatchBuilder | MessageSetBuilder
    # Indexes of its records in the list of `Producer.send`.
    members: list[int] = field(default_factory=list)
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: KctlError | None = None
    is_sent: bool = True

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of its records."""
        if self.error is None:
            return Outcome.WRITTEN
        if not self.is_sent:
            return Outcome.NOT_SENT
        # An earlier try may have succeeded, and its response may be lost.
        is_refused = isinstance(self.error, ApiError) and not self.error.code.retriable
        return Outcome.REJECTED if is_refused else Outcome.UNKNOWN

    @property
    def stops(self) -> bool:
        """Return whether its error would meet the next batches, too."""
        if isinstance(self.error, ApiError):
            return self.error.code not in _OF_RECORDS
        return self.error is not None

    @property
    def may_retry(self) -> bool:
        """Return whether sending the batch again may succeed."""
        return isinstance(self.error, ApiError) and self.error.code in _RETRY

    def settle(self, answer: "PartitionProduceResponse | KctlError") -> None:
        """Record the outcome of the last try."""
        if isinstance(answer, KctlError):
            self.error = answer
            return
        self.error = error_of(answer.error_code, answer.error_message)
        if self.error is not None and answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.error = None  # an earlier try had written the batch
        self.base_offset = answer.base_offset
        self.log_append_time_ms = answer.log_append_time_ms


class PostedRecord(NamedTuple):
    """A record that `Producer.post_one` has sent."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    sequence: int
    # When to stop retrying, in monotonic milliseconds.
    deadline_ms: int
    # Written, any other response, or a KctlError.
    outcome: Future[Any]

    @property
    def is_written(self) -> bool:
        """Return whether it was written by its first request; its outcome is known."""
        return self.outcome.error() is None and type(self.outcome.result()) is Written


class Producer:
    """Writes to one topic."""

    def __init__(
        self,
        router: "Router",
        topic: str,
        *,
        acks: int = ACKS_ALL,
        compression_type: int = 0,
        timeout_ms: int = 30_000,
        transaction: "ProducerTransaction | None" = None,
        is_idempotent: bool = True,
    ) -> None:
        self._router = router
        self._topic = topic
        self._acks = acks
        self._compression_type = compression_type
        self._timeout_ms = timeout_ms
        self._transaction = transaction
        # Whether to number batches if acks and the broker's version allow it.
        self._is_idempotent = is_idempotent
        self._magic = 2
        self._partitioner: StickyPartitioner | None = None
        self._partition_count = 0
        self._numbers = BatchNumbers()
        # The requests of `post_one`, in the version of the broker that the last one went to.
        self._posts_to: BrokerChannel | None = None
        self._requests: SingleRecordRequests | None = None
        # The error that ended the last call early.
        self._stopped_by: KctlError | None = None

    @property
    def stopped_by(self) -> KctlError | None:
        """Return the error because of which the last `send` stopped early, or None."""
        return self._stopped_by

    @property
    def partition_count(self) -> int:
        """Return the number of partitions of the topic; 0 before `open`."""
        return self._partition_count

    async def open(self) -> None:
        """Find the topic. Raise ApiError UNKNOWN_TOPIC_OR_PARTITION if it does not exist (it is not
        created), UsageError if the broker does not support a requested feature."""
        view = await self._router.refresh([self._topic])
        numbers = view.partitions_of(self._topic)
        if not numbers:
            raise ApiError(view.error_of(TopicPartition(self._topic, 0)))
        self._partition_count = len(numbers)
        entropy = self._router.runtime.entropy
        self._partitioner = StickyPartitioner(len(numbers), entropy.random_below(len(numbers)))
        version = await self._router.max_version(ApiKey.PRODUCE)
        if version < _BATCH_V2_VERSION:
            self._magic = 1 if version >= _MESSAGE_V1_VERSION else 0
        if self._compression_type == ZSTD and version < _ZSTD_VERSION:
            raise UnsupportedVersionError(
                "This broker is older than Kafka 2.1: it does not support zstd"
            )
        if self._transaction is not None:
            if self._acks != ACKS_ALL or self._magic < 2:
                raise UnsupportedVersionError(
                    "Transactions require acks=all and Kafka 0.11 or later"
                )
            await self._transaction.begin()
            self._numbers.adopt(self._transaction.producer_id, self._transaction.producer_epoch)
        elif self._acks == ACKS_ALL and self._magic == 2 and self._is_idempotent:
            await self._numbers.acquire(self._router)

    async def send(self, records: Sequence[NewRecord]) -> list[ProducedRecord]:
        """Write `records` and return their results in the same order. Order within a partition is
        kept.

        If the cluster cannot be reached or does not accept records for `timeout_ms`, the rest is
        not sent and `stopped_by` is the reason.
        """
        if self._partitioner is None:
            await self.open()
        results: list[ProducedRecord | None] = [None] * len(records)
        batches = self._gather(records, results)
        await self.write(batches)
        for batch in batches:
            _report(batch, records, results)
        return [result for result in results if result is not None]

    async def write(
        self, batches: Sequence[PartitionBatch], deadline_ms: int | None = None
    ) -> None:
        """Write `batches` of `new_batch`, in this order within a partition; each then has its
        outcome. It stops as `send` does, for the first ones at `deadline_ms`. One call at a
        time."""
        self._stopped_by = None
        # Batches of one partition are sent one at a time; those of different partitions together.
        queues: dict[TopicPartition, list[PartitionBatch]] = {}
        for batch in batches:
            queues.setdefault(batch.partition, []).append(batch)
        while queues:
            heads = [queue.pop(0) for queue in queues.values()]
            try:
                await self._send_batches(heads, deadline_ms or self._next_deadline_ms())
            except KctlError as error:
                self._stopped_by = error
                for batch in heads:
                    batch.error = batch.error or error
            except CancelledError:
                self._numbers.doubt()
                raise
            for batch in heads:
                self._settle_numbers(batch)
                if batch.stops:
                    self._stopped_by = self._stopped_by or batch.error
            queues = {partition: queue for partition, queue in queues.items() if queue}
            if self._stopped_by is not None:
                for batch in (it for queue in queues.values() for it in queue):
                    batch.error, batch.is_sent = self._stopped_by, False
                break

    def _gather(
        self, records: Sequence[NewRecord], results: list[ProducedRecord | None]
    ) -> list[PartitionBatch]:
        partitioner = self._partitioner
        assert partitioner is not None
        if self._magic < 2 and any(record.headers for record in records):
            raise UnsupportedVersionError(
                "This broker is older than Kafka 0.11: it does not support record headers"
            )
        now_ms = self._router.runtime.clock.wall_ms()
        batches: list[PartitionBatch] = []
        is_open: dict[int, PartitionBatch] = {}
        for index, record in enumerate(records):
            number = record.partition
            if number is None:
                number = partitioner.partition(record.key)
            elif not 0 <= number < self._partition_count:
                error = error_of(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                results[index] = ProducedRecord(number, -1, -1, error, Outcome.REJECTED)
                continue
            batch = is_open.get(number)
            if batch is None or batch.builder.size + record.size_bytes > BATCH_BYTES_MAX:
                if batch is not None and record.key is None and record.partition is None:
                    partitioner.turn()
                    number = partitioner.partition(None)
                batch = is_open[number] = self.new_batch(number)
                batches.append(batch)
            if record.timestamp is None:
                record.timestamp = now_ms
            batch.members.append(index)
            batch.builder.append(
                timestamp=record.timestamp,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
        partitioner.turn()
        return batches

    def new_batch(self, number: int) -> PartitionBatch:
        """Return an empty batch for partition `number`; `open` comes first."""
        partition = TopicPartition(self._topic, number)
        if self._magic < 2:
            builder = MessageSetBuilder(magic=self._magic, compression_type=self._compression_type)
            return PartitionBatch(partition, builder)
        return PartitionBatch(
            partition,
            RecordBatchBuilder(
                compression_type=self._compression_type,
                producer_id=self._numbers.producer_id,
                producer_epoch=self._numbers.producer_epoch,
                is_transactional=self._transaction is not None,
            ),
        )

    def post_one(
        self, number: int, timestamp_ms: int, key: bytes | None, value: bytes | None
    ) -> PostedRecord | None:
        """Send one record to the leader of partition `number`; None unless that takes no more than
        a request on an open connection. Nothing else may be written until its outcome is known.

        Unless its outcome is `Written`, the caller passes it to `write_again`.
        """
        if self._transaction is not None or self._compression_type or self._acks == ACKS_NONE:
            return None
        numbers = self._numbers
        if numbers.is_in_doubt:
            return None
        partition = TopicPartition(self._topic, number)
        channel = self._router.ready_channel(partition) if self._magic == 2 else None
        if channel is None:
            return None
        if channel is not self._posts_to:
            version = channel.version_of(ApiKey.PRODUCE)
            if version not in VERSIONS:
                return None
            self._posts_to = channel
            self._requests = SingleRecordRequests(
                self._topic, version, acks=self._acks, timeout_ms=self._timeout_ms
            )
        requests = self._requests
        assert requests is not None
        sequence = numbers.take(partition, 1)
        batch = single_record_batch(
            timestamp_ms,
            key,
            value,
            producer_id=numbers.producer_id,
            producer_epoch=numbers.producer_epoch,
            base_sequence=sequence,
        )
        deadline_ms = self._next_deadline_ms()
        outcome = channel.request(
            requests.message,
            requests.version,
            self._timeout_ms,
            body=requests.body(number, batch),
            reader=requests.read,
        )
        return PostedRecord(number, timestamp_ms, key, value, sequence, deadline_ms, outcome)

    async def write_again(self, posted: PostedRecord) -> PartitionBatch:
        """Write a record of `post_one` as `write` does, in the time that is left and under its
        number; return its batch, which has its outcome."""
        batch = self.new_batch(posted.partition)
        batch.builder.append(timestamp=posted.timestamp_ms, key=posted.key, value=posted.value)
        if isinstance(batch.builder, RecordBatchBuilder):
            batch.builder.base_sequence = posted.sequence
        error = posted.outcome.error()
        now_ms = self._router.runtime.clock.monotonic_ms()
        if isinstance(error, KctlError) and now_ms >= posted.deadline_ms:
            batch.error = out_of_time(error, self._timeout_ms)
            self._settle_numbers(batch)
        else:
            await self.write([batch], posted.deadline_ms)
        return batch

    async def _send_batches(self, batches: list[PartitionBatch], deadline_ms: int) -> None:
        """Send at most one batch per partition, until each is written, has failed permanently, or
        the deadline passes."""
        clock = self._router.runtime.clock
        await self._prepare(batches)
        by_partition = {batch.partition: batch for batch in batches}
        data = {batch.partition: batch.builder.build() for batch in batches}
        if self._acks == ACKS_NONE:
            await self._send_and_forget(data)
            return

        def build(partitions: list[TopicPartition]) -> ProduceRequest:
            return self._request({partition: data[partition] for partition in partitions})

        pending = list(by_partition)
        wait_ms = _BACKOFF_MS
        while True:
            left_ms = max(deadline_ms - clock.monotonic_ms(), 1)
            answers = await self._router.send_to_leaders(pending, build, _read_response, left_ms)
            for partition, answer in answers.items():
                by_partition[partition].settle(answer)
            pending = [p for p in pending if by_partition[p].may_retry]
            if not pending or clock.monotonic_ms() + wait_ms >= deadline_ms:
                break
            await sleep(self._router.runtime.scheduler, wait_ms)
            wait_ms = min(2 * wait_ms, _BACKOFF_MS << _BACKOFF_DOUBLINGS_MAX)

    async def _prepare(self, batches: list[PartitionBatch]) -> None:
        """Number batches, whose partitions are in the transaction then, if there is one."""
        try:
            if self._transaction is not None:
                await self._transaction.add(batch.partition for batch in batches)
            elif self._numbers.is_in_doubt:
                await self._numbers.begin_epoch(self._router)
        except KctlError:
            for batch in batches:
                batch.is_sent = False
            raise
        for batch in batches:
            self._number(batch)

    def _next_deadline_ms(self) -> int:
        return self._router.runtime.clock.monotonic_ms() + self._timeout_ms

    async def _send_and_forget(self, data: dict[TopicPartition, bytearray]) -> None:
        for partition, batch in data.items():
            leader = self._router.view.leader(partition)
            if leader is None:
                raise ApiError(self._router.view.error_of(partition))
            channel = await self._router.channel_to(leader)
            await channel.send(self._request({partition: batch}))

    def _request(self, data: dict[TopicPartition, bytearray]) -> ProduceRequest:
        return ProduceRequest(
            # Before version 3 (and v2 batches) the field does not exist: it must have its default.
            transactional_id=self._transactional_id(),
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            topics=[
                TopicProduceData(
                    name=self._topic,
                    partitions=[
                        PartitionProduceData(partition_index=partition.partition, records=batch)
                        for partition, batch in data.items()
                    ],
                )
            ],
        )

    def _transactional_id(self) -> str | None:
        if self._transaction is not None:
            return self._transaction.transactional_id
        return None if self._magic == 2 else ""

    def _number(self, batch: PartitionBatch) -> None:
        builder = batch.builder
        if not isinstance(builder, RecordBatchBuilder) or builder.base_sequence != NO_SEQUENCE:
            return  # the latter of `write_again`: it was sent under this number
        # An epoch may have begun since the batch was made.
        numbers = self._numbers
        builder.producer_id, builder.producer_epoch = numbers.producer_id, numbers.producer_epoch
        builder.base_sequence = numbers.take(batch.partition, builder.count)

    def _settle_numbers(self, batch: PartitionBatch) -> None:
        """Let the next batch have the numbers of one that was rejected for its records: the broker
        expects them. After any other failure that is unknown."""
        builder, outcome, error = batch.builder, batch.outcome, batch.error
        if not isinstance(builder, RecordBatchBuilder):
            return
        if outcome not in (Outcome.REJECTED, Outcome.UNKNOWN):
            return
        code = error.code if isinstance(error, ApiError) else None
        if code not in _OF_RECORDS and self._numbers.doubt():
            return
        if outcome is Outcome.REJECTED and code not in _OUT_OF_STEP:
            self._numbers.give_back(batch.partition, builder.base_sequence)


async def wait_for_topic(router: "Router", topic: str) -> int:
    """Return the number of partitions of a topic, which is created if the brokers do that.

    ApiError UNKNOWN_TOPIC_OR_PARTITION if it does not come into being.
    """
    for _ in range(_TOPIC_ROUNDS):
        view = await router.refresh([topic], allow_auto_topic_creation=True)
        numbers = view.partitions_of(topic)
        if numbers:
            return len(numbers)
        await sleep(router.runtime.scheduler, _TOPIC_WAIT_MS)
    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")


def _report(
    batch: PartitionBatch, records: Sequence[NewRecord], results: list[ProducedRecord | None]
) -> None:
    """Put the results of a batch's records into `results`."""
    outcome = batch.outcome
    for position, index in enumerate(batch.members):
        timestamp = batch.log_append_time_ms
        if timestamp < 0:
            timestamp = records[index].timestamp or 0
        offset = batch.base_offset + position if batch.base_offset >= 0 else -1
        results[index] = ProducedRecord(
            batch.partition.partition, offset, timestamp, batch.error, outcome
        )


def _read_response(
    response: ProduceResponse,
) -> Iterable[tuple[TopicPartition, int, PartitionProduceResponse]]:
    for topic in response.responses:
        for item in topic.partitions:
            # Code 0: the item carries the error, as it includes the broker's message.
            code = item.error_code if item.error_code in WRONG_LEADER else 0
            yield TopicPartition(topic.name, item.partition_index), code, item
