"""Consumer: reads topics of Kafka 0.8 and later, as a member of a group or on its own.

    with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "g"}) as consumer:
        consumer.subscribe(["orders"])
        for message in consumer:
            print(message.partition, message.offset, message.value)

A record counts as processed when the next one is asked for: an automatic commit covers what was
iterated before the current message, and `with` that ends by an exception does not commit the
message that raised it. So each record is read at least once.

A consumer is for one thread at a time, and runs on a loop in a thread of its own, which sends
heartbeats. Groups need Kafka 0.9 and later; `assign` works with 0.8, too.

Kafka 2.7: org.apache.kafka.clients.consumer.KafkaConsumer
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from kctl.errors import UsageError
from kctl.kafka.client_loop import ClientLoop
from kctl.kafka.consumer_config import ConsumerConfig
from kctl.kafka.consumer_core import ConsumerCore
from kctl.kafka.errors import ConsumerTimeoutError
from kctl.kafka.streams import ConsumedMessage
from kctl.model import Position, PositionKind, TopicPartition

# How long one poll of an iteration waits; Ctrl-C is noticed at once.
_ITERATION_POLL_MS = 60_000


class _Client:
    """A consumer's loop and core, and the messages that an iteration has not handed out yet."""

    def __init__(self, config: Mapping[str, object] | ConsumerConfig) -> None:
        """Create a consumer; it connects when it is used. `config` has settings of today's
        consumers: bootstrap.servers, group.id, auto.offset.reset, ... Raise UsageError for values
        that are not valid."""
        self.config = config if isinstance(config, ConsumerConfig) else ConsumerConfig(config)
        self._loop = ClientLoop("kctl-consumer")
        try:
            for warning in self.config.settings.warnings:
                self._loop.runtime.trace.warning(warning)
            self._core = ConsumerCore(self._loop.runtime, self.config)
        except BaseException:
            self._loop.close()
            raise
        self._is_open = True
        self._unread: deque[ConsumedMessage] = deque()
        # The message that the iteration handed out last, until the next one is asked for.
        self._current: ConsumedMessage | None = None

    def _held(self, *, with_current: bool = False) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that must not be committed yet."""
        held: dict[TopicPartition, int] = {}
        current = [self._current] if with_current and self._current is not None else []
        for it in [*current, *self._unread]:
            held.setdefault(TopicPartition(it.topic, it.partition), it.offset)
        return held

    def _drop(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget what was polled of `partitions`, or of all."""
        gone = None if partitions is None else set(partitions)
        self._unread = deque(
            it
            for it in self._unread
            if gone is not None and TopicPartition(it.topic, it.partition) not in gone
        )

    @contextmanager
    def _while_owned(self) -> Iterator[dict[TopicPartition, int]]:
        """Yield the offsets that must not be committed yet; forget what was polled if the
        partitions are given up meanwhile."""
        before = self._core.revocations
        try:
            yield self._held()
        finally:
            if self._core.revocations != before:
                self._drop()

    def _take_unread(self) -> list[ConsumedMessage]:
        taken, self._unread = list(self._unread), deque()
        return taken

    def _take_next(self) -> ConsumedMessage:
        self._current = self._unread.popleft()
        return self._current

    @property
    def _records_max(self) -> int:
        found: int = self.config["records_max"]
        return found

    def _iteration_ms(self) -> int:
        limit_ms: int = self.config["timeout_ms"]
        return _ITERATION_POLL_MS if limit_ms < 0 else limit_ms

    def _check_timeout(self) -> None:
        """Raise ConsumerTimeoutError if an iteration's poll found nothing and must not go on."""
        if self.config["timeout_ms"] >= 0:
            raise ConsumerTimeoutError(f"no message within {self.config['timeout_ms']} ms")


def _time(time_ms: int) -> Position:
    if time_ms < 0:
        raise UsageError(f"a time of {time_ms} ms")
    return Position(PositionKind.TIME, time_ms)


