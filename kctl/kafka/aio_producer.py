"""AioProducer, which `kctl.kafka.aio` calls Producer: the producer for coroutines of asyncio.

    async with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        delivery = await producer.send(KeyedMessage("orders", b"tea"))
        written = await delivery

It does what `kctl.kafka.producer` describes, and blocks nothing: its own loop has its own thread.
"""

from collections.abc import Mapping, Sequence
from typing import Self, Unpack, overload

from kctl.errors import UsageError
from kctl.kafka.messages import Delivery, KeyedMessage, ProducerData
from kctl.kafka.producer import (
    ProducerClient,
    ProducerParts,
    Sendable,
    check_parts,
    raise_first_error,
)
from kctl.kafka.producer_config import ProducerConfig


class AioProducer:
    """Writes messages; use `async with`, or `start` and `close`. Arguments and settings are those
    of `kctl.kafka.Producer`."""

    def __init__(
        self,
        config: Mapping[str, object] | ProducerConfig,
        **parts: Unpack[ProducerParts],
    ) -> None:
        self._config = config if isinstance(config, ProducerConfig) else ProducerConfig(config)
        check_parts(parts)
        self._parts = parts
        self._client: ProducerClient | None = None

    async def start(self) -> Self:
        """Connect; UnreachableError if there is no broker."""
        if self._client is not None:
            raise UsageError("the producer was started already")
        client = ProducerClient(self._config, self._parts)
        try:
            await client.loop.run_async(client.core.start)
        except BaseException:
            client.is_open = False
            client.end()
            raise
        self._client = client
        return self

    @overload
    async def send(self, item: KeyedMessage) -> Delivery: ...

    @overload
    async def send(self, item: ProducerData | Sequence[Sendable]) -> list[Delivery]: ...

    async def send(self, item: Sendable | Sequence[Sendable]) -> Delivery | list[Delivery]:
        """Send a message, a ProducerData, or a list of them; return a Delivery for each message.

        sync: all is written when it returns. async: it waits for space in the queue at most, as
        `queue.enqueue.timeout.ms` says; `await` the Delivery for where it was written.
        """
        client = self._open_client()
        items = [item] if isinstance(item, KeyedMessage | ProducerData) else item
        deliveries = client.all_deliveries(items)
        if client.config.is_async:
            for delivery in deliveries:
                for timeout_ms in client.enqueue(delivery):
                    await client.loop.run_async(client.space, timeout_ms)
        else:
            await client.loop.run_async(client.core.send_now, deliveries)
            raise_first_error(deliveries)
        return deliveries[0] if isinstance(item, KeyedMessage) else deliveries

    async def flush(self) -> None:
        """Send what is queued, without waiting for full batches; return when it is done."""
        client = self._open_client()
        await client.loop.run_async(client.core.flush)

    async def close(self) -> None:
        """Send what is queued, then close handlers and connections; does nothing if closed. When it
        is cancelled it ends at once, and messages that were not sent fail."""
        client = self._client
        if client is None or not client.is_open:
            return
        client.is_open = False
        try:
            await client.loop.run_async(client.core.close)
        finally:
            client.end()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _open_client(self) -> ProducerClient:
        if self._client is None:
            raise UsageError("the producer was not started", hint="use async with, or start()")
        self._client.check_open()
        return self._client
