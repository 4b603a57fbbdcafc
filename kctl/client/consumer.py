"""PartitionReader: reads records from given offsets up to given end offsets.

One fetch per leader is in flight. `poll` returns as soon as any of them has records, in order
within a partition. Control records are left out, and with isolation level 1 also the records of
aborted transactions.

Invariants: the position of a partition only rises, except for a reset when the broker no longer has
the records (reported in `notes`); no record at or after the end offset of a partition is returned.
A record before the position of its partition has been returned, or is returned by the next poll: an
error that follows it is raised one poll later.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.Fetcher; KIP-98, KIP-74
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kctl.client.cluster_view import BrokerAddress
from kctl.client.offsets import OffsetsClient, offsets_or_error
from kctl.client.retry import WRONG_LEADER
from kctl.counts import are, counted
from kctl.errors import KctlError, NotFoundError, UnreachableError
from kctl.model import Position, TopicPartition
from kctl.protocol.constants import READ_UNCOMMITTED
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kctl.records.control import ControlRecordType, control_record_type
from kctl.records.memory_records import Batch, batches, first_batch_size
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch
from kctl.runtime.future import sleep, wait_for_any

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.runtime.future import Task

_BACKOFF_MS = 200
_ERRORS_IN_A_ROW_MAX = 20


class FetchedRecord(NamedTuple):
    """A record and its place; timestamp type 0 is CreateTime, 1 is LogAppendTime."""

    topic: str
    partition: int
    record: Record
    timestamp_type: int
    # The broker that has the partition, in Kafka 0.7, where each counts its partitions from 0.
    broker_id: int | None = None

    @property
    def partition_name(self) -> int | str:
        """Return the partition; in Kafka 0.7 `BROKER-NUMBER`."""
        return self.partition if self.broker_id is None else f"{self.broker_id}-{self.partition}"


class PartitionReader:
    """Reads the partitions in `positions`, each up to its offset in `ends` if there is one."""

    def __init__(
        self,
        router: "Router",
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        isolation_level: int = READ_UNCOMMITTED,
        max_wait_ms: int = 500,
        partition_bytes_max: int = 1 << 20,
        response_bytes_max: int = 16 << 20,
        resets: bool = True,
    ) -> None:
        """Begin at `positions`.

        Where the broker no longer has a position, it goes on at the beginning or end of the
        partition, or with `resets=False` raises NotFoundError.
        """
        self._router = router
        # The next offset of each partition.
        self.positions = dict(positions)
        # Messages for the user; the caller clears them.
        self.notes: list[str] = []
        self._ends = dict(ends or {})
        self._isolation_level = isolation_level
        self._max_wait_ms = max_wait_ms
        self._partition_bytes_max = partition_bytes_max
        self._response_bytes_max = response_bytes_max
        self._resets = resets
        self._in_flight: dict[int, Task[FetchResponse | None]] = {}
        # Records before the positions that have not been returned, and the error after them.
        self._taken: list[FetchedRecord] = []
        self._error: KctlError | None = None
        self._errors_in_a_row = 0

    @classmethod
    async def over_range(
        cls,
        router: "Router",
        partitions: Sequence[TopicPartition],
        start: Position,
        end: Position | None = None,
        *,
        until_latest: bool = False,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> "PartitionReader":
        """Return a reader of `partitions` from `start` to `end`, or without an end.

        With `until_latest` it ends at the end offsets of this moment at the latest. Raise KctlError
        if a start or an end cannot be found: nothing is read then.
        """
        offsets = OffsetsClient(router)
        positions = offsets_or_error(
            await offsets.resolve(dict.fromkeys(partitions, start), isolation_level=isolation_level)
        )
        ends: dict[TopicPartition, int] = {}
        if end is not None:
            ends = offsets_or_error(
                await offsets.resolve(
                    dict.fromkeys(partitions, end), isolation_level=isolation_level
                )
            )
        if until_latest:
            latest = offsets_or_error(
                await offsets.latest(partitions, isolation_level=isolation_level)
            )
            for partition, offset in latest.items():
                ends[partition] = min(offset, ends.get(partition, offset))
        return cls(router, positions, ends, isolation_level=isolation_level)

    @property
    def is_done(self) -> bool:
        """Return whether every partition has an end offset and has reached it."""
        return not self._taken and not self._unfinished()

    async def poll(self) -> list[FetchedRecord]:
        """Return the next records, or none if none arrived within the longest wait of a fetch.

        Raise ApiError if a partition no longer exists or may not be read, CorruptDataError for a
        damaged batch. The records before an error are returned first; after it, a poll tries again.
        """
        try:
            await self._poll()
        except KctlError as error:
            self._errors_in_a_row = 0
            if not self._taken:
                raise
            self._error = error
        taken, self._taken = self._taken, []
        return taken

    async def _poll(self) -> None:
        """Take the records of the fetches that are done; wait for one if there are none."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._taken:
            # The caller of the last poll did not wait for its result.
            return
        await self._start_fetches()
        if not self._in_flight:
            if self._unfinished():
                await sleep(self._router.runtime.scheduler, _BACKOFF_MS)
            return
        await wait_for_any(self._router.runtime.scheduler, self._in_flight.values())
        for broker_id in [b for b, task in self._in_flight.items() if task.done]:
            response = self._in_flight.pop(broker_id).result()
            if response is None:
                await self._look_again()
            elif response.error_code:
                raise ApiError(response.error_code)
            else:
                await self._take(response)

    def close(self) -> None:
        """Discard fetches in flight."""
        for task in self._in_flight.values():
            task.cancel()
        self._in_flight.clear()

    def _unfinished(self) -> list[TopicPartition]:
        ends = self._ends
        return [p for p, at in self.positions.items() if p not in ends or at < ends[p]]

    async def _start_fetches(self) -> None:
        partitions = self._unfinished()
        view = self._router.view
        if any(view.leader(partition) is None for partition in partitions):
            view = await self._router.refresh(sorted({p.topic for p in partitions}))
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = view.leader(partition)
            if leader is None:
                self._tolerate(partition, view.error_of(partition))
            else:
                by_leader.setdefault(leader.broker_id, []).append(partition)
        for broker_id, group in by_leader.items():
            if broker_id not in self._in_flight:
                self._in_flight[broker_id] = self._router.runtime.scheduler.spawn(
                    self._fetch(view.brokers[broker_id], self._request(group)), "fetch"
                )

    async def _fetch(self, leader: BrokerAddress, request: FetchRequest) -> FetchResponse | None:
        """Send a fetch; return None if the broker is unreachable, as another may be the leader by
        now."""
        try:
            channel = await self._router.channel_to(leader)
            response: FetchResponse = await channel.send(request)
        except UnreachableError:
            self._errors_in_a_row += 1
            if self._errors_in_a_row >= _ERRORS_IN_A_ROW_MAX:
                raise
            return None
        return response

    def _request(self, partitions: list[TopicPartition]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=self.positions[partition],
                    partition_max_bytes=self._partition_bytes_max,
                )
            )
        # The broker fills its response from the first partition on: rotate, so that each is first
        # in turn.
        first = next(iter(self.positions))
        self.positions[first] = self.positions.pop(first)
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._response_bytes_max,
            isolation_level=self._isolation_level,
            topics=[FetchTopic(topic=name, partitions=items) for name, items in topics.items()],
        )

    async def _take(self, response: FetchResponse) -> None:
        needs_refresh = False
        for topic in response.responses:
            for item in topic.partition_responses:
                partition = TopicPartition(topic.topic, item.partition)
                if partition not in self.positions:
                    continue
                if item.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._reset(partition)
                elif item.error_code:
                    self._tolerate(partition, item.error_code)
                    needs_refresh = True
                else:
                    self._errors_in_a_row = 0
                    self._read(partition, item)
        if needs_refresh:
            await self._look_again()

    async def _look_again(self) -> None:
        await sleep(self._router.runtime.scheduler, _BACKOFF_MS)
        await self._router.refresh(sorted({p.topic for p in self.positions}))

    def _tolerate(self, partition: TopicPartition, code: int) -> None:
        """Ignore an error that may pass; raise one that is permanent."""
        self._errors_in_a_row += 1
        is_hopeful = code in WRONG_LEADER and self._errors_in_a_row < _ERRORS_IN_A_ROW_MAX
        if not is_hopeful:
            raise ApiError(code, f"Cannot read {partition}: {ErrorCode(code).text}")

    async def _reset(self, partition: TopicPartition) -> None:
        offsets = OffsetsClient(self._router)
        start = (await offsets.earliest([partition]))[partition]
        if start.error is not None:
            raise start.error
        position = self.positions[partition]
        if position < start.offset:
            count = start.offset - position
            gone = f"{counted(count, 'record')} from {position} on {are(count)} gone"
            self._move(partition, start.offset, f"{partition} now begins at {start.offset}: {gone}")
            return
        end = (await offsets.latest([partition]))[partition]
        if end.error is not None:
            raise end.error
        if position > end.offset:
            self._move(
                partition, end.offset, f"{partition} ends at {end.offset}, before {position}"
            )

    def _move(self, partition: TopicPartition, offset: int, why: str) -> None:
        if not self._resets:
            raise NotFoundError(why, hint="seek to an offset that exists")
        self.notes.append(why)
        self.positions[partition] = offset

    def _read(self, partition: TopicPartition, item: FetchablePartitionResponse) -> None:
        data = item.record_set
        if not data:
            return
        end = self._ends.get(partition)
        is_aborted = AbortedFilter(item)
        position = self.positions[partition]
        for batch in batches(data):
            batch.ensure_valid()
            if not is_aborted(batch):
                # The records of a batch are all taken, or none: one of them may be damaged.
                self._taken += [
                    FetchedRecord(*partition, record, batch.timestamp_type)
                    for record in batch.records()
                    if record.offset >= position and (end is None or record.offset < end)
                ]
            position = max(position, batch.next_offset)
            self.positions[partition] = position
            if end is not None and position >= end:
                return
        # Before Fetch v3, a batch above the size limit is truncated: raise the limit for the next
        # fetch.
        size = first_batch_size(data)
        if size is not None and size > len(data):
            self._partition_bytes_max = max(self._partition_bytes_max, size)


class _AbortedTransaction(Protocol):
    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class _WithAbortedTransactions(Protocol):
    @property
    def aborted_transactions(self) -> Sequence[_AbortedTransaction] | None: ...


class AbortedFilter:
    """Selects the batches to skip: control batches, and those of aborted transactions.

    `item` is the response to one read, of a fetch or of a log: its batches are passed in order.
    """

    def __init__(self, item: _WithAbortedTransactions) -> None:
        aborted = [(t.first_offset, t.producer_id) for t in item.aborted_transactions or ()]
        self._waiting = sorted(aborted, reverse=True)
        self._producers: set[int] = set()

    def __call__(self, batch: Batch) -> bool:
        if not isinstance(batch, RecordBatch):
            return False
        while self._waiting and self._waiting[-1][0] <= batch.last_offset:
            self._producers.add(self._waiting.pop()[1])
        if batch.is_control:
            for record in batch.records():
                if control_record_type(record.key) is ControlRecordType.ABORT:
                    self._producers.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._producers
