"""SimpleConsumer: reads from one broker, each request naming its offset; no state, no group.

    with SimpleConsumer("localhost", 9092) as consumer:
        start, *_ = consumer.get_offsets_before("orders", 0, EARLIEST_TIME, 1)
        for message in consumer.fetch(FetchRequest("orders", 0, start)):
            print(message.offset, message.message)

With `kafka_07=True` the broker is one of Kafka 0.7. A request whose connection is lost is sent once
more. A fetch that gets only the beginning of a message is repeated with twice the size until the
message is whole, up to `buffer_size_max`.

Calls of several threads take turns on 0.7's wire, whose connections serve one request at a time.

Kafka: kafka.consumer.SimpleConsumer of 0.7 to 1.1
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from kctl.client.offsets import raise_for_commit
from kctl.errors import TimedOutError, UnreachableError, UsageError
from kctl.kafka.client_loop import ClientLoop
from kctl.kafka.errors import MessageTooLargeError
from kctl.kafka.message_set import FetchRequest, MessageSet
from kctl.kafka.offsets import OffsetsStorage
from kctl.kafka.simple_wires import SimpleWire, SimpleWire07, SimpleWireToday
from kctl.model import TopicPartition
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime

T = TypeVar("T")

BUFFER_BYTES = 1 << 20
BUFFER_BYTES_MAX = 64 << 20


class SimpleConsumerCore:
    """The coroutines of a simple consumer, on its loop."""

    def __init__(
        self, runtime: Runtime, wire: SimpleWire, buffer_size: int, buffer_size_max: int
    ) -> None:
        if not 0 < buffer_size <= buffer_size_max:
            raise UsageError(f"buffer_size={buffer_size}: 1 to {buffer_size_max} bytes are valid")
        self._runtime = runtime
        self._wire = wire
        self._buffer_size = buffer_size
        self._buffer_size_max = buffer_size_max
        # Done when the request before has its answer.
        self._turn: Future[None] | None = None

    async def fetch(
        self, requests: Sequence[FetchRequest], max_wait_ms: int = 0, min_bytes: int = 0
    ) -> list[MessageSet]:
        """Return a set per request, with whole messages."""
        sized = [
            it if it.fetch_size is not None else it._replace(fetch_size=self._buffer_size)
            for it in requests
        ]
        if not sized:
            return []
        sets = await self._ask(lambda: self._wire.fetch(sized, max_wait_ms, min_bytes))
        return [await self._whole(found) for found in sets]

    async def offsets_before(
        self, topic: str, partition: int, time: int, max_offsets: int
    ) -> list[int]:
        """Return offsets of segments before a time."""
        return await self._ask(
            lambda: self._wire.offsets_before(topic, partition, time, max_offsets)
        )

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], storage: OffsetsStorage
    ) -> None:
        """Commit; raise ApiError if a partition failed."""
        raise_for_commit(await self._ask(lambda: self._wire.commit(group, offsets, storage)))

    async def committed(
        self, group: str, partitions: Iterable[TopicPartition], storage: OffsetsStorage
    ) -> dict[TopicPartition, int]:
        """Return committed offsets."""
        wanted = [TopicPartition(*it) for it in partitions]
        return await self._ask(lambda: self._wire.committed(group, wanted, storage))

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    async def _ask(self, once: Callable[[], Awaitable[T]]) -> T:
        """Await `once()` after the requests before; once more if the connection was lost."""
        before, mine = self._turn, self._runtime.scheduler.future()
        self._turn = mine
        try:
            if before is not None:
                await before
            try:
                return await once()
            except TimedOutError:
                raise
            except UnreachableError:
                return await once()
        finally:
            if before is None or before.done:
                mine.set_result(None)
            else:
                # Cancelled while it waited: the next one waits in its place.
                before.add_done_callback(lambda _: mine.set_result(None))

    async def _whole(self, found: MessageSet) -> MessageSet:
        """Return `found`, or what a larger fetch gets if it ends inside its first message."""
        while (needed := found.cut_message_bytes) is not None:
            size = found.request.fetch_size or self._buffer_size
            if size >= self._buffer_size_max or (needed or 0) > self._buffer_size_max:
                return found.failed(
                    MessageTooLargeError(
                        f"the message at offset {found.request.offset} of {found.request.topic}-"
                        f"{found.request.partition} is larger than {self._buffer_size_max} bytes",
                        needed,
                    )
                )
            size *= 2
            while size < (needed or 0):
                size *= 2
            larger = [found.request._replace(fetch_size=min(size, self._buffer_size_max))]
            (found,) = await self._ask(partial(self._wire.fetch, larger, 0, 0))
        return found


class _Client:
    """The loop and the core of a simple consumer; the blocking one and the other share it."""

    def __init__(
        self,
        host: str,
        port: int,
        socket_timeout_ms: int = 30_000,
        buffer_size: int = BUFFER_BYTES,
        *,
        kafka_07: bool = False,
        client_id: str = "kctl",
        properties: Mapping[str, str] | None = None,
        buffer_size_max: int = BUFFER_BYTES_MAX,
    ) -> None:
        """Create a consumer of the broker at `host:port`; it connects when it is used.

        `socket_timeout_ms` limits connecting and each answer. `buffer_size` is the size in bytes
        of a fetch that names none. `properties` are settings of clients: security.protocol,
        `sasl.*`, `ssl.*`, broker.version.fallback and api.version.request. Raise UsageError for
        values that are not valid.
        """
        if kafka_07 and properties:
            raise UsageError("Kafka 0.7 has no settings of security and versions")
        self._loop = ClientLoop("kctl-simple-consumer")
        try:
            runtime = self._loop.runtime
            wire: SimpleWire
            if kafka_07:
                wire = SimpleWire07(runtime, host, port, socket_timeout_ms)
            else:
                wire = SimpleWireToday(
                    runtime, host, port, socket_timeout_ms,
                    client_id=client_id, properties=properties or {},
                )  # fmt: skip
            self._core = SimpleConsumerCore(runtime, wire, buffer_size, buffer_size_max)
        except BaseException:
            self._loop.close()
            raise
        self._is_open = True


class SimpleConsumer(_Client):
    """Reads from one broker; its methods block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def fetch(
        self, request: FetchRequest, *, max_wait_ms: int = 0, min_bytes: int = 0
    ) -> MessageSet:
        """Return the messages of one partition from an offset on.

        The broker answers at once, or waits up to `max_wait_ms` for `min_bytes` (not 0.7's). An
        error of the fetch is raised when the set is iterated. Raise UnreachableError if the
        connection is lost twice, TimedOutError if no answer comes.
        """
        found: list[MessageSet] = self._run(self._core.fetch, [request], max_wait_ms, min_bytes)
        return found[0]

    def multifetch(
        self, requests: Sequence[FetchRequest], *, max_wait_ms: int = 0, min_bytes: int = 0
    ) -> list[MessageSet]:
        """Return a set per request, in order, each with its own error; otherwise as `fetch`."""
        found: list[MessageSet] = self._run(self._core.fetch, requests, max_wait_ms, min_bytes)
        return found

    def get_offsets_before(
        self, topic: str, partition: int, time: int, max_offsets: int
    ) -> list[int]:
        """Return where segments begin that were last written before `time` (ms), descending.

        LATEST_TIME lists from the end of the log on, EARLIEST_TIME its beginning. The answer is
        only as precise as the segments are long. Raise ApiError for the broker's error,
        UnsupportedVersionError for a time on Kafka 4.0 and later.
        """
        found: list[int] = self._run(self._core.offsets_before, topic, partition, time, max_offsets)
        return found

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        storage: OffsetsStorage = OffsetsStorage.KAFKA,
    ) -> None:
        """Commit offsets of a group without members: to its coordinator, or to ZooKeeper through
        this broker. Raise ApiError, which names the partitions that failed, UsageError on 0.7's
        wire."""
        self._run(self._core.commit, group, offsets, OffsetsStorage(storage))

    def fetch_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        storage: OffsetsStorage = OffsetsStorage.KAFKA,
    ) -> dict[TopicPartition, int]:
        """Return the offsets that a group has committed; partitions without one are left out.
        Raises as `commit_offsets` does."""
        found: dict[TopicPartition, int] = self._run(
            self._core.committed, group, partitions, OffsetsStorage(storage)
        )
        return found

    def close(self) -> None:
        """Close the connections and end the loop."""
        if self._is_open:
            self._is_open = False
            try:
                self._run(self._core.close)
            finally:
                self._loop.close()

    def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        return self._loop.run(function, *arguments)


