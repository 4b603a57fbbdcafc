"""Producer: writes messages to Kafka of any age, from any thread.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        written = producer.send(KeyedMessage("orders", b"tea", key=b"alice"))
        print(written.result().offset)

`producer.type=sync` writes before `send` returns. `producer.type=async` puts messages into a queue
that a sender empties in the background (`linger.ms`, `batch.num.messages`); what `send` returns
then becomes done later, and `close` sends what is queued. Errors of messages whose result nothing
asks for are logged.

On the wire of Kafka 0.7 nothing is acknowledged: a message counts as written when it was handed to
the operating system, its offset is -1, and it may be lost with the connection or the broker.

Kafka: kafka.producer.Producer of 0.7 to 1.1; org.apache.kafka.clients.producer.KafkaProducer
"""

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypedDict, Unpack, overload

from kctl.errors import TimedOutError, UsageError
from kctl.kafka.client_loop import ClientLoop
from kctl.kafka.encoders import Encoder
from kctl.kafka.errors import QueueFullError
from kctl.kafka.handlers import CallbackHandler, EventHandler
from kctl.kafka.messages import AnyPartition, Delivery, KeyedMessage, ProducerData
from kctl.kafka.partitioners import Partitioner
from kctl.kafka.producer_config import ProducerConfig
from kctl.kafka.producer_core import ProducerCore, Settlement
from kctl.kafka.producer_wires import make_wire
from kctl.runtime.future import wait_at_most

Sendable = KeyedMessage | ProducerData
_ANY_PARTITION_BELOW = 1 << 31
# Closing connections takes milliseconds, if no handler blocks the loop.
_ABANDON_TIMEOUT_S = 5.0


class ProducerParts(TypedDict, total=False):
    """Objects that settings cannot name; they take precedence over those that settings name."""

    # For messages, and for keys unless these have an encoder of their own.
    encoder: Encoder | None
    key_encoder: Encoder | None
    partitioner: Partitioner | None
    # Of an asynchronous producer.
    event_handler: EventHandler | None
    callback_handler: CallbackHandler | None


def check_parts(parts: ProducerParts) -> None:
    """Raise TypeError for an argument that a Producer does not have."""
    for name in parts.keys() - ProducerParts.__annotations__.keys():
        raise TypeError(f"Producer() got an unexpected keyword argument {name!r}")


class ProducerClient:
    """A producer's loop, and its core there; the blocking and the asyncio Producer share it."""

    def __init__(self, config: Mapping[str, object] | ProducerConfig, parts: ProducerParts) -> None:
        settings = config if isinstance(config, ProducerConfig) else ProducerConfig(config)
        self.config = settings
        self.hooks = parts.get("callback_handler") or settings.callback_handler
        event_handler = parts.get("event_handler") or settings.event_handler
        partitioner = parts.get("partitioner")
        if not settings.is_async and (self.hooks or event_handler):
            raise UsageError("handlers belong to the queue", hint="set producer.type=async")
        if partitioner is not None and settings.settings.is_given("broker_list"):
            raise UsageError("with broker.list the broker chooses the partition")
        encoder = parts.get("encoder") or settings.encoder
        self.loop = ClientLoop("kctl-producer")
        self.is_open = True
        self._take_random = self.loop.runtime.entropy.random_below
        for warning in settings.settings.warnings:
            self.loop.runtime.trace.warning(warning)
        settlement = Settlement(self.loop.runtime)
        try:
            wire = make_wire(
                self.loop.runtime,
                settings,
                settlement,
                encoder=encoder,
                key_encoder=parts.get("key_encoder") or settings.key_encoder or encoder,
                partitioner=partitioner or settings.partitioner,
            )
        except BaseException:
            self.loop.close()
            raise
        self.core = ProducerCore(
            self.loop.runtime,
            settings,
            wire,
            settlement,
            encoder=encoder,
            lock=self.loop.new_lock(),
            callback_handler=self.hooks,
            event_handler=event_handler,
        )

    def deliveries(self, data: ProducerData) -> list[Delivery]:
        """Return a delivery for each message of `data`; without a key they share a partition."""
        choice = None if data.key is not None else AnyPartition(self._random())
        return [Delivery(KeyedMessage(data.topic, it, data.key, choice), self) for it in data.data]

    def all_deliveries(self, items: object) -> list[Delivery]:
        """Return the deliveries of several messages and ProducerData, in order; UsageError."""
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise _not_sendable(items)
        found: list[Delivery] = []
        for item in items:
            if isinstance(item, ProducerData):
                found += self.deliveries(item)
            else:
                found.append(Delivery(_checked(item), self))
        return found

    def check_open(self) -> None:
        """Raise UsageError if the producer is closed."""
        if not self.is_open:
            raise UsageError("the producer is closed")

    def enqueue(self, given: Delivery) -> Iterator[int]:
        """Put a delivery into the queue, with the hooks around; as often as the queue is full,
        yield how long to wait for `space`, in ms. QueueFullError when the time is over."""
        item = given if self.hooks is None else self.hooks.before_enqueue(given)
        if item is None:
            self.core.drop(given)
            return
        timeout_ms: int = self.config.enqueue_timeout_ms
        clock = self.loop.runtime.clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        while not self.core.enqueue(item):
            left_ms = timeout_ms if timeout_ms <= 0 else deadline_ms - clock.monotonic_ms()
            # On the loop's own thread, in a hook, waiting would be for ever.
            if timeout_ms == 0 or (timeout_ms > 0 and left_ms <= 0) or self.loop.is_own_thread:
                if self.hooks is not None:
                    self.hooks.after_enqueue(item, added=False)
                raise self._full()
            yield left_ms
        if self.hooks is not None:
            self.hooks.after_enqueue(item, added=True)

    def _full(self) -> QueueFullError:
        name = self.config.settings.shown
        return QueueFullError(
            f"the queue is full ({self.config.queue_count} messages or"
            f" {self.config.queue_bytes} bytes)",
            hint=f"send more slowly, or change {name('enqueue_timeout_ms')} or"
            f" {name('queue_count')}",
        )

    async def space(self, timeout_ms: int) -> None:
        """Wait until there may be space in the queue, or `timeout_ms` have passed (< 0: no limit).
        On the loop."""
        scheduler = self.loop.runtime.scheduler
        waiting = scheduler.spawn(self.core.wait_for_space(), "space in the queue")
        if timeout_ms < 0:
            await waiting
            return
        with suppress(TimedOutError):
            await wait_at_most(scheduler, waiting, timeout_ms, TimedOutError("the queue is full"))

    def wait_for(self, delivery: Delivery, timeout_s: float | None) -> None:
        """Block until `delivery` is done."""
        self.loop.run(self.core.settled, delivery, timeout_s=timeout_s)

    def awaiting(self, delivery: Delivery) -> Generator[Any, None, None]:
        """Await in asyncio until `delivery` is done."""
        yield from self.loop.run_async(self.core.settled, delivery).__await__()

    def end(self) -> None:
        """Close what is still open, fail what was not sent, and end the loop."""
        try:
            self.loop.run(self.core.abandon, timeout_s=_ABANDON_TIMEOUT_S)
        except TimedOutError:
            # A handler blocks the loop: it ends with the process.
            self.loop.runtime.trace.warning("a handler does not let the producer end")
        finally:
            self.loop.close()

    def _random(self) -> int:
        return self._take_random(_ANY_PARTITION_BELOW)


