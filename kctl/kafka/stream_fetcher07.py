"""StreamFetcher07: fetches the partitions of a consumer from brokers of Kafka 0.7.

Each broker has one connection and one task, which asks by MULTIFETCH for all its partitions whose
streams want more (Feeds), `fetch.max.bytes` at once at most. 0.7 answers at once, so after a round
without messages the task waits for `fetcher.backoff.ms`. A broker is looked up in ZooKeeper each
time its connection is made: it may have come back elsewhere.

A partition without an offset, or with one that the broker does not have, begins at the end that
`autooffset.reset` names. That offset is committed at once, even if nothing is read, as by 0.7's
consumers: a later start continues there.

Kafka 0.7: kafka.consumer.{Fetcher, FetcherRunnable}
"""

from collections.abc import Iterable, Sequence

from kctl.errors import CorruptDataError, KctlError, UnreachableError
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.feeds import Feed, Feeds, OnReset
from kctl.kafka.message_set import FetchRequest, MessageSet
from kctl.kafka.simple_wires import SimpleWire07
from kctl.kafka.streams import Chunk
from kctl.protocol.constants import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.record import Record
from kctl.runtime.future import Task, sleep
from kctl.runtime.runtime import Runtime
from kctl.store.consumer_registry import ConsumerRegistry
from kctl.store.consumer_znodes import BrokerPartition, ConsumedPartition

_NO_TIMESTAMP = -1


