"""ProducerTransaction: the requests of a producer to its transaction coordinator.

One transaction at a time: `begin` once for the producer id and epoch, `add` before the first record
for a partition, `end`. Offsets of a group are committed with it after `add_group`. While the
coordinator is busy with the previous transaction, requests are retried.

Kafka 2.7: org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kctl.client.results import raise_for
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kctl.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.messages.end_txn import EndTxnRequest
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest
from kctl.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kctl.protocol.schema import Message
from kctl.runtime.future import sleep

if TYPE_CHECKING:
    from kctl.client.router import Router

# The default of Kafka's producers; the broker aborts longer transactions.
TRANSACTION_TIMEOUT_MS = 60_000
# The version of TxnOffsetCommit that fences members of a group.
GROUP_FENCING_VERSION = 3
_COORDINATES_TRANSACTIONS = 1
_BACKOFF_MS = 50


class ProducerTransaction:
    """The transactions of `transactional_id`."""

    def __init__(
        self,
        router: "Router",
        transactional_id: str,
        *,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.producer_epoch = -1
        self._router = router
        self._timeout_ms = timeout_ms
        self._partitions: set[TopicPartition] = set()
        self._has_offsets = False
        self._is_resumed = False

    @property
    def is_open(self) -> bool:
        """Return whether partitions or offsets were added since the last end."""
        return bool(self._partitions) or self._has_offsets or self._is_resumed

    async def begin(self) -> None:
        """Get a producer id and epoch. Older producers with this transactional id are fenced, and
        their open transaction is aborted."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        answer = await self._ask(request, _own_code)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self._forget()

    def _forget(self) -> None:
        self._partitions.clear()
        self._has_offsets = False
        self._is_resumed = False

    def resume(self, producer_id: int, producer_epoch: int) -> None:
        """Take over a transaction to which another client has written; `end` comes next."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._is_resumed = True

    async def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction before writing to them; raise ApiError."""
        fresh = [partition for partition in partitions if partition not in self._partitions]
        if not fresh:
            return
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(fresh):
            topics.setdefault(topic, []).append(number)
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in topics.items()
            ],
        )
        await self._ask(request, _first_partition_code)
        self._partitions.update(fresh)

    async def add_group(self, group_id: str) -> None:
        """Add the offsets of a group to the transaction; raise ApiError."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        await self._ask(request, _own_code)
        self._has_offsets = True

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str],
        *,
        member_id: str = "",
        generation_id: int = -1,
    ) -> None:
        """Commit offsets of a group that was added, with the transaction; raise ApiError.

        The coordinator checks `member_id` and `generation_id` if it is Kafka 2.5 or later
        (KIP-447).
        """
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for partition, offset in sorted(offsets.items()):
            topics.setdefault(partition.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset,
                    committed_metadata=metadata.get(partition, ""),
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=items)
                for name, items in topics.items()
            ],
        )
        if await self._router.max_version(ApiKey.TXN_OFFSET_COMMIT) >= GROUP_FENCING_VERSION:
            request.member_id, request.generation_id = member_id, generation_id
        response = await self._router.send_to_coordinator(group_id, request)
        for topic in response.topics:
            for item in topic.partitions:
                raise_for(item.error_code)

    async def end(self, *, commit: bool, timeout_ms: int | None = None) -> None:
        """Commit or abort, if there is anything to end; raise ApiError."""
        if not self.is_open:
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        await self._ask(request, _own_code, timeout_ms)
        self._forget()

    async def _ask(
        self, request: Message, code_of: Callable[[Any], int], timeout_ms: int | None = None
    ) -> Any:
        clock = self._router.runtime.clock
        limit_ms = self._router.timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = clock.monotonic_ms() + limit_ms
        while True:
            answer = await self._router.send_to_coordinator(
                self.transactional_id, request, _COORDINATES_TRANSACTIONS, timeout_ms=limit_ms
            )
            code = code_of(answer)
            if code != ErrorCode.CONCURRENT_TRANSACTIONS or clock.monotonic_ms() > deadline_ms:
                raise_for(code)
                return answer
            await sleep(self._router.runtime.scheduler, _BACKOFF_MS)


def _own_code(answer: Any) -> int:
    code: int = answer.error_code
    return code


def _first_partition_code(answer: Any) -> int:
    """Return the error that failed the request: the other partitions say
    OPERATION_NOT_ATTEMPTED."""
    codes = [item.error_code for topic in answer.results for item in topic.results]
    wrong = [code for code in codes if code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    return wrong[0] if wrong else max(codes, default=0)
