"""StreamFetcher: fetches the partitions of a consumer from their leaders into its streams' queues.

One fetch per leader is in flight, of the partitions whose streams want more (Feeds). What a fetch
returns is used only if its claim is still open and still at the offset that was asked for, so
an answer that was under way while a partition went and came again changes nothing.

Brokers since 0.10.1 return a message whole that is larger than the fetch size.

Kafka 1.1: kafka.consumer.{ConsumerFetcherManager, ConsumerFetcherThread}; KIP-74.
"""

from collections.abc import Mapping

from kctl.client.cluster_view import BrokerAddress
from kctl.client.consumer import AbortedFilter
from kctl.client.offsets import OffsetsClient
from kctl.client.router import Router
from kctl.errors import KctlError
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.feeds import Feed, Feeds
from kctl.kafka.streams import Chunk
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
from kctl.runtime.future import Task, sleep


class StreamFetcher(Feeds):
    """Fetches for the feeds of all open claims; `run` does so until it is cancelled."""

    def __init__(self, router: Router, config: ConnectorConfig) -> None:
        super().__init__(router.runtime, config)
        self._router = router
        self._offsets = OffsetsClient(router)
        self._in_flight: dict[int, Task[None]] = {}
        self._needs_refresh = False

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

    async def _resolve_offsets(self) -> None:
        """Find where partitions begin that have no offset, or one that the broker does not have."""
        feeds = [feed for feed in self._hungry() if feed.offset is None]
        if not feeds:
            return
        reset = self._config["reset"]
        if reset == "none":
            self._fail_without_reset(feeds)
            return
        find = self._offsets.earliest if reset == "smallest" else self._offsets.latest
        found = await find([_key(feed) for feed in feeds])
        for feed in feeds:
            listed = found[_key(feed)]
            if listed.error is None:
                feed.offset = listed.offset
            elif self._is_fed(feed):
                self._needs_refresh = True
        if self._needs_refresh:
            await self._pause()

    async def _start_fetches(self) -> None:
        feeds = [feed for feed in self._hungry() if feed.offset is not None]
        view = self._router.view
        if feeds and (self._needs_refresh or any(view.leader(_key(it)) is None for it in feeds)):
            self._needs_refresh = False
            view = await self._router.refresh(
                sorted({feed.claim.partition.topic for feed in feeds})
            )
        by_leader: dict[int, list[Feed]] = {}
        for feed in feeds:
            leader = view.leader(_key(feed))
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

    async def _fetch(self, broker_id: int, leader: BrokerAddress, feeds: list[Feed]) -> None:
        try:
            asked = {_key(feed): (feed, feed.offset or 0) for feed in feeds}
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
                self._make_last(feed)
            self.wake()

    def _request(self, asked: Mapping[TopicPartition, tuple[Feed, int]]) -> FetchRequest:
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
        self, response: FetchResponse, asked: Mapping[TopicPartition, tuple[Feed, int]]
    ) -> None:
        for topic in response.responses:
            for item in topic.partition_responses:
                found = asked.get(TopicPartition(topic.topic, item.partition))
                if found is None:
                    continue
                feed, offset = found
                if feed.claim.is_open and feed.offset == offset:
                    self._take_one(feed, offset, item)

    def _take_one(self, feed: Feed, offset: int, item: FetchablePartitionResponse) -> None:
        if item.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            feed.offset = None
        elif item.error_code:
            self._needs_refresh = True
        elif item.record_set:
            try:
                self._queue_records(feed, offset, item)
            except KctlError as error:
                feed.fail(error)

    def _queue_records(self, feed: Feed, offset: int, item: FetchablePartitionResponse) -> None:
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
            feed.enlarge(first_batch_size(data) or 0, self._config.fetch_size_max)
            return
        feed.offset = next_offset
        if records:
            feed.queue.put(Chunk(feed.claim, records, next_offset, len(data)))


def _key(feed: Feed) -> TopicPartition:
    """Return the partition on Kafka's wire."""
    found = feed.claim.partition.topic_partition
    assert found is not None
    return found