class StreamFetcher07(Feeds):
    """Fetches for the feeds of all open claims; `run` does so until it is cancelled."""

    def __init__(
        self,
        runtime: Runtime,
        registry: ConsumerRegistry,
        config: ConnectorConfig,
        on_reset: OnReset,
    ) -> None:
        """Fetch from the brokers in `registry`; `on_reset` commits."""
        super().__init__(runtime, config)
        self._on_reset = on_reset
        self._runtime = runtime
        self._registry = registry
        self._wires: dict[int, SimpleWire07] = {}
        self._in_flight: dict[int, Task[None]] = {}
        # What was last reported of each broker, and of each partition without an offset.
        self._troubles: dict[int | ConsumedPartition, str] = {}

    def close(self) -> None:
        """Discard fetches in flight; close the connections."""
        for task in self._in_flight.values():
            task.cancel()
        self._in_flight.clear()
        for broker_id in list(self._wires):
            self._drop(broker_id)

    async def run(self) -> None:
        """Fetch for ever; errors that pass are waited out, others fail the streams."""
        while True:
            self._woken = woken = self._scheduler.future()
            for broker_id, feeds in self._by_broker().items():
                if broker_id not in self._in_flight:
                    self._in_flight[broker_id] = self._scheduler.spawn(
                        self._serve(broker_id, feeds), "fetch"
                    )
            self._drop_unused()
            await woken

    def _by_broker(self) -> dict[int, list[Feed]]:
        by_broker: dict[int, list[Feed]] = {}
        for feed in self._hungry():
            by_broker.setdefault(_place(feed).broker_id, []).append(feed)
        return by_broker

    def _drop_unused(self) -> None:
        used = {_place(feed).broker_id for feed in self._feeds.values()}
        for broker_id in set(self._wires) - used - set(self._in_flight):
            self._drop(broker_id)

    def _drop(self, broker_id: int) -> None:
        wire = self._wires.pop(broker_id, None)
        if wire is not None:
            wire.close()

    async def _serve(self, broker_id: int, feeds: Sequence[Feed]) -> None:
        """Fetch once from one broker; pause if it has nothing, or fails."""
        is_fruitful = False
        try:
            wire = await self._wire(broker_id)
            await self._resolve_offsets(wire, [it for it in feeds if it.offset is None])
            is_fruitful = await self._fetch(wire, [it for it in feeds if it.offset is not None])
            self._troubles.pop(broker_id, None)
        except KctlError as error:
            self._drop(broker_id)
            self._warn(broker_id, f"Broker {broker_id}: {error}")
        try:
            if not is_fruitful:
                await sleep(self._scheduler, self._backoff_ms)
        finally:
            self._in_flight.pop(broker_id, None)
            self.wake()

    def _warn(self, subject: int | ConsumedPartition, trouble: str) -> None:
        if self._troubles.get(subject) != trouble:
            self._troubles[subject] = trouble
            self._runtime.trace.warning(trouble)

    async def _wire(self, broker_id: int) -> SimpleWire07:
        wire = self._wires.get(broker_id)
        if wire is None:
            broker = await self._registry.broker07(broker_id)
            if broker is None:
                raise UnreachableError("it is not registered in ZooKeeper")
            timeout_ms = self._config.number("socket_timeout_ms")
            wire = SimpleWire07(self._runtime, broker.host, broker.port, timeout_ms)
            self._wires[broker_id] = wire
        return wire

    async def _resolve_offsets(self, wire: SimpleWire07, feeds: Sequence[Feed]) -> None:
        """Find where partitions begin that have no offset, or one that the broker does not have."""
        reset = self._config["reset"]
        if reset == "none":
            self._fail_without_reset(feeds)
            return
        time_ms = EARLIEST_TIMESTAMP if reset == "smallest" else LATEST_TIMESTAMP
        for feed in feeds:
            partition, (broker_id, number) = feed.claim.partition, _place(feed)
            try:
                found = await wire.offsets_before(partition.topic, number, time_ms, 1)
            except ApiError as error:
                # Only this partition waits.
                self._warn(partition, f"Broker {broker_id}: {partition}: {error}")
                continue
            self._troubles.pop(partition, None)
            if found and feed.claim.is_open:
                feed.offset = found[0]
                if not feed.queue.chunks_of(feed.claim):
                    feed.claim.position = feed.offset
                    self._on_reset(partition, feed.offset)

    async def _fetch(self, wire: SimpleWire07, feeds: Sequence[Feed]) -> bool:
        """Fetch once; return whether to fetch again at once."""
        asked = [(feed, _request(feed)) for feed in self._within_limit(feeds)]
        if not asked:
            return False
        sets = await wire.fetch([request for _, request in asked], 0, 0)
        for feed, _ in asked:
            self._make_last(feed)
        taken = [self._take(feed, found) for (feed, _), found in zip(asked, sets, strict=True)]
        return any(taken)

    def _within_limit(self, feeds: Iterable[Feed]) -> list[Feed]:
        left = self._config.number("fetch_bytes_max")
        chosen: list[Feed] = []
        for feed in feeds:
            left -= feed.fetch_size
            if chosen and left < 0:
                break
            chosen.append(feed)
        return chosen

    def _take(self, feed: Feed, found: MessageSet) -> bool:
        """Queue the messages of a set; return whether more can be fetched at once."""
        if not feed.claim.is_open or feed.offset != found.request.offset:
            return False
        if isinstance(found.error, ApiError) and found.error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            feed.offset = None
            return True
        try:
            if found.error is not None:
                raise found.error
            cut = found.cut_message_bytes
            if cut is not None:
                feed.enlarge(cut, self._config.fetch_size_max)
                return True
            return self._queue_messages(feed, found)
        except KctlError as error:
            feed.fail(error)
            return False

    def _queue_messages(self, feed: Feed, found: MessageSet) -> bool:
        start = end = found.request.offset
        records: list[Record] = []
        damage: CorruptDataError | None = None
        try:
            for message in found:
                records.append(Record(message.offset, _NO_TIMESTAMP, None, message.message))
                end = message.next_offset
            end = found.next_offset
        except CorruptDataError as error:
            damage = error
        # A compressed set that is damaged inside is not handed out in part: its messages have no
        # offset at which a later fetch could go on.
        records = [it for it in records if it.offset < end]
        if end == start:
            if damage is not None:
                raise damage
            return False
        feed.offset = end
        if records:
            feed.queue.put(Chunk(feed.claim, records, end, found.size_bytes))
        return True


def _place(feed: Feed) -> BrokerPartition:
    number = feed.claim.partition.partition
    assert isinstance(number, BrokerPartition)
    return number


def _request(feed: Feed) -> FetchRequest:
    assert feed.offset is not None
    topic = feed.claim.partition.topic
    return FetchRequest(topic, _place(feed).partition, feed.offset, feed.fetch_size)
