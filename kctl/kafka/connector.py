"""ConsumerConnector: streams of messages for the members of a group on ZooKeeper.

    with ConsumerConnector({"zookeeper.connect": "zk:2181", "group.id": "g"}) as connector:
        [stream] = connector.create_message_streams({"orders": 1})["orders"]
        for message in stream:
            ...

The connector runs on its own loop, in a thread of its own; each stream is for one thread. It shares
a group with Kafka 0.8 to 1.1's consumers in Java (docs/compatibility.md, "Consumers on ZooKeeper").
With brokers of Kafka 0.7 it is a member of a group of 0.7 (`connector_wires` has what differs).

Kafka 1.1: kafka.javaapi.consumer.ConsumerConnector, kafka.consumer.ZookeeperConsumerConnector.
"""

from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from kctl.errors import KctlError, TimedOutError, UsageError
from kctl.kafka.claims import Claims
from kctl.kafka.client_loop import ClientLoop
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.connector_wires import ConnectorWire, Fetcher, choose_wire
from kctl.kafka.group_membership import GroupMembership, GroupSettings
from kctl.kafka.streams import Chunk, ChunkReader, ConsumedMessage, StreamQueue
from kctl.runtime.future import Task, sleep, wait_at_most
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.consumer_registry import LostClaimError
from kctl.store.consumer_znodes import ConsumedPartition
from kctl.store.errors import SessionExpiredError
from kctl.store.topic_filter import TopicFilter

if TYPE_CHECKING:
    from kctl.store.zookeeper import ZooKeeperStore

STREAMS_MAX = 10_000
# How long `shutdown` waits beyond the membership's own limit, s.
SHUTDOWN_S_MAX = 30.0

Subscribed = Mapping[str, int] | tuple[TopicFilter, int]


