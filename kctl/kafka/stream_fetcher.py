"""StreamFetcher: fetches the partitions of a consumer from their leaders into its streams' queues.

One fetch per leader is in flight. A partition whose stream has `queued.max.message.chunks` chunks
of it waiting is left out of the next fetch; the other partitions of its leader are not. What a
fetch returns is used only if its claim is still open and still at the offset that was asked for, so
an answer that was under way while a partition went and came again changes nothing.

A message that is larger than the fetch size is fetched again with twice the size, up to
`fetch.size.max`; one that is larger still fails its stream. (Brokers since 0.10.1 return it whole.)

Kafka 1.1: kafka.consumer.{ConsumerFetcherManager, ConsumerFetcherThread}; KIP-74.
"""

from collections.abc import Iterable, Mapping, Sequence

from kctl.client.cluster_view import BrokerAddress
from kctl.client.consumer import AbortedFilter
from kctl.client.offsets import OffsetsClient
from kctl.client.router import Router
from kctl.errors import KctlError, NotFoundError
from kctl.kafka.claims import Claim
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.streams import Chunk, StreamQueue
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kctl.records.memory_records import batches, first_batch_size
from kctl.records.record import Record
from kctl.runtime.future import Future, Task, sleep


class _Feed:
    """A claimed partition and how far it is fetched."""

    def __init__(self, claim: Claim, queue: StreamQueue, fetch_size: int) -> None:
        self.claim = claim
        self.queue = queue
        self.fetch_size = fetch_size
        # The offset to fetch next; None: by `auto.offset.reset`.
        self.offset: int | None = claim.committed
        # Its stream was failed, and fetches nothing until it is claimed again.
        self.is_stuck = False

    @property
    def key(self) -> TopicPartition:
        """Return the partition on Kafka's wire."""
        topic, number = self.claim.partition
        assert isinstance(number, int)
        return TopicPartition(topic, number)


