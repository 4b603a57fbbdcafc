"""TransactionAdmin: lists and finds transactions with the means of Kafka 2.7, and ends them.

Kafka 2.7 has no request that lists or describes transactions (KIP-664 came with 3.0), so the
coordinators' topic is read, and the logs of partitions from their last stable offset on. A
transaction *hangs* if it is open in a partition but no coordinator has it open there: it will never
end, and readers of committed data wait for it forever.

Kafka 3.0: org.apache.kafka.tools.TransactionsCommand; KIP-664
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kctl.client.consumer import PartitionReader
from kctl.client.offsets import OffsetsClient
from kctl.client.producer_transaction import ProducerTransaction
from kctl.client.results import raise_for
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.constants import READ_COMMITTED, TRANSACTION_STATE_TOPIC
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.internal.transaction_state import (
    KEY_VERSION,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kctl.protocol.internal.versioned import decode_versioned, stored_version
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kctl.records.memory_records import batches
from kctl.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from kctl.client.router import Router

_SCAN_BYTES = 4 << 20
_OPEN_STATES = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
)


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The last state that the coordinator wrote for a transactional id; times in wall
    milliseconds."""

    transactional_id: str
    # Broker id; None if the partition of __transaction_state has no leader.
    coordinator: int | None
    producer_id: int
    producer_epoch: int
    state: TransactionState
    timeout_ms: int
    # None if there has been no transaction.
    start_ms: int | None
    last_update_ms: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Return whether a transaction is open or about to end."""
        return self.state in _OPEN_STATES


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition's log."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int
    # The timestamp of its first batch there, in milliseconds.
    timestamp_ms: int
    # The transactional id that has it open; None if it hangs.
    transactional_id: str | None = None


class TransactionAdmin:
    """The transactions of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router
        self._offsets = OffsetsClient(router)

    async def list_transactions(self) -> list[TransactionDescription]:
        """Return every transactional id that coordinators remember, by name."""
        view = await self._router.refresh([TRANSACTION_STATE_TOPIC])
        numbers = view.partitions_of(TRANSACTION_STATE_TOPIC)
        partitions = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in numbers]
        if not partitions:
            return []
        starts = await self._offsets.earliest(partitions)
        ends = await self._offsets.latest(partitions)
        for found in (*starts.values(), *ends.values()):
            if found.error is not None:
                raise found.error
        reader = PartitionReader(
            self._router,
            {partition: found.offset for partition, found in starts.items()},
            {partition: found.offset for partition, found in ends.items()},
        )
        known: dict[str, TransactionDescription] = {}
        while not reader.is_done:
            for fetched in await reader.poll():
                leader = view.leader(TopicPartition(fetched.topic, fetched.partition))
                coordinator = None if leader is None else leader.broker_id
                _take(known, fetched.record.key, fetched.record.value, coordinator)
        return [known[name] for name in sorted(known)]

    async def open_transactions(
        self, partitions: Iterable[TopicPartition]
    ) -> list[OpenTransaction]:
        """Return the transactions that are open in these partitions, with their transactional ids;
        raise ApiError."""
        wanted = list(partitions)
        found: list[OpenTransaction] = []
        stable = await self._offsets.latest(wanted, isolation_level=READ_COMMITTED)
        ends = await self._offsets.latest(wanted)
        for partition in wanted:
            for listed in (stable[partition], ends[partition]):
                if listed.error is not None:
                    raise listed.error
            start, end = stable[partition].offset, ends[partition].offset
            if start < end:
                found += await self._scan(partition, start, end)
        owners = _owners(await self.list_transactions()) if found else {}
        named = [
            OpenTransaction(
                it.partition, it.producer_id, it.producer_epoch, it.first_offset, it.timestamp_ms,
                owners.get((it.partition, it.producer_id)),
            )
            for it in found
        ]  # fmt: skip
        return await self._still_open(named)

    async def _still_open(self, found: list[OpenTransaction]) -> list[OpenTransaction]:
        """Remove the transactions that ended since their logs were read."""
        suspects = sorted({it.partition for it in found if it.transactional_id is None})
        if not suspects:
            return found
        stable = await self._offsets.latest(suspects, isolation_level=READ_COMMITTED)
        return [
            it
            for it in found
            if it.transactional_id is not None or stable[it.partition].offset <= it.first_offset
        ]

    async def _scan(self, partition: TopicPartition, start: int, end: int) -> list[OpenTransaction]:
        found: dict[int, OpenTransaction] = {}
        offset = start
        while offset < end:
            data = await self._read(partition, offset)
            before = offset
            for batch in batches(data):
                offset = max(offset, batch.next_offset)
                if not isinstance(batch, RecordBatch) or not batch.is_transactional:
                    continue
                if batch.is_control:
                    found.pop(batch.producer_id, None)
                elif batch.producer_id not in found:
                    found[batch.producer_id] = OpenTransaction(
                        partition, batch.producer_id, batch.producer_epoch, batch.base_offset,
                        batch.max_timestamp,
                    )  # fmt: skip
            if offset == before:
                break
        return list(found.values())

    async def _read(self, partition: TopicPartition, offset: int) -> bytes | memoryview:
        asked = FetchPartition(
            partition=partition.partition,
            fetch_offset=offset,
            partition_max_bytes=_SCAN_BYTES,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_SCAN_BYTES,
            topics=[FetchTopic(topic=partition.topic, partitions=[asked])],
        )
        response = await self._router.send_to_leader(partition, request)
        answer = response.responses[0].partition_responses[0]
        raise_for(answer.error_code)
        data: bytes | memoryview = answer.record_set or b""
        return data

    async def fence(self, transactional_id: str) -> int:
        """Abort the open transaction of the transactional id and fence its producer; return the new
        epoch. Raise ApiError."""
        transaction = ProducerTransaction(self._router, transactional_id)
        await transaction.begin()
        return transaction.producer_epoch

    async def abort_hanging(self, hanging: OpenTransaction, coordinator_epoch: int) -> None:
        """Write the abort marker of a hanging transaction. Raise KctlError if the partition has
        markers of a higher coordinator epoch, ApiError for any other error."""
        topic, number = hanging.partition
        marker = WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
            coordinator_epoch=coordinator_epoch,
        )
        response = await self._router.send_to_leader(
            hanging.partition, WriteTxnMarkersRequest(markers=[marker])
        )
        code = response.markers[0].topics[0].partitions[0].error_code
        if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            raise KctlError(
                f"{hanging.partition} has markers of a coordinator epoch above {coordinator_epoch}",
                hint="use a higher --coordinator-epoch",
            )
        if code:
            raise ApiError(code)


def _take(
    known: dict[str, TransactionDescription],
    key: bytes | None,
    value: bytes | None,
    coordinator: int | None,
) -> None:
    if key is None or stored_version(key) != KEY_VERSION:
        return
    name = decode_versioned(TransactionLogKey, key).transactional_id
    if value is None:
        known.pop(name, None)
        return
    read = decode_versioned(TransactionLogValue, value)
    start_ms = read.transaction_start_timestamp_ms
    known[name] = TransactionDescription(
        name,
        coordinator,
        read.producer_id,
        read.producer_epoch,
        TransactionState(read.transaction_status),
        read.transaction_timeout_ms,
        start_ms if start_ms >= 0 else None,
        read.transaction_last_update_timestamp_ms,
        tuple(
            TopicPartition(topic.topic, number)
            for topic in read.transaction_partitions or ()
            for number in topic.partition_ids
        ),
    )


def _owners(
    transactions: Iterable[TransactionDescription],
) -> Mapping[tuple[TopicPartition, int], str]:
    return {
        (partition, it.producer_id): it.transactional_id
        for it in transactions
        if it.is_open
        for partition in it.partitions
    }