class Producer:
    """Writes messages. Its methods may be called from any thread; close it, or use `with`.

    `config` has the settings of Kafka's producers, of any age. Objects that settings cannot name
    are arguments: `encoder` for messages and `key_encoder` for keys (default: the former),
    `partitioner`, and for `producer.type=async` `event_handler` and `callback_handler`.

    The constructor connects: UnreachableError if there is no broker. UsageError if a setting is
    wrong.
    """

    def __init__(
        self,
        config: Mapping[str, object] | ProducerConfig,
        **parts: Unpack[ProducerParts],
    ) -> None:
        check_parts(parts)
        self._client = ProducerClient(config, parts)
        self._is_async = self._client.config.is_async
        # The way of most messages: no hook, and space in the queue.
        self._is_plain = self._is_async and self._client.hooks is None
        self._enqueue: Callable[[Delivery], bool] = self._client.core.enqueue
        try:
            self._client.loop.run(self._client.core.start)
        except BaseException:
            self._end()
            raise

    @overload
    def send(self, item: KeyedMessage) -> Delivery: ...

    @overload
    def send(self, item: ProducerData | Sequence[Sendable]) -> list[Delivery]: ...

    def send(self, item: Sendable | Sequence[Sendable]) -> Delivery | list[Delivery]:
        """Send a message, a ProducerData, or a list of them; return a Delivery for each message.

        sync: everything is written when it returns; the first error is raised. async:
        QueueFullError if the queue has no space within `queue.enqueue.timeout.ms` (0: at once, -1:
        wait without a limit); what comes before it is queued.
        """
        client = self._client
        if isinstance(item, KeyedMessage):
            delivery = Delivery(item, client)
            if self._is_plain and client.is_open and self._enqueue(delivery):
                return delivery
            if not self._is_async:
                client.check_open()
                client.loop.run_here(client.core.send_one, delivery)
                return raise_first_error([delivery])[0]
            return self._send([delivery])[0]
        if isinstance(item, ProducerData):
            return self._send(client.deliveries(item))
        return self._send(client.all_deliveries(item))

    def flush(self, timeout_s: float | None = None) -> None:
        """Send what is queued, without waiting for full batches; return when it is done.

        TimedOutError after `timeout_s` seconds.
        """
        self._client.check_open()
        self._client.loop.run(self._client.core.flush, timeout_s=timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is queued, then close handlers and connections; does nothing if closed.

        After `timeout_s` seconds, or at an exception such as Ctrl-C, it ends at once; messages that
        were not sent fail, and their number is logged.
        """
        if not self._client.is_open:
            return
        self._client.is_open = False
        try:
            self._client.loop.run(self._client.core.close, timeout_s=timeout_s)
        except TimedOutError:
            # `end` reports the messages.
            pass
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None and client.is_open:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)

    def _send(self, deliveries: list[Delivery]) -> list[Delivery]:
        self._client.check_open()
        if self._is_async:
            for delivery in deliveries:
                for timeout_ms in self._client.enqueue(delivery):
                    self._client.loop.run(self._client.space, timeout_ms)
            return deliveries
        self._client.loop.run_here(self._client.core.send_now, deliveries)
        return raise_first_error(deliveries)

    def _end(self) -> None:
        self._client.is_open = False
        self._client.end()


def raise_first_error(deliveries: list[Delivery]) -> list[Delivery]:
    """Return `deliveries`, which are done, if none has failed."""
    for delivery in deliveries:
        error = delivery.error()
        if error is not None:
            raise error
    return deliveries


def _checked(item: object) -> KeyedMessage:
    if not isinstance(item, KeyedMessage):
        raise _not_sendable(item)
    return item


def _not_sendable(item: object) -> UsageError:
    return UsageError(
        f"{type(item).__name__} cannot be sent", hint="send a KeyedMessage or a ProducerData"
    )
