"""TransactionalClient: a simulated producer that sends the requests of transactions.

It handles responses as Kafka's Java client does: it retries where that may help, with the current
coordinator and over a new connection if the old one was silent; it aborts and raises its epoch
where the transaction cannot continue (`MustAbortError`, KIP-360); it ends when another instance has
taken its place (`FencedError`). Its timeouts are short, so that many of its requests arrive late.
Only the retries of a batch have no limit (`delivery.timeout.ms`).

Kafka 2.7: org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98, KIP-360, KIP-447,
KIP-588.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kctl.client.retry import error_codes
from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.protocol.constants import ACKS_ALL, GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kctl.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.messages.end_txn import EndTxnRequest
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest
from kctl.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kctl.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kctl.protocol.schema import Message
from kctl.records.builder import RecordBatchBuilder
from kctl.runtime.future import sleep
from kctl.simulation.cluster import SimCluster
from kctl.simulation.group_client import Membership
from kctl.simulation.runtime import SimEntropy
from kctl.simulation.scheduler import WALL_START_MS

# Timeouts of requests; the short ones expire while requests are in flight.
CALL_TIMEOUTS_MS = (150, 600, 3_000)
PAUSE_MS = 30
PRODUCE_TIMEOUT_MS = 1_000

_RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# The group has moved on without this consumer.
_LEFT_BEHIND = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
# Errors that a producer that sends in order must never get for a batch.
_REFUSALS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class FencedError(Exception):
    """Another instance has taken over: this one may do nothing more."""


class MustAbortError(Exception):
    """This transaction cannot be committed; the producer may abort it and continue."""


class TransactionalClient:
    """One instance; `newest` has the newest id and epoch of each transactional id."""

    def __init__(
        self,
        cluster: SimCluster,
        router: Router,
        entropy: SimEntropy,
        transactional_id: str,
        newest: dict[str, tuple[int, int]],
        *,
        timeout_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.producer_epoch = -1
        self._cluster = cluster
        self._router = router
        self._scheduler = router.runtime.scheduler
        self._entropy = entropy
        self._newest = newest
        self._sequences: dict[TopicPartition, int] = {}

    async def begin(self) -> None:
        """Take over the transactional id from its present owner."""
        await self._init(-1, -1)

    async def recover(self) -> None:
        """Continue with the next epoch, after an error (KIP-360)."""
        await self._init(self.producer_id, self.producer_epoch)

    async def _init(self, producer_id: int, producer_epoch: int) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        before = self._newest.get(self.transactional_id, (-1, -1))
        answer = await self._ask(self.transactional_id, request)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        got = (self.producer_id, self.producer_epoch)
        if got <= before:
            self._cluster.fail(f"{self.transactional_id} got {got} after {before} was given out")
        self._newest[self.transactional_id] = max(
            got, self._newest.get(self.transactional_id, (-1, -1))
        )

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions that the transaction is going to write to."""
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            topics.setdefault(topic, []).append(number)
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[AddPartitionsToTxnTopic(name=t, partitions=n) for t, n in topics.items()],
        )
        await self._ask(self.transactional_id, request)

    async def add_offsets(self, group: str) -> None:
        """Add the group whose offsets the transaction is going to commit."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group,
        )
        await self._ask(self.transactional_id, request)

    async def commit_offsets(
        self, group: str, member: Membership | None, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Commit offsets in the transaction, as a member of the group or, as before KIP-447,
        without a member.
        """
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, number), offset in sorted(offsets.items()):
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=t, partitions=p) for t, p in topics.items()],
        )
        if member is not None:
            request.generation_id, request.member_id = member.generation_id, member.member_id
            request.group_instance_id = member.instance_id
        await self._ask(group, request)

    async def end(self, *, is_commit: bool) -> None:
        """Commit or abort."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=is_commit,
        )
        mine = (self.producer_id, self.producer_epoch)
        newest = self._newest[self.transactional_id]
        await self._ask(self.transactional_id, request)
        if newest > mine:
            self._cluster.fail(f"{self.transactional_id}: {mine} ends what {newest} has taken over")

    async def produce(self, partition: TopicPartition, values: Sequence[str]) -> None:
        """Write a batch; raise MustAbortError if the partition knows a newer epoch."""
        sequence = self._sequences.get(partition, 0)
        request = self._produce_request(partition, values, sequence)
        while True:
            try:
                answer = await self._router.send_to_leader(
                    partition, request, timeout_ms=self._entropy.choice(CALL_TIMEOUTS_MS)
                )
            except KctlError:
                await self._pause()
                continue
            code = answer.responses[0].partitions[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[partition] = sequence + len(values)
                return
            if code in _FENCED:
                raise MustAbortError
            if code in _REFUSALS:
                self._refused(f"batch {sequence} for {partition}", code)
            await self._pause()

    def _produce_request(
        self, partition: TopicPartition, values: Sequence[str], sequence: int
    ) -> ProduceRequest:
        builder = RecordBatchBuilder(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        for value in values:
            builder.append(timestamp=WALL_START_MS, key=None, value=value.encode())
        data = PartitionProduceData(
            partition_index=partition.partition, records=bytes(builder.build())
        )
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topics=[TopicProduceData(name=partition.topic, partitions=[data])],
        )

    async def _ask(self, key: str, request: Message) -> Any:
        """Return the response, retrying as long as it takes; TxnOffsetCommit goes to the group's
        coordinator.
        """
        is_own = key == self.transactional_id
        key_type = TRANSACTION_KEY_TYPE if is_own else GROUP_KEY_TYPE
        while True:
            try:
                answer = await self._router.send_to_coordinator(
                    key, request, key_type, timeout_ms=self._entropy.choice(CALL_TIMEOUTS_MS)
                )
            except KctlError:
                await self._pause()
                continue
            codes = {ErrorCode(code) for code in error_codes(answer)}
            if not codes:
                return answer
            if codes & _FENCED:
                raise FencedError
            if codes & _LEFT_BEHIND:
                raise MustAbortError
            if not codes & _RETRIED:
                self._refused(type(request).__name__, min(codes))
            await self._pause()

    def _refused(self, what: str, code: int) -> None:
        who = f"{self.transactional_id} {self.producer_id}/{self.producer_epoch}"
        self._cluster.fail(f"{who}: {what} is rejected with {ErrorCode(code).name}")
        raise FencedError

    async def _pause(self) -> None:
        await sleep(self._scheduler, PAUSE_MS)
