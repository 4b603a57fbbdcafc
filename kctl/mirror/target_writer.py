"""TargetWriter: writes batches to the target in order, several requests in flight per leader.

The batches of a partition are numbered by the writer's producer id, so that its leader refuses a
batch after one that failed (decision 0117): order is kept without waiting for each response. The
first failure ends a call; then the caller recovers from what the target has committed, and `open`
gets new numbers.

Kafka 2.7: org.apache.kafka.clients.producer.internals.Sender; KIP-98
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kctl.client.cluster_view import BrokerAddress
from kctl.errors import KctlError, UnreachableError, UnsupportedVersionError
from kctl.mirror.raw_batches import BatchCopy, stamp
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import ACKS_ALL
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest
from kctl.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kctl.records.record_batch import NO_PRODUCER_ID, increment_sequence
from kctl.runtime.future import gather

if TYPE_CHECKING:
    from kctl.client.producer_transaction import ProducerTransaction
    from kctl.client.router import Router
    from kctl.runtime.future import Future

# Kafka's leaders remember the last five batches of a producer.
IN_FLIGHT_MAX = 5
REQUEST_BYTES_MAX = 4 << 20
_BATCH_V2_VERSION = 3
_PRODUCE_TIMEOUT_MS = 30_000
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# Errors that another try of the same batch does not cure: they stop its partition.
OF_BATCHES = frozenset(
    {
        *TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.POLICY_VIOLATION,
    }
)


class WriteFailedError(KctlError):
    """The target did not take a batch of one partition; `code` says why."""

    def __init__(self, partition: TopicPartition, code: int, text: str | None) -> None:
        self.partition = partition
        self.code = ErrorCode(code)
        super().__init__(f"{partition}: {text or self.code.text}")


class TargetWriter:
    """Writes as one producer, in `transaction` if there is one."""

    def __init__(self, router: "Router", transaction: "ProducerTransaction | None") -> None:
        self.transaction = transaction
        self._router = router
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    async def open(self) -> None:
        """Get new numbers; raise UnsupportedVersionError if the target is older than 0.11."""
        if await self._router.max_version(ApiKey.PRODUCE) < _BATCH_V2_VERSION:
            raise UnsupportedVersionError(
                "The target is older than Kafka 0.11, which batches of this format need"
            )
        self._sequences.clear()
        if self.transaction is not None:
            await self.transaction.begin()
            self._producer_id = self.transaction.producer_id
            self._producer_epoch = self.transaction.producer_epoch
            return
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._router.send_to_any(request)
        if response.error_code:
            raise ApiError(response.error_code)
        self._producer_id = response.producer_id
        self._producer_epoch = response.producer_epoch

    async def write(
        self, batches: Mapping[TopicPartition, Sequence[BatchCopy]]
    ) -> dict[TopicPartition, list[int]]:
        """Write the batches, and return the offset of the first record of each.

        Raise WriteFailedError if a leader refuses one, UnreachableError if it does not answer; what
        was written is unknown then.
        """
        view = self._router.view
        if any(view.leader(partition) is None for partition in batches):
            view = await self._router.refresh(sorted({p.topic for p in batches}))
        by_leader: dict[int, dict[TopicPartition, deque[BatchCopy]]] = {}
        for partition, copies in batches.items():
            leader = view.leader(partition)
            if leader is None:
                raise WriteFailedError(partition, view.error_of(partition), None)
            by_leader.setdefault(leader.broker_id, {})[partition] = deque(copies)
        offsets: dict[TopicPartition, list[int]] = {partition: [] for partition in batches}
        work = [
            self._feed(view.brokers[broker_id], queues, offsets)
            for broker_id, queues in by_leader.items()
        ]
        errors = [e for e in await gather(self._router.runtime.scheduler, work) if e is not None]
        if errors:
            raise errors[0]
        return offsets

    async def _feed(
        self,
        leader: BrokerAddress,
        queues: dict[TopicPartition, deque[BatchCopy]],
        offsets: dict[TopicPartition, list[int]],
    ) -> KctlError | None:
        """Send all batches to one leader; return the first error."""
        waiting: deque[Future[Any]] = deque()
        try:
            channel = await self._router.channel_to(leader)
            while queues or waiting:
                if queues and len(waiting) < IN_FLIGHT_MAX:
                    waiting.append(channel.request(self._next_request(queues)))
                else:
                    _read(await waiting[0], offsets)
                    waiting.popleft()
        except KctlError as error:
            # Later requests were sent already: their results do not matter, but must be awaited.
            for future in waiting:
                future.add_done_callback(_ignore)
            if isinstance(error, WriteFailedError | UnreachableError):
                await self._forget_leaders(queues, offsets)
            return error
        return None

    async def _forget_leaders(self, *partitions: Mapping[TopicPartition, object]) -> None:
        topics = sorted({partition.topic for each in partitions for partition in each})
        try:
            await self._router.refresh(topics)
        except KctlError:
            self._router.view.forget(topics)

    def _next_request(self, queues: dict[TopicPartition, deque[BatchCopy]]) -> ProduceRequest:
        """Take at most one batch of each partition, the limit of Produce."""
        topics: dict[str, list[PartitionProduceData]] = {}
        size = 0
        for partition in list(queues):
            queue = queues[partition]
            if size and size + queue[0].size > REQUEST_BYTES_MAX:
                continue
            # The next request begins with the partitions that this one has no room for.
            del queues[partition]
            copy = queue.popleft()
            if queue:
                queues[partition] = queue
            size += copy.size
            self._number(partition, copy)
            data = PartitionProduceData(partition_index=partition.partition, records=copy.data)
            topics.setdefault(partition.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self.transaction.transactional_id if self.transaction else None,
            acks=ACKS_ALL,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topics=[TopicProduceData(name=n, partitions=items) for n, items in topics.items()],
        )

    def _number(self, partition: TopicPartition, copy: BatchCopy) -> None:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = increment_sequence(sequence, copy.count)
        stamp(
            copy.data,
            self._producer_id,
            self._producer_epoch,
            sequence,
            transactional=self.transaction is not None,
        )


def _read(response: Any, offsets: dict[TopicPartition, list[int]]) -> None:
    for topic in response.responses:
        for item in topic.partitions:
            partition = TopicPartition(topic.name, item.partition_index)
            if item.error_code:
                raise WriteFailedError(partition, item.error_code, item.error_message)
            offsets[partition].append(item.base_offset)


def _ignore(future: "Future[Any]") -> None:
    future.error()