class StreamFetcher:
    """Owns the feeds of all open claims; `run` fetches until it is cancelled."""

    def __init__(self, router: Router, config: ConnectorConfig) -> None:
        self._router = router
        self._scheduler = router.runtime.scheduler
        self._offsets = OffsetsClient(router)
        self._config = config
        self._chunks_max = config.number("queued_chunks")
        self._backoff_ms = config.number("fetch_backoff_ms")
        self._feeds: dict[TopicPartition, _Feed] = {}
        self._in_flight: dict[int, Task[None]] = {}
        self._woken: Future[None] | None = None
        self._needs_refresh = False

    def add(self, claim: Claim, queue: StreamQueue) -> None:
        """Fetch a partition from its committed offset on."""
        feed = _Feed(claim, queue, self._config.number("fetch_size"))
        self._feeds[feed.key] = feed
        self.wake()

    def remove_closed(self) -> None:
        """Forget the partitions whose claims are closed."""
        self._feeds = {key: feed for key, feed in self._feeds.items() if feed.claim.is_open}

    def wake(self) -> None:
        """Look for something to fetch: a stream has taken a chunk, or a partition was added."""
        woken, self._woken = self._woken, None
        if woken is not None and not woken.done:
            woken.set_result(None)

    def close(self) -> None:
        """Discard fetches in flight."""
        for task in self._in_flight.values():
            task.cancel()
        self._in_flight.clear()

    async def run(self) -> None:
        """Fetch for ever; errors that pass are waited out, others fail the streams."""
        while True:
            self._woken = woken = self._scheduler.future()
            try:
                await self._resolve_offsets()
                await self._start_fetches()
            except KctlError as error:
                self._fail(self._feeds.values(), error)
                await self._pause()
                continue
            await woken

    def _hungry(self) -> list[_Feed]:
        return [
            feed
            for feed in self._feeds.values()
            if feed.claim.is_open
            and not feed.is_stuck
            and feed.queue.chunks_of(feed.claim) < self._chunks_max
        ]

    async def _resolve_offsets(self) -> None:
        """Find where partitions begin that have no offset, or one that the broker does not have."""
        feeds = [feed for feed in self._hungry() if feed.offset is None]
        if not feeds:
            return
        reset = self._config["reset"]
        if reset == "none":
            for feed in feeds:
                feed.is_stuck = True
                feed.queue.fail(
                    NotFoundError(
                        f"{feed.key} has no committed offset that the broker has",
                        hint="auto.offset.reset=smallest or largest begins somewhere else",
                    )
                )
            return
        find = self._offsets.earliest if reset == "smallest" else self._offsets.latest
        found = await find([feed.key for feed in feeds])
        for feed in feeds:
            listed = found[feed.key]
            if listed.error is None:
                feed.offset = listed.offset
            elif self._feeds.get(feed.key) is feed:
                self._needs_refresh = True
        if self._needs_refresh:
            await self._pause()

    async def _start_fetches(self) -> None:
        feeds = [feed for feed in self._hungry() if feed.offset is not None]
        view = self._router.view
        if feeds and (self._needs_refresh or any(view.leader(it.key) is None for it in feeds)):
            self._needs_refresh = False
            view = await self._router.refresh(sorted({feed.key.topic for feed in feeds}))
        by_leader: dict[int, list[_Feed]] = {}
        for feed in feeds:
            leader = view.leader(feed.key)
            if leader is None:
                self._needs_refresh = True
            else:
                by_leader.setdefault(leader.broker_id, []).append(feed)
        for broker_id, group in by_leader.items():
            if broker_id not in self._in_flight:
                task = self._fetch(broker_id, view.brokers[broker_id], group)
                self._in_flight[broker_id] = self._scheduler.spawn(task, "fetch")
        if self._needs_refresh and not self._in_flight:
            await self._pause()

    async def _pause(self) -> None:
        await sleep(self._scheduler, self._backoff_ms)
        self.wake()

    async def _fetch(self, broker_id: int, leader: BrokerAddress, feeds: list[_Feed]) -> None:
        try:
            asked = {feed.key: (feed, feed.offset or 0) for feed in feeds}
            channel = await self._router.channel_to(leader)
            response: FetchResponse = await channel.send(self._request(asked))
            if response.error_code:
                raise ApiError(response.error_code)
            self._take(response, asked)
        except KctlError:
            # Another broker may lead by now; a broker that is gone comes again.
            self._needs_refresh = True
            await sleep(self._scheduler, self._backoff_ms)
        finally:
            self._in_flight.pop(broker_id, None)
            # The broker fills its answer from the first partition on: let each be first in turn.
            for feed in feeds[:1]:
                if self._feeds.get(feed.key) is feed:
                    self._feeds[feed.key] = self._feeds.pop(feed.key)
            self.wake()

    def _request(self, asked: Mapping[TopicPartition, tuple[_Feed, int]]) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for key, (feed, offset) in asked.items():
            topics.setdefault(key.topic, []).append(
                FetchPartition(
                    partition=key.partition,
                    fetch_offset=offset,
                    partition_max_bytes=feed.fetch_size,
                )
            )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._config.number("fetch_wait_ms"),
            min_bytes=self._config.number("fetch_bytes_min"),
            max_bytes=self._config.number("fetch_bytes_max"),
            isolation_level=0,
            topics=[FetchTopic(topic=name, partitions=items) for name, items in topics.items()],
        )

    def _take(
        self, response: FetchResponse, asked: Mapping[TopicPartition, tuple[_Feed, int]]
    ) -> None:
        for topic in response.responses:
            for item in topic.partition_responses:
                found = asked.get(TopicPartition(topic.topic, item.partition))
                if found is None:
                    continue
                feed, offset = found
                if feed.claim.is_open and feed.offset == offset:
                    self._take_one(feed, offset, item)

    def _take_one(self, feed: _Feed, offset: int, item: FetchablePartitionResponse) -> None:
        if item.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            feed.offset = None
        elif item.error_code:
            self._needs_refresh = True
        elif item.record_set:
            try:
                self._queue_records(feed, offset, item)
            except KctlError as error:
                feed.is_stuck = True
                feed.queue.fail(error)

    def _queue_records(self, feed: _Feed, offset: int, item: FetchablePartitionResponse) -> None:
        data = item.record_set
        records: list[Record] = []
        next_offset = offset
        is_aborted = AbortedFilter(item)
        for batch in batches(data):
            batch.ensure_valid()
            if not is_aborted(batch):
                records += [it for it in batch.records() if it.offset >= offset]
            next_offset = max(next_offset, batch.next_offset)
        if next_offset == offset:
            self._enlarge(feed, first_batch_size(data) or 0)
            return
        feed.offset = next_offset
        if records:
            feed.queue.put(Chunk(feed.claim, records, next_offset, len(data)))

    def _enlarge(self, feed: _Feed, size: int) -> None:
        longest = self._config.fetch_size_max
        if feed.fetch_size >= longest:
            raise KctlError(
                f"{feed.key} has a message of {size} bytes at offset {feed.offset}, which is "
                f"larger than fetch.size.max={longest}"
            )
        feed.fetch_size = min(2 * feed.fetch_size, longest)

    def _fail(self, feeds: Iterable[_Feed], error: KctlError) -> None:
        queues: Sequence[StreamQueue] = list({id(it.queue): it.queue for it in feeds}.values())
        for queue in queues:
            queue.fail(error)