class Consumer(_Client):
    """Reads topics; its methods block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(with_current=kind is not None)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read the partitions of `topics` that the group assigns to this member; `poll` joins it.
        UsageError without group.id."""
        with self._while_owned() as held:
            self._run(self._core.subscribe, topics, held)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read `partitions`, beginning where the group has committed, or where auto.offset.reset
        says. No group is joined. UnreachableError if no broker answers."""
        with self._while_owned() as held:
            self._run(self._core.assign, partitions, held)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read, in order."""
        found: list[TopicPartition] = self._run(self._core.assignment)
        return found

    def poll(self, timeout_ms: int = 1_000) -> list[ConsumedMessage]:
        """Return the next records, at most max.poll.records; none if none arrive in time.

        The records returned before count as processed. Raise ApiError for what a broker refuses,
        UnreachableError, and NotFoundError where auto.offset.reset=none finds no position.
        """
        self._attend(timeout_ms)
        if self._unread:
            return self._take_unread()
        found: list[ConsumedMessage] = self._run(self._core.poll, timeout_ms, self._records_max)
        return found

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """Yield records for ever, or until none arrives within consumer.timeout.ms:
        ConsumerTimeoutError. Otherwise it raises as `poll` does."""
        while True:
            if self._unread and self._core.is_due:
                self._attend(self._iteration_ms())
            if not self._unread:
                found = self.poll(self._iteration_ms())
                if not found:
                    self._check_timeout()
                self._unread.extend(found)
            else:
                yield self._take_next()

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit `offsets`, or all records that were handed out, and wait for the answer.

        Raise ApiError, which names the partitions that failed. ILLEGAL_GENERATION,
        UNKNOWN_MEMBER_ID and REBALANCE_IN_PROGRESS mean that they may belong to another member.
        """
        if offsets is None:
            self._run(self._core.commit_positions, self._held())
        else:
            self._run(self._core.commit, offsets)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return what the group has committed; partitions without a commit are left out. Raise
        ApiError for what a broker refuses, UsageError without group.id."""
        found: dict[TopicPartition, int] = self._run(self._core.committed, list(partitions))
        return found

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of an assigned partition."""
        held = self._held().get(TopicPartition(*partition))
        found: int = self._run(self._core.position, partition) if held is None else held
        return found

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading an assigned partition at `offset`."""
        self._run(self._core.seek, {TopicPartition(*partition): offset})
        self._drop([TopicPartition(*partition)])

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record of `partitions`, or of all that are assigned."""
        self._run(self._core.seek_to, PositionKind.EARLIEST, partitions)
        self._drop(partitions or None)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on after the last record of `partitions`, or of all that are assigned."""
        self._run(self._core.seek_to, PositionKind.LATEST, partitions)
        self._drop(partitions or None)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first record."""
        return self._resolve(dict.fromkeys(partitions, Position(PositionKind.EARLIEST)))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset that each partition's next record gets; with
        isolation.level=read_committed, that of the first one in an open transaction."""
        return self._resolve(dict.fromkeys(partitions, Position(PositionKind.LATEST)))

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each time (ms since 1970); the end if there is none.
        UnsupportedVersionError before Kafka 0.10.1."""
        return self._resolve({it: _time(time_ms) for it, time_ms in times.items()})

    def partitions_for(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions; NotFoundError if there is no such topic."""
        found: list[int] = self._run(self._core.partitions_for, topic)
        return found

    def close(self) -> None:
        """Commit (enable.auto.commit), leave the group, close the connections."""
        self._end(with_current=False)

    def _attend(self, timeout_ms: int) -> None:
        """Do what is due before a message that was polled earlier is handed out."""
        self._current = None
        if self._unread and self._core.is_due:
            with self._while_owned() as held:
                self._run(self._core.attend, timeout_ms, held)

    def _end(self, *, with_current: bool) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._loop.run(self._core.close, self._held(with_current=with_current))
        finally:
            self._loop.close()

    def _resolve(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = self._run(self._core.resolve, positions)
        return found

    def _run(self, function: Any, *arguments: object) -> Any:
        return self._loop.run(function, *arguments)


class AioConsumer(_Client):
    """The same for asyncio; `kctl.kafka.aio` calls it Consumer."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._end(with_current=kind is not None)

    async def subscribe(self, topics: Sequence[str]) -> None:
        """See `Consumer.subscribe`."""
        with self._while_owned() as held:
            await self._run(self._core.subscribe, topics, held)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """See `Consumer.assign`."""
        with self._while_owned() as held:
            await self._run(self._core.assign, partitions, held)

    async def assignment(self) -> list[TopicPartition]:
        """See `Consumer.assignment`."""
        found: list[TopicPartition] = await self._run(self._core.assignment)
        return found

    async def poll(self, timeout_ms: int = 1_000) -> list[ConsumedMessage]:
        """See `Consumer.poll`."""
        await self._attend(timeout_ms)
        if self._unread:
            return self._take_unread()
        found: list[ConsumedMessage] = await self._run(
            self._core.poll, timeout_ms, self._records_max
        )
        return found

    async def __aiter__(self) -> AsyncIterator[ConsumedMessage]:
        """See `Consumer.__iter__`."""
        while True:
            if self._unread and self._core.is_due:
                await self._attend(self._iteration_ms())
            if not self._unread:
                found = await self.poll(self._iteration_ms())
                if not found:
                    self._check_timeout()
                self._unread.extend(found)
            else:
                yield self._take_next()

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """See `Consumer.commit`."""
        if offsets is None:
            await self._run(self._core.commit_positions, self._held())
        else:
            await self._run(self._core.commit, offsets)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Consumer.committed`."""
        found: dict[TopicPartition, int] = await self._run(self._core.committed, list(partitions))
        return found

    async def position(self, partition: TopicPartition) -> int:
        """See `Consumer.position`."""
        held = self._held().get(TopicPartition(*partition))
        found: int = await self._run(self._core.position, partition) if held is None else held
        return found

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """See `Consumer.seek`."""
        await self._run(self._core.seek, {TopicPartition(*partition): offset})
        self._drop([TopicPartition(*partition)])

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """See `Consumer.seek_to_beginning`."""
        await self._run(self._core.seek_to, PositionKind.EARLIEST, partitions)
        self._drop(partitions or None)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """See `Consumer.seek_to_end`."""
        await self._run(self._core.seek_to, PositionKind.LATEST, partitions)
        self._drop(partitions or None)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """See `Consumer.beginning_offsets`."""
        return await self._resolve(dict.fromkeys(partitions, Position(PositionKind.EARLIEST)))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See `Consumer.end_offsets`."""
        return await self._resolve(dict.fromkeys(partitions, Position(PositionKind.LATEST)))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """See `Consumer.offsets_for_times`."""
        return await self._resolve({it: _time(time_ms) for it, time_ms in times.items()})

    async def partitions_for(self, topic: str) -> list[int]:
        """See `Consumer.partitions_for`."""
        found: list[int] = await self._run(self._core.partitions_for, topic)
        return found

    async def close(self) -> None:
        """See `Consumer.close`."""
        await self._end(with_current=False)

    async def _attend(self, timeout_ms: int) -> None:
        """Do what is due before a message that was polled earlier is handed out."""
        self._current = None
        if self._unread and self._core.is_due:
            with self._while_owned() as held:
                await self._run(self._core.attend, timeout_ms, held)

    async def _end(self, *, with_current: bool) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            await self._run(self._core.close, self._held(with_current=with_current))
        finally:
            self._loop.close()

    async def _resolve(
        self, positions: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = await self._run(self._core.resolve, positions)
        return found

    async def _run(self, function: Any, *arguments: object) -> Any:
        return await self._loop.run_async(function, *arguments)
