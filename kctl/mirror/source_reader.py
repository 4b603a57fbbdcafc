"""SourceReader: fetches batches of a mirror's partitions as they are, and notices losses.

One fetch per leader is in flight, also while the caller writes what the last one returned. A
partition whose history may have changed (its position is out of range, its leader has another
epoch, its topic is unknown) is examined by `loss.judge` before anything more of it is returned.

Invariants: positions only rise; batches of a partition are returned in order and once; a partition
with a loss returns nothing until it is assigned again.

Kafka 2.7: org.apache.kafka.clients.consumer.internals.Fetcher; KIP-320
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.client.cluster_view import BrokerAddress, ClusterView
from kctl.client.consumer import AbortedFilter
from kctl.client.offsets import OffsetsClient
from kctl.client.retry import WRONG_LEADER
from kctl.errors import CorruptDataError, KctlError, UnreachableError, UnsupportedVersionError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.loss import Loss, LossKind, SourceFacts, judge
from kctl.mirror.raw_batches import copy_batches
from kctl.mirror.sources import ReadBatches
from kctl.model import TopicPartition
from kctl.protocol.acl import AUTHORIZATION_ERRORS
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import READ_COMMITTED
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kctl.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kctl.records.memory_records import first_batch_size
from kctl.runtime.future import sleep, wait_for_any

if TYPE_CHECKING:
    from kctl.client.router import Router
    from kctl.runtime.future import Task

FETCH_WAIT_MS = 500
# A request names every partition of a leader: where thousands are idle, a leader holds it for
# longer, this long for each (in microseconds) and in all. Records end the wait at once.
FETCH_WAIT_US_EACH = 500
FETCH_WAIT_MAX_MS = 2_000
# A mirror holds several responses at once. Smaller ones cost more round trips of commits.
RESPONSE_BYTES_MAX = 8 << 20
PARTITION_BYTES_MAX = 1 << 20
# A Produce request holds one batch of each partition: many partitions in a response make fewer
# requests. So those that are behind share it, but none gets less than this.
PARTITION_BYTES_MIN = 128 << 10
_BACKOFF_MS = 200
# How long a topic is unknown before it counts as deleted: a broker that just started knows none.
UNKNOWN_MS_MAX = 10_000
# Why a broker does not say where an epoch ends, however often it is asked.
_REFUSED = frozenset([*AUTHORIZATION_ERRORS.values(), ErrorCode.UNSUPPORTED_VERSION])


@dataclass(slots=True)
class _Partition:
    """A partition that is read."""

    position: MirrorPosition
    # The leader epoch in which the position was last found to be in the history; None: not yet.
    examined_in: int | None = None
    # Why nothing more is read.
    error: KctlError | Loss | None = None
    # When its topic was found to be unknown, monotonic; -1: it is known.
    unknown_since_ms: int = -1
    # The size of a batch that was truncated.
    bytes_needed: int = 0
    # The last stable offset or high watermark that a fetch returned.
    end: int = -1


class SourceReader:
    """Reads the committed records of partitions of the source `router`."""

    def __init__(self, router: "Router", *, max_wait_ms: int = FETCH_WAIT_MS) -> None:
        self._router = router
        self._max_wait_ms = max_wait_ms
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._in_flight: dict[int, Task[FetchResponse | None]] = {}
        self._topic_ids: dict[str, str] = {}
        self._unjoined: Container[TopicPartition] = ()
        # Partitions that were unknown, until a poll has returned that they are known again; also
        # while they are not assigned. The second: those that the last poll returned.
        self._doubted: set[TopicPartition] = set()
        self._reappeared: set[TopicPartition] = set()

    def assign(
        self,
        positions: Mapping[TopicPartition, MirrorPosition],
        topic_ids: Mapping[str, str],
        unjoined: Container[TopicPartition] = (),
    ) -> None:
        """Read these partitions from now on, and no others; `topic_ids` are those of today. Batches
        of the `unjoined` ones are not joined when they are built again."""
        self.close()
        self._unjoined = unjoined
        self._topic_ids = dict(topic_ids)
        # A topic that stays unknown was deleted, however often its partitions are assigned again.
        unknown_since_ms = {it: state.unknown_since_ms for it, state in self._partitions.items()}
        self._partitions = {
            partition: _Partition(position, unknown_since_ms=unknown_since_ms.get(partition, -1))
            for partition, position in positions.items()
        }

    @property
    def positions(self) -> dict[TopicPartition, MirrorPosition]:
        """Return the position after what has been returned, of each partition."""
        return {partition: state.position for partition, state in self._partitions.items()}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Return the ends that fetches reported, of the partitions that were fetched."""
        return {p: state.end for p, state in self._partitions.items() if state.end >= 0}

    def stop(self, partitions: Iterable[TopicPartition], error: KctlError | Loss) -> None:
        """Read no more of these partitions."""
        for partition in partitions:
            self._partitions[partition].error = error

    def close(self) -> None:
        """Discard fetches in flight."""
        for task in self._in_flight.values():
            task.cancel()
        self._in_flight.clear()

    async def poll(self) -> ReadBatches:
        """Return the next batches; none if none arrived within the longest wait of a fetch."""
        self._doubted -= self._reappeared
        self._reappeared = set()
        found = await self._poll()
        self._reappeared = found.reappeared
        return found

    async def _poll(self) -> ReadBatches:
        found = ReadBatches()
        await self._start_fetches(found)
        if not self._in_flight:
            if not found.stopped:
                await sleep(self._router.runtime.scheduler, self._max_wait_ms)
            return found
        await wait_for_any(self._router.runtime.scheduler, self._in_flight.values())
        needs_refresh = False
        for broker_id in [b for b, task in self._in_flight.items() if task.done]:
            response = self._in_flight.pop(broker_id).result()
            if response is None or response.error_code:
                needs_refresh = True
            else:
                needs_refresh |= await self._take(response, found)
        if needs_refresh:
            await sleep(self._router.runtime.scheduler, _BACKOFF_MS)
            await self._refresh()
        await self._start_fetches(found)
        return found

    # Fetching

    def _active(self) -> dict[TopicPartition, _Partition]:
        return {p: state for p, state in self._partitions.items() if state.error is None}

    async def _start_fetches(self, found: ReadBatches) -> None:
        active = self._active()
        view = self._router.view
        if any(view.leader(partition) is None for partition in active):
            view = await self._refresh()
        # One without a leader cannot be examined, and the others do not wait for it.
        suspects = [
            p
            for p, state in active.items()
            if view.leader(p) is not None
            and (state.examined_in is None or state.examined_in < view.leader_epoch(p))
        ]
        if suspects:
            await self._examine(suspects, found)
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition, state in self._active().items():
            leader = view.leader(partition)
            if leader is None:
                self._note_unknown(partition, state, view.error_of(partition), found)
            elif leader.broker_id not in self._in_flight and state.examined_in is not None:
                state.unknown_since_ms = -1
                by_leader.setdefault(leader.broker_id, []).append(partition)
        for broker_id, group in by_leader.items():
            self._in_flight[broker_id] = self._router.runtime.scheduler.spawn(
                self._fetch(view.brokers[broker_id], self._request(group)), "mirror: fetch"
            )

    async def _fetch(self, leader: BrokerAddress, request: FetchRequest) -> FetchResponse | None:
        try:
            channel = await self._router.channel_to(leader)
            response: FetchResponse = await channel.send(request)
        except UnreachableError:
            return None
        return response

    def _request(self, partitions: list[TopicPartition]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        states = [self._partitions[partition] for partition in partitions]
        behind = sum(not 0 <= it.end <= it.position.offset for it in states)
        share = max(RESPONSE_BYTES_MAX // max(behind, 1), PARTITION_BYTES_MIN)
        bytes_max = min(share, PARTITION_BYTES_MAX)
        for partition, state in zip(partitions, states, strict=True):
            topics.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    # Another leader refuses: it is examined first.
                    current_leader_epoch=-1 if state.examined_in is None else state.examined_in,
                    fetch_offset=state.position.offset,
                    partition_max_bytes=max(bytes_max, state.bytes_needed),
                )
            )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._wait_ms(len(partitions)),
            min_bytes=1,
            max_bytes=RESPONSE_BYTES_MAX,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic=name, partitions=items) for name, items in topics.items()],
        )

    def _wait_ms(self, partitions: int) -> int:
        """Return how long a leader of so many partitions waits for records."""
        longer_ms = min(FETCH_WAIT_MAX_MS, partitions * FETCH_WAIT_US_EACH // 1000)
        return max(self._max_wait_ms, longer_ms)

    async def _take(self, response: FetchResponse, found: ReadBatches) -> bool:
        """Take what was fetched; return whether the metadata are outdated."""
        needs_refresh = False
        suspects = []
        for topic in response.responses:
            for item in topic.partition_responses:
                partition = TopicPartition(topic.topic, item.partition)
                state = self._partitions.get(partition)
                if state is None or state.error is not None:
                    continue
                if item.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    suspects.append(partition)
                elif item.error_code in WRONG_LEADER:
                    needs_refresh = True
                    state.examined_in = None
                    if item.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        self._doubted.add(partition)
                elif item.error_code:
                    self._fail(partition, ApiError(item.error_code), found)
                else:
                    self._read(partition, state, item, found)
        if suspects:
            await self._examine(suspects, found)
        return needs_refresh

    def _read(
        self,
        partition: TopicPartition,
        state: _Partition,
        item: FetchablePartitionResponse,
        found: ReadBatches,
    ) -> None:
        stable = item.last_stable_offset
        state.end = stable if stable >= 0 else item.high_watermark
        data = item.record_set
        if not data:
            return
        joins = partition not in self._unjoined
        try:
            copied = copy_batches(data, state.position.offset, AbortedFilter(item), joins=joins)
        except CorruptDataError as error:
            self._fail(partition, error, found)
            return
        if copied.next_offset > state.position.offset:
            epoch = max(copied.leader_epoch, state.position.leader_epoch)
            state.position = replace(state.position, offset=copied.next_offset, leader_epoch=epoch)
            found.ranges[partition] = copied
            # A response is filled from the first partition on: the others come first next time.
            self._partitions[partition] = self._partitions.pop(partition)
        else:
            # Before Fetch v3, a batch above the limit is truncated.
            size = first_batch_size(data)
            state.bytes_needed = max(state.bytes_needed, size or 0)

    # Losses

    def _fail(self, partition: TopicPartition, error: KctlError | Loss, found: ReadBatches) -> None:
        self._partitions[partition].error = error
        found.stopped[partition] = error

    def _note_unknown(
        self, partition: TopicPartition, state: _Partition, code: int, found: ReadBatches
    ) -> None:
        """Note that a partition has no leader; a topic that stays unknown was deleted."""
        state.examined_in = None
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            now_ms = self._router.runtime.clock.monotonic_ms()
            self._doubted.add(partition)
            if state.unknown_since_ms < 0:
                state.unknown_since_ms = now_ms
                found.unknown.add(partition.topic)
            if now_ms - state.unknown_since_ms >= UNKNOWN_MS_MAX:
                at = state.position.offset
                self._fail(partition, Loss(LossKind.GONE, at, at, 0), found)
        elif code and code not in WRONG_LEADER:
            self._fail(partition, ApiError(code), found)

    async def _examine(self, partitions: list[TopicPartition], found: ReadBatches) -> None:
        """Ask the source whether it still has what was copied, and what follows. A partition of
        which it does not answer stays unexamined, and nothing of it is fetched."""
        # The view may be refreshed while the source is asked: the answers are of these epochs.
        asked_in = {it: self._router.view.leader_epoch(it) for it in partitions}
        for partition in partitions:
            self._partitions[partition].examined_in = None
        offsets = OffsetsClient(self._router)
        starts = await offsets.earliest(partitions)
        ends = await offsets.latest(partitions)
        epochs = await self._epoch_ends(partitions)
        for partition in partitions:
            state = self._partitions[partition]
            start, end = starts[partition], ends[partition]
            error = start.error or end.error
            if error is not None:
                if not isinstance(error, UnreachableError) and not _may_pass(error):
                    self._fail(partition, error, found)
                continue
            epoch_end = epochs.get(partition)
            if isinstance(epoch_end, KctlError):
                continue
            topic_id = self._topic_ids.get(partition.topic)
            facts = SourceFacts(start.offset, end.offset, epoch_end, topic_id)
            at = state.position
            loss = judge(at.offset, at.leader_epoch, at.topic_id, facts)
            if loss is not None:
                self._fail(partition, loss, found)
            else:
                state.examined_in = asked_in[partition]
                if partition in self._doubted:
                    found.reappeared.add(partition)

    async def _epoch_ends(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int] | KctlError]:
        """Return where the source's epochs of the positions end, or why that is not known now.
        Partitions are left out if the source never says so."""
        wanted = {
            p: self._partitions[p].position.leader_epoch
            for p in partitions
            if self._partitions[p].position.leader_epoch >= 0
        }
        # Version 0 does not say which epoch it found.
        if not wanted or await self._router.max_version(ApiKey.OFFSET_FOR_LEADER_EPOCH) < 1:
            return {}

        def build(group: list[TopicPartition]) -> OffsetForLeaderEpochRequest:
            topics: dict[str, list[OffsetForLeaderPartition]] = {}
            for partition in group:
                topics.setdefault(partition.topic, []).append(
                    OffsetForLeaderPartition(
                        partition_index=partition.partition, leader_epoch=wanted[partition]
                    )
                )
            return OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderTopic(name=n, partitions=it) for n, it in topics.items()]
            )

        def read(response: object) -> Iterable[tuple[TopicPartition, int, tuple[int, int]]]:
            for topic in response.topics:  # type: ignore[attr-defined]
                for item in topic.partitions:
                    found = (item.leader_epoch, item.end_offset)
                    yield TopicPartition(topic.name, item.partition_index), item.error_code, found

        answers = await self._router.send_to_leaders(wanted, build, read)
        return {p: found for p, found in answers.items() if not _is_refused(found)}

    async def _refresh(self) -> ClusterView:
        topics = sorted({partition.topic for partition in self._active()})
        try:
            return await self._router.refresh(topics)
        except UnreachableError:
            return self._router.view


def _may_pass(error: KctlError) -> bool:
    return isinstance(error, ApiError) and error.code in WRONG_LEADER


def _is_refused(answer: object) -> bool:
    """Return whether a broker may not, or cannot, say where epochs end."""
    if isinstance(answer, ApiError):
        return answer.code in _REFUSED
    return isinstance(answer, UnsupportedVersionError)
