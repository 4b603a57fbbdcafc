"""AioConsumerConnector, which `kctl.kafka.aio` calls ConsumerConnector: for coroutines of asyncio.

    async with ConsumerConnector({"zookeeper.connect": "zk:2181", "group.id": "g"}) as connector:
        streams = await connector.create_message_streams({"orders": 1})
        async for message in streams["orders"][0]:
            ...

It does what `kctl.kafka.connector` describes, and blocks nothing: its own loop has its own thread.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Self

from kctl.errors import UsageError
from kctl.kafka.client_loop import ClientLoop
from kctl.kafka.connector import (
    ConnectorCore,
    StreamReader,
    Subscribed,
    by_topic,
    check_count,
    checked_subscription,
)
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.streams import ConsumedMessage
from kctl.store.topic_filter import TopicFilter


class AioKafkaStream(StreamReader):
    """Messages for one coroutine; see `kctl.kafka.KafkaStream`."""

    def __aiter__(self) -> AsyncIterator[ConsumedMessage]:
        return self

    async def __anext__(self) -> ConsumedMessage:
        reader = self._reader
        reader.asked_for_next()
        message = reader.next()
        while message is None:
            if not await self._loop.run_async(self._core.next_chunk, self._queue, reader):
                raise StopAsyncIteration
            message = reader.next()
        return message

    async def next(self) -> ConsumedMessage:
        """Return the next message; StopAsyncIteration after `shutdown`."""
        return await self.__anext__()


class AioConsumerConnector:
    """A member of a group on ZooKeeper; use `async with`, or `start` and `shutdown`."""

    def __init__(self, config: Mapping[str, object] | ConnectorConfig) -> None:
        """Check the settings, which are those of `kctl.kafka.ConsumerConnector`; UsageError."""
        self._config = config if isinstance(config, ConnectorConfig) else ConnectorConfig(config)
        self._loop: ClientLoop | None = None
        self._core: ConnectorCore | None = None
        self._has_streams = False

    async def start(self) -> Self:
        """Connect; UnreachableError without ZooKeeper or a broker."""
        if self._loop is not None:
            raise UsageError("the connector was started already")
        loop = ClientLoop()
        core = ConnectorCore(loop.runtime, self._config)
        try:
            await loop.run_async(core.open)
        except BaseException:
            loop.close()
            raise
        self._loop, self._core = loop, core
        return self

    async def create_message_streams(
        self, topics: Mapping[str, int]
    ) -> dict[str, list[AioKafkaStream]]:
        """Join the group and return so many streams of each topic; once per connector."""
        subscription = checked_subscription(topics)
        return by_topic(subscription, await self._begin(subscription))

    async def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, count: int = 1
    ) -> list[AioKafkaStream]:
        """Join the group and return `count` streams of the topics that the filter allows."""
        check_count(count, repr(topic_filter))
        return await self._begin((topic_filter, count))

    async def _begin(self, subscription: Subscribed) -> list[AioKafkaStream]:
        loop, core = self._opened()
        if self._has_streams:
            raise UsageError("a connector makes streams once: make another connector for more")
        self._has_streams = True
        await loop.run_async(core.begin, subscription)
        return [AioKafkaStream(loop, core, queue, self._config) for queue in core.queues]

    def _opened(self) -> tuple[ClientLoop, ConnectorCore]:
        if self._loop is None or self._core is None:
            raise UsageError("the connector is not open")
        return self._loop, self._core

    async def commit_offsets(self) -> None:
        """Commit the offsets of consumed messages; LostClaimError if the session has ended,
        TimedOutError after `commit.timeout.ms`."""
        loop, core = self._opened()
        await loop.run_async(core.commit)

    async def shutdown(self) -> None:
        """End the streams, commit if the connector does so by itself, and leave the group."""
        if self._loop is not None and self._core is not None:
            loop, core = self._loop, self._core
            self._core = None
            try:
                await loop.run_async(core.close)
            finally:
                loop.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()
