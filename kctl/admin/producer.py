"""Producer: writes records to a topic, and says of each where it went.

Records are gathered into one batch a partition and sent to all leaders at once; a call returns when
all are answered. With acks=all it numbers its batches (an idempotent producer) where the broker can
do that, so that asking again after a lost answer writes nothing twice.

With a `transaction` all records belong to it; who made it ends it.

Kafka 2.7: org.apache.kafka.clients.producer.KafkaProducer, internals.Sender; KIP-98
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl.admin.partitioner import StickyPartitioner
from kctl.admin.result import error_of
from kctl.client.retry import WRONG_LEADER
from kctl.errors import KctlError, UsageError
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
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
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.admin.producer_transaction import ProducerTransaction
    from kctl.client.router import Router

ACKS_ALL = -1
ACKS_NONE = 0
# A batch is closed beyond this, which leaves room below max.message.bytes as it is by default.
BATCH_BYTES_MAX = 900_000
_NO_PRODUCER_ID = -1
_SEQUENCE_END = 1 << 31
# Produce versions from which v2 batches, and zstd, are understood.
_BATCH_V2_VERSION = 3
_MESSAGE_V1_VERSION = 2
_ZSTD_VERSION = 7
_RETRIES_MAX = 20
_BACKOFF_MS = 100
# Beyond a wrong leader, which the router deals with.
_RETRY = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CORRUPT_MESSAGE,
    }
)
# What a record costs beside its key and value, at most.
_RECORD_OVERHEAD_BYTES = 40

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class NewRecord:
    """A record to be; partition None: by its key; timestamp None: now."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None

    @property
    def size_bytes(self) -> int:
        """What it takes in a batch, roughly and not less."""
        headers = sum(len(n) * 4 + len(v or b"") + 10 for n, v in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + _RECORD_OVERHEAD_BYTES


@dataclass(slots=True)
class ProducedRecord:
    """Where a record went; offset -1: not known (acks=0, or it was written by an earlier try)."""

    partition: int
    offset: int
    timestamp: int
    error: KctlError | None = None


@dataclass(slots=True)
class _Batch:
    partition: TopicPartition
    builder: RecordBatchBuilder | MessageSetBuilder
    # Numbers of its records in the call's list.
    members: list[int]
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: KctlError | None = None

    @property
    def may_retry(self) -> bool:
        """Whether sending it again may help."""
        return isinstance(self.error, ApiError) and self.error.code in _RETRY

    def settle(self, answer: "PartitionProduceResponse | KctlError") -> None:
        """Take in what became of it."""
        if isinstance(answer, KctlError):
            self.error = answer
            return
        self.error = error_of(answer.error_code, answer.error_message)
        self.base_offset = answer.base_offset
        self.log_append_time_ms = answer.log_append_time_ms


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
    ) -> None:
        self._router = router
        self._topic = topic
        self._acks = acks
        self._compression_type = compression_type
        self._timeout_ms = timeout_ms
        self._transaction = transaction
        self._magic = 2
        self._partitioner: StickyPartitioner | None = None
        self._partition_count = 0
        self._producer_id = _NO_PRODUCER_ID
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def partition_count(self) -> int:
        """Of the topic; 0 before `open`."""
        return self._partition_count

    async def open(self) -> None:
        """Find the topic; ApiError UNKNOWN_TOPIC_OR_PARTITION if there is none (it is not
        created), UsageError if the broker lacks something asked for."""
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
            raise UsageError("This broker is older than Kafka 2.1: it does not know zstd")
        if self._transaction is not None:
            if self._acks != ACKS_ALL or self._magic < 2:
                raise UsageError("Transactions need acks=all, and brokers from Kafka 0.11 on")
            await self._transaction.begin()
            self._producer_id = self._transaction.producer_id
            self._producer_epoch = self._transaction.producer_epoch
        elif self._acks == ACKS_ALL and self._magic == 2:
            await self._get_producer_id()

    async def send(self, records: Sequence[NewRecord]) -> list[ProducedRecord]:
        """Write `records`; the results are in the same order. Order within a partition is kept."""
        if self._partitioner is None:
            await self.open()
        results: list[ProducedRecord | None] = [None] * len(records)
        # Batches of one partition go one after the other; those of different ones together.
        queues: dict[TopicPartition, list[_Batch]] = {}
        for batch in self._gather(records, results):
            queues.setdefault(batch.partition, []).append(batch)
        while queues:
            heads = [queue.pop(0) for queue in queues.values()]
            await self._send_batches(heads)
            for batch in heads:
                self._settle(batch, records, results)
            queues = {partition: queue for partition, queue in queues.items() if queue}
        return [result for result in results if result is not None]

    def _gather(
        self, records: Sequence[NewRecord], results: list[ProducedRecord | None]
    ) -> list[_Batch]:
        partitioner = self._partitioner
        assert partitioner is not None
        if self._magic < 2 and any(record.headers for record in records):
            raise UsageError("This broker is older than Kafka 0.11: its records have no headers")
        now_ms = self._router.runtime.clock.wall_ms()
        batches: list[_Batch] = []
        is_open: dict[int, _Batch] = {}
        for index, record in enumerate(records):
            number = record.partition
            if number is None:
                number = partitioner.partition(record.key)
            elif not 0 <= number < self._partition_count:
                error = error_of(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                results[index] = ProducedRecord(number, -1, -1, error)
                continue
            batch = is_open.get(number)
            if batch is None or batch.builder.size + record.size_bytes > BATCH_BYTES_MAX:
                if batch is not None and record.key is None and record.partition is None:
                    partitioner.turn()
                    number = partitioner.partition(None)
                batch = is_open[number] = self._new_batch(number)
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

    def _new_batch(self, number: int) -> _Batch:
        partition = TopicPartition(self._topic, number)
        if self._magic < 2:
            builder = MessageSetBuilder(magic=self._magic, compression_type=self._compression_type)
            return _Batch(partition, builder, [])
        return _Batch(
            partition,
            RecordBatchBuilder(
                compression_type=self._compression_type,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                is_transactional=self._transaction is not None,
            ),
            [],
        )

    async def _send_batches(self, batches: list[_Batch]) -> None:
        """Send at most one batch a partition, until each is written or has failed for good."""
        if self._transaction is not None:
            await self._transaction.add(batch.partition for batch in batches)
        for batch in batches:
            self._number(batch)
        by_partition = {batch.partition: batch for batch in batches}
        data = {batch.partition: batch.builder.build() for batch in batches}
        if self._acks == ACKS_NONE:
            await self._send_and_forget(data)
            return

        def build(partitions: list[TopicPartition]) -> ProduceRequest:
            return self._request({partition: data[partition] for partition in partitions})

        pending = list(by_partition)
        for attempt in range(_RETRIES_MAX):
            if attempt:
                await sleep(self._router.runtime.scheduler, _BACKOFF_MS << min(attempt - 1, 4))
            answers = await self._router.send_to_leaders(pending, build, _read_response)
            for partition, answer in answers.items():
                by_partition[partition].settle(answer)
            pending = [p for p in pending if by_partition[p].may_retry]
            if not pending:
                break

    async def _send_and_forget(self, data: dict[TopicPartition, bytearray]) -> None:
        for partition, batch in data.items():
            leader = self._router.view.leader(partition)
            if leader is None:
                raise ApiError(self._router.view.error_of(partition))
            channel = await self._router.channel_to(leader)
            await channel.send(self._request({partition: batch}))

    def _request(self, data: dict[TopicPartition, bytearray]) -> ProduceRequest:
        return ProduceRequest(
            # Before version 3 (and v2 batches) the field is not there: its default must stand.
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

    def _number(self, batch: _Batch) -> None:
        if self._producer_id == _NO_PRODUCER_ID or not isinstance(
            batch.builder, RecordBatchBuilder
        ):
            return
        sequence = self._sequences.get(batch.partition, 0)
        batch.builder.base_sequence = sequence
        self._sequences[batch.partition] = (sequence + batch.builder.count) % _SEQUENCE_END

    def _settle(
        self,
        batch: _Batch,
        records: Sequence[NewRecord],
        results: list[ProducedRecord | None],
    ) -> None:
        error = batch.error
        if isinstance(error, ApiError) and error.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            error = None  # an earlier try of ours had been written
        for position, index in enumerate(batch.members):
            timestamp = batch.log_append_time_ms
            if timestamp < 0:
                timestamp = records[index].timestamp or 0
            offset = batch.base_offset + position if batch.base_offset >= 0 else -1
            results[index] = ProducedRecord(batch.partition.partition, offset, timestamp, error)

    async def _get_producer_id(self) -> None:
        if await self._router.max_version(ApiKey.INIT_PRODUCER_ID) < 0:
            return
        from kctl.protocol.messages.init_producer_id import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._router.send_to_any(request)
        # Not allowed to (before KIP-679 it took a right of its own): go on without numbers.
        if response.error_code == 0:
            self._producer_id = response.producer_id
            self._producer_epoch = response.producer_epoch


def _read_response(
    response: ProduceResponse,
) -> Iterable[tuple[TopicPartition, int, PartitionProduceResponse]]:
    for topic in response.responses:
        for item in topic.partitions:
            # Code 0: the item carries its error itself, as the broker's words go with it.
            code = item.error_code if item.error_code in WRONG_LEADER else 0
            yield TopicPartition(topic.name, item.partition_index), code, item