class ConnectorCore:
    """A connector on its loop: session, membership, fetcher and streams. Its Receiver."""

    def __init__(
        self, runtime: Runtime, config: ConnectorConfig, *, has_one_queue: bool = False
    ) -> None:
        """Prepare a connector; with `has_one_queue`, all streams are read as one."""
        self._has_one_queue = has_one_queue
        self._runtime = runtime
        self._config = config
        self._claims = Claims()
        self.queues: list[StreamQueue] = []
        # The thread number of each queue, by topic; by None with a filter.
        self._queue_of: dict[tuple[str | None, int], StreamQueue] = {}
        self._store: ZooKeeperStore | None = None
        self._wire: ConnectorWire | None = None
        self._fetcher: Fetcher | None = None
        self._tasks: list[Task[None]] = []
        self.membership: GroupMembership | None = None

    async def open(self) -> None:
        """Connect to ZooKeeper and to a broker; log what the settings warn of. UnreachableError,
        UsageError."""
        for warning in self._config.settings.warnings:
            self._runtime.trace.warning(warning)
        # Local: kazoo takes 70 ms to import.
        from kctl.store.zookeeper import ZooKeeperStore

        config = self._config
        session_ms = config.number("zookeeper_session_ms")
        store = ZooKeeperStore(self._runtime, config["zookeeper"], session_timeout_ms=session_ms)
        await store.connect(config.number("zookeeper_connection_ms", session_ms))
        self._store = store
        try:
            self._wire = await choose_wire(self._runtime, store, config)
            await self._wire.open()
        except BaseException:
            if self._wire is not None:
                self._wire.close()
            await store.close()
            raise

    async def cluster_id(self) -> str | None:
        """Return the id of the cluster in ZooKeeper; None before Kafka 0.10.1."""
        assert self._store is not None
        return await ClusterStore(self._store).get_cluster_id()

    def begin(self, subscription: Subscribed) -> None:
        """Make the streams and join the group."""
        assert self._wire is not None
        config = self._config
        counts: dict[str | None, int] = {}
        if isinstance(subscription, Mapping):
            counts.update(subscription)
        else:
            counts[None] = subscription[1]
        for topic, count in counts.items():
            for number in range(count):
                if not (self.queues and self._has_one_queue):
                    self.queues.append(StreamQueue(self._runtime, config.number("timeout_ms")))
                self._queue_of[topic, number] = self.queues[-1]
        wire = self._wire
        self._fetcher = wire.fetcher(self._commit_reset)
        self.membership = GroupMembership(
            self._runtime, wire.registry, self._group_settings(), subscription, self, wire.offsets()
        )
        self.membership.start()
        spawn = self._runtime.scheduler.spawn
        self._tasks.append(spawn(self._fetcher.run(), "fetches"))
        if config["auto_commit"]:
            self._tasks.append(spawn(self._auto_commit(), "auto-commit"))

    def _group_settings(self) -> GroupSettings:
        config = self._config
        return GroupSettings(
            config["group_id"],
            self._runtime.network.local_host_name(),
            config["consumer_id"],
            config["strategy"],
            config["hashed_text"],
            config["hides_internal_topics"],
            config.rebalance_backoff_ms,
            config["auto_commit"],
            config["rebalance_retries"],
            config["stops_all"],
        )

    # --- Receiver

    def start(
        self, threads: Mapping[ConsumedPartition, int], offsets: Mapping[ConsumedPartition, int]
    ) -> None:
        """Begin to fetch partitions for their streams."""
        assert self._fetcher is not None
        assert self.membership is not None
        for partition, thread in threads.items():
            lease, committed = self.membership.lease, offsets.get(partition)
            claim = self._claims.open(partition, thread, lease, committed)
            queue = self._queue_of.get((partition.topic, thread)) or self._queue_of[None, thread]
            self._fetcher.add(claim, queue)

    def stop(self, partitions: Collection[ConsumedPartition]) -> dict[ConsumedPartition, int]:
        """End the delivery of partitions."""
        offsets = self._claims.close(partitions)
        if self._fetcher is not None:
            self._fetcher.remove_closed()
        return offsets

    def committed(self, offsets: Mapping[ConsumedPartition, int]) -> None:
        """Note a commit."""
        self._claims.committed(offsets)

    def failed(self, error: KctlError) -> None:
        """Raise `error` in every stream."""
        for queue in self.queues:
            queue.fail(error)

    # --- streams and offsets

    async def next_chunk(self, queue: StreamQueue, reader: ChunkReader) -> bool:
        """Give the reader its next chunk; return False at the stream's end."""
        rest = reader.rest()
        if rest is not None:
            queue.put_back(rest)
        chunk = await self.take_chunk(queue)
        if chunk is not None:
            reader.begin(chunk)
        return chunk is not None

    async def take_chunk(self, queue: StreamQueue) -> Chunk | None:
        """Return the next chunk of a stream, and make room for another; None at its end."""
        chunk = await queue.next_chunk()
        if self._fetcher is not None:
            self._fetcher.wake()
        return chunk

    async def commit(self) -> None:
        """Commit what was consumed; LostClaimError if the session has ended meanwhile,
        TimedOutError after `commit.timeout.ms`."""
        offsets = self._claims.uncommitted()
        if offsets and self.membership is not None:
            scheduler, limit_ms = self._runtime.scheduler, self._config.number("commit_timeout_ms")
            late = TimedOutError(
                f"the offsets of group {self._config['group_id']} were not committed within "
                f"{limit_ms} ms",
                hint=f"check ZooKeeper at {self._config['zookeeper']} and the brokers",
            )
            task = scheduler.spawn(self.membership.commit(offsets), "commit")
            try:
                await wait_at_most(scheduler, task, limit_ms, late)
            finally:
                # A commit that was sent may still be carried out, if the claims still hold then.
                task.cancel()

    async def _auto_commit(self) -> None:
        interval_ms = self._config.number("auto_commit_ms")
        while True:
            await sleep(self._runtime.scheduler, interval_ms)
            await self._try_to_commit(self.commit())

    def _commit_reset(self, partition: ConsumedPartition, offset: int) -> None:
        assert self.membership is not None
        commit = self.membership.commit({partition: offset})
        self._runtime.scheduler.spawn(self._try_to_commit(commit), "commit of a reset")

    async def _try_to_commit(self, commit: Awaitable[None]) -> None:
        try:
            await commit
        except (LostClaimError, SessionExpiredError):
            # The messages are another member's now.
            return
        except KctlError as error:
            self._runtime.trace.warning(f"Offsets are not committed: {error}")

    async def close(self) -> None:
        """End the streams, leave the group, close all connections."""
        for queue in self.queues:
            queue.end()
        for task in self._tasks:
            task.cancel()
        if self.membership is not None:
            await self.membership.close()
        if self._fetcher is not None:
            self._fetcher.close()
        if self._wire is not None:
            self._wire.close()
        if self._store is not None:
            await self._store.close()


