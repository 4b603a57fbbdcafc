"""Feeds: the claimed partitions of a consumer, and how far each is fetched.

A partition whose stream has `queued.max.message.chunks` chunks of it waiting is not fetched; the
other partitions of its broker are. A message that is larger than the fetch size is fetched again
with twice the size, up to `fetch.size.max`; one that is larger still fails its stream.

Kafka 1.1: kafka.consumer.PartitionTopicInfo.
"""

from collections.abc import Callable, Iterable, Sequence

from kctl.errors import KctlError, NotFoundError
from kctl.kafka.claims import Claim
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.streams import StreamQueue
from kctl.runtime.future import Future, sleep
from kctl.runtime.runtime import Runtime
from kctl.store.consumer_znodes import ConsumedPartition

# Takes a partition, and the offset at which `auto.offset.reset` has it begin.
OnReset = Callable[[ConsumedPartition, int], object]


class Feed:
    """A claimed partition and how far it is fetched."""

    def __init__(self, claim: Claim, queue: StreamQueue, fetch_size: int) -> None:
        self.claim = claim
        self.queue = queue
        self.fetch_size = fetch_size
        # The offset to fetch next; None: by `auto.offset.reset`.
        self.offset: int | None = claim.committed
        # Its stream was failed, and fetches nothing until it is claimed again.
        self.is_stuck = False

    def fail(self, error: KctlError) -> None:
        """Raise `error` in the stream, and fetch nothing more for this claim."""
        self.is_stuck = True
        self.queue.fail(error)

    def enlarge(self, size: int, longest: int) -> None:
        """Double the fetch size for a message of `size` bytes; KctlError beyond `longest`."""
        if self.fetch_size >= longest:
            raise KctlError(
                f"{self.claim.partition} has a message of {size} bytes at offset {self.offset}, "
                f"which is larger than fetch.size.max={longest}"
            )
        self.fetch_size = min(2 * self.fetch_size, longest)


class Feeds:
    """The feeds of all open claims; a fetcher of either wire fetches for them."""

    def __init__(self, runtime: Runtime, config: ConnectorConfig) -> None:
        self._scheduler = runtime.scheduler
        self._config = config
        self._chunks_max = config.number("queued_chunks")
        self._backoff_ms = config.number("fetch_backoff_ms")
        self._feeds: dict[ConsumedPartition, Feed] = {}
        self._woken: Future[None] | None = None

    def add(self, claim: Claim, queue: StreamQueue) -> None:
        """Fetch a partition from its committed offset on."""
        feed = Feed(claim, queue, self._config.number("fetch_size"))
        self._feeds[claim.partition] = feed
        self.wake()

    def remove_closed(self) -> None:
        """Forget the partitions whose claims are closed."""
        self._feeds = {key: feed for key, feed in self._feeds.items() if feed.claim.is_open}

    def wake(self) -> None:
        """Look for something to fetch: a stream has taken a chunk, or a partition was added."""
        woken, self._woken = self._woken, None
        if woken is not None and not woken.done:
            woken.set_result(None)

    def _hungry(self) -> list[Feed]:
        return [
            feed
            for feed in self._feeds.values()
            if feed.claim.is_open
            and not feed.is_stuck
            and feed.queue.chunks_of(feed.claim) < self._chunks_max
        ]

    def _is_fed(self, feed: Feed) -> bool:
        return self._feeds.get(feed.claim.partition) is feed

    def _make_last(self, feed: Feed) -> None:
        """Let the other feeds come before this one."""
        if self._is_fed(feed):
            self._feeds[feed.claim.partition] = self._feeds.pop(feed.claim.partition)

    def _fail_without_reset(self, feeds: Iterable[Feed]) -> None:
        for feed in feeds:
            feed.fail(
                NotFoundError(
                    f"{feed.claim.partition} has no committed offset that the broker has",
                    hint="auto.offset.reset=smallest or largest begins somewhere else",
                )
            )

    def _fail(self, feeds: Iterable[Feed], error: KctlError) -> None:
        queues: Sequence[StreamQueue] = list({id(it.queue): it.queue for it in feeds}.values())
        for queue in queues:
            queue.fail(error)

    async def _pause(self) -> None:
        await sleep(self._scheduler, self._backoff_ms)
        self.wake()