class AioSimpleConsumer(_Client):
    """The same for asyncio; `kctl.kafka.aio` calls it SimpleConsumer."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def fetch(
        self, request: FetchRequest, *, max_wait_ms: int = 0, min_bytes: int = 0
    ) -> MessageSet:
        """See `SimpleConsumer.fetch`."""
        found: list[MessageSet] = await self._run(
            self._core.fetch, [request], max_wait_ms, min_bytes
        )
        return found[0]

    async def multifetch(
        self, requests: Sequence[FetchRequest], *, max_wait_ms: int = 0, min_bytes: int = 0
    ) -> list[MessageSet]:
        """See `SimpleConsumer.multifetch`."""
        found: list[MessageSet] = await self._run(
            self._core.fetch, requests, max_wait_ms, min_bytes
        )
        return found

    async def get_offsets_before(
        self, topic: str, partition: int, time: int, max_offsets: int
    ) -> list[int]:
        """See `SimpleConsumer.get_offsets_before`."""
        found: list[int] = await self._run(
            self._core.offsets_before, topic, partition, time, max_offsets
        )
        return found

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        storage: OffsetsStorage = OffsetsStorage.KAFKA,
    ) -> None:
        """See `SimpleConsumer.commit_offsets`."""
        await self._run(self._core.commit, group, offsets, OffsetsStorage(storage))

    async def fetch_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        storage: OffsetsStorage = OffsetsStorage.KAFKA,
    ) -> dict[TopicPartition, int]:
        """See `SimpleConsumer.fetch_offsets`."""
        found: dict[TopicPartition, int] = await self._run(
            self._core.committed, group, partitions, OffsetsStorage(storage)
        )
        return found

    async def close(self) -> None:
        """See `SimpleConsumer.close`."""
        if self._is_open:
            self._is_open = False
            try:
                await self._run(self._core.close)
            finally:
                self._loop.close()

    async def _run(self, function: Callable[..., Any], *arguments: object) -> Any:
        return await self._loop.run_async(function, *arguments)