def checked_subscription(topics: Mapping[str, int]) -> dict[str, int]:
    """Return the number of streams by topic; UsageError for numbers that are none."""
    if not topics:
        raise UsageError("no topic to read")
    for topic, count in topics.items():
        check_count(count, topic)
    return dict(topics)


def check_count(count: int, what: str) -> None:
    """Raise UsageError for a number of streams that is not possible."""
    if not 1 <= count <= STREAMS_MAX:
        raise UsageError(f"{what}: {count} streams; between 1 and {STREAMS_MAX} are possible")


def by_topic(topics: Mapping[str, int], streams: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the streams of each topic, in the order in which they were made."""
    rest = iter(streams)
    return {topic: [next(rest) for _ in range(count)] for topic, count in topics.items()}


class StreamReader:
    """What the blocking stream and the one for asyncio share: a queue, and its reader."""

    def __init__(
        self, loop: ClientLoop, core: ConnectorCore, queue: StreamQueue, config: ConnectorConfig
    ) -> None:
        self._loop = loop
        self._core = core
        self._queue = queue
        self._reader = ChunkReader(loop.runtime, config["moves"])


class KafkaStream(StreamReader):
    """Messages for one thread; an iterator that ends with `shutdown`.

    `next` raises ConsumerTimeoutError after `consumer.timeout.ms`, and the KctlError that made the
    consumer leave its group for a while: it can be called again after either.
    """

    def __iter__(self) -> Iterator[ConsumedMessage]:
        return self

    def __next__(self) -> ConsumedMessage:
        reader = self._reader
        reader.asked_for_next()
        message = reader.next()
        while message is None:
            if not self._loop.run(self._core.next_chunk, self._queue, reader):
                raise StopIteration
            message = reader.next()
        return message

    def next(self) -> ConsumedMessage:
        """Return the next message; StopIteration after `shutdown`."""
        return self.__next__()


class ConsumerConnector:
    """A member of a group on ZooKeeper; `shutdown`, or `with`, ends it."""

    def __init__(self, config: Mapping[str, object] | ConnectorConfig) -> None:
        """Connect; `config` has settings by their names in 0.7, 0.8 or today.

        UsageError for settings that are not valid, UnreachableError without ZooKeeper or a broker.
        """
        self._config = config if isinstance(config, ConnectorConfig) else ConnectorConfig(config)
        self._loop = ClientLoop()
        self._is_open = True
        self._has_streams = False
        self._core = ConnectorCore(self._loop.runtime, self._config)
        try:
            self._loop.run(self._core.open)
        except BaseException:
            self._is_open = False
            self._loop.close()
            raise

    def create_message_streams(self, topics: Mapping[str, int]) -> dict[str, list[KafkaStream]]:
        """Join the group and return so many streams of each topic; once per connector."""
        subscription = checked_subscription(topics)
        return by_topic(subscription, self._begin(subscription))

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1
    ) -> list[KafkaStream]:
        """Join the group and return `count` streams of the topics that the filter allows, also of
        those that come later; once per connector."""
        check_count(count, repr(topic_filter))
        return self._begin((topic_filter, count))

    def _begin(self, subscription: Subscribed) -> list[KafkaStream]:
        if not self._is_open:
            raise UsageError("the connector is shut down")
        if self._has_streams:
            raise UsageError("a connector makes streams once: make another connector for more")
        self._has_streams = True
        self._loop.run(self._core.begin, subscription)
        return [
            KafkaStream(self._loop, self._core, queue, self._config) for queue in self._core.queues
        ]

    def commit_offsets(self) -> None:
        """Commit the offsets of consumed messages of the partitions that are still this consumer's.

        LostClaimError if the session ended meanwhile: nothing is committed then. TimedOutError
        after `commit.timeout.ms`, for example while ZooKeeper is down: the streams go on when it is
        back, and the next commit covers these offsets.
        """
        if not self._is_open:
            raise UsageError("the connector is shut down")
        self._loop.run(self._core.commit)

    def shutdown(self) -> None:
        """End the streams, commit if the connector does so by itself, and leave the group."""
        if self._is_open:
            self._is_open = False
            try:
                self._loop.run(self._core.close, timeout_s=SHUTDOWN_S_MAX)
            finally:
                self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
