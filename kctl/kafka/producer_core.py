"""ProducerCore: what a producer does on its loop, between the callers of `send` and the wire.

A synchronous producer gives messages to the wire at once. An asynchronous one has a queue and a
sender: the sender takes what is due (`send_queue`), shows it to the handlers (`handlers`), and
waits until the batch is dealt with before it takes the next; the queue fills meanwhile.

Invariants: every message that was taken gets one outcome: where it was written, or an error. At the
end the queue is sent before the handlers are closed, and the handlers before the wire.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from kctl.errors import KctlError
from kctl.kafka.encoders import Encoder
from kctl.kafka.handlers import CallbackHandler, EventHandler
from kctl.kafka.messages import Delivery, Shipment
from kctl.kafka.producer_config import ProducerConfig
from kctl.kafka.send_queue import BatchCollector, Offer, SendQueue
from kctl.runtime.future import CancelledError, Future, Task, sleep
from kctl.runtime.runtime import Runtime

# What a queued message counts besides its key and value.
_ITEM_OVERHEAD_BYTES = 100


class ProducerWire(Protocol):
    """One of the two wires, as the core uses it."""

    # The most messages that are worth taking at once.
    take_max: int

    async def open(self) -> None:
        """Connect, as far as that is needed before the first message; raise KctlError."""
        ...

    async def send(self, items: Sequence[Delivery]) -> None:
        """Encode and send `items` and settle each of them. Calls may overlap."""
        ...

    def send_one(self, item: Delivery) -> Future[None] | None:
        """Send and settle `item` if that takes no more than a request; None: use `send`."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Settlement:
    """Finishes deliveries, and wakes those who wait for them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[Delivery, Future[None]] = {}

    def settle(self, items: Sequence[Delivery], shipment: Shipment) -> None:
        """Finish `items`, in the order in which they are in `shipment`."""
        for index, item in enumerate(items):
            item.settle(shipment, index)
        if self._waiting:
            for item in items:
                future = self._waiting.pop(item, None)
                if future is not None:
                    future.set_result(None)

    def fail(self, items: Sequence[Delivery], error: BaseException, *, logs: bool = False) -> None:
        """Finish those of `items` that are not done with `error`."""
        unsent = [item for item in items if not item.is_done]
        if not unsent:
            return
        reason = error if isinstance(error, KctlError) else KctlError(f"{error!r}")
        if logs:
            topics = ", ".join(sorted({item.topic for item in unsent}))
            self._runtime.trace.warning(
                f"messages for {topics} were not written ({len(unsent)}): {reason}"
            )
        self.settle(unsent, Shipment(unsent[0].topic, error=reason))

    async def wait(self, item: Delivery) -> None:
        """Wait until `item` is done."""
        while not item.is_done:
            future = self._waiting.get(item)
            if future is None:
                future = self._waiting[item] = self._runtime.scheduler.future()
            await future


class ProducerCore:
    """The queue, the sender and the handlers of one producer."""

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        wire: ProducerWire,
        settlement: Settlement,
        *,
        encoder: Encoder,
        lock: AbstractContextManager[object],
        callback_handler: CallbackHandler | None = None,
        event_handler: EventHandler | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._wire = wire
        self._settlement = settlement
        self._encoder = encoder
        self._lock = lock
        self._hooks = callback_handler
        self._handler = event_handler or EventHandler()
        self._queue = SendQueue[Delivery](
            count_max=config.queue_count,
            bytes_max=config.queue_bytes,
            batch_count=config.batch_count,
            size_of=_queued_bytes,
        )
        self._collector: BatchCollector[Delivery] | None = None
        self._sender: Task[None] | None = None
        self._wake_up: Future[None] | None = None
        self._space: Future[None] | None = None
        self._flushes: list[Future[None]] = []
        self._is_closing = False
        # The batch that is being dealt with.
        self._batch: Sequence[Delivery] = ()

    # Any thread

    def enqueue(self, item: Delivery) -> bool:
        """Add `item` to the queue; False if it is full."""
        with self._lock:
            offer = self._queue.offer(item)
        if offer is Offer.WAKES:
            self._runtime.scheduler.call_soon_threadsafe(self._wake)
        return offer is not Offer.FULL

    def drop(self, item: Delivery) -> None:
        """Finish `item`, which a hook does not let into the queue."""
        self._settlement.fail([item], KctlError("dropped by the callback handler"))

    # The loop

    async def start(self) -> None:
        """Open the wire and start the sender, if the producer is asynchronous."""
        await self._wire.open()
        if not self._config.is_async:
            return
        config = self._config
        if self._hooks is not None:
            self._hooks.init(config.handler_properties("callback_handler_props"))
        self._handler.init(config.handler_properties("event_handler_props"))
        self._collector = BatchCollector(
            linger_ms=config.linger_ms,
            batch_count=config.batch_count,
            take_max=self._wire.take_max,
            now_ms=self._runtime.clock.monotonic_ms(),
            hook=None if self._hooks is None else self._dequeued,
        )
        self._sender = self._runtime.scheduler.spawn(self._send_all(), "sender of a producer")

    def send_one(self, item: Delivery) -> Awaitable[None]:
        """Send `item` without the queue; await the result, then it is done."""
        return self._wire.send_one(item) or self.send_now([item])

    async def send_now(self, items: Sequence[Delivery]) -> None:
        """Send `items` without the queue, and wait until they are done."""
        try:
            await self._wire.send(items)
        except KctlError as error:
            self._settlement.fail(items, error)

    async def wait_for_space(self) -> None:
        """Wait until messages leave the queue."""
        with self._lock:
            is_empty = not self._queue.count
        if is_empty:
            return
        if self._space is None:
            self._space = self._runtime.scheduler.future()
        await self._space

    async def settled(self, item: Delivery) -> None:
        """Wait until `item` is done."""
        await self._settlement.wait(item)

    async def flush(self) -> None:
        """Send what is queued now, without waiting for full batches; return when it is done."""
        if self._sender is None or self._sender.done:
            return
        done: Future[None] = self._runtime.scheduler.future()
        self._flushes.append(done)
        self._wake()
        await done

    async def close(self) -> None:
        """Send everything, close the handlers and the wire."""
        self._is_closing = True
        try:
            if self._sender is not None:
                self._wake()
                await self._sender
        finally:
            await self._wire.close()

    async def abandon(self) -> None:
        """End at once: close the wire, and fail what was not sent."""
        with self._lock:
            left = self._queue.take(self._queue.count)
        collected = [] if self._collector is None else self._collector.take_all()
        unsent = [*self._batch, *collected, *left]
        self._settlement.fail(unsent, KctlError("the producer was closed"), logs=True)
        if self._sender is not None:
            self._sender.cancel()
        await self._wire.close()
        await sleep(self._runtime.scheduler, 0)

    # The sender

    async def _send_all(self) -> None:
        while True:
            taken, batch = self._next_batch()
            if batch:
                self._batch = batch
                await self._dispatch(batch)
                self._batch = ()
            elif not taken:
                self._finish_flushes()
                if self._is_closing:
                    break
                await self._wait()
        await self._end()

    def _next_batch(self) -> tuple[list[Delivery], list[Delivery]]:
        """Return what was taken from the queue, and the batch to dispatch."""
        collector = self._collector
        assert collector is not None
        now_ms = self._runtime.clock.monotonic_ms()
        is_urgent = self._is_closing or bool(self._flushes)
        with self._lock:
            room = collector.room(self._queue.count, now_ms, is_urgent=is_urgent)
            taken = self._queue.take(room) if room else []
        if taken and self._space is not None:
            space, self._space = self._space, None
            space.set_result(None)
        return taken, collector.collect(taken, now_ms, is_urgent=is_urgent)

    async def _dispatch(self, batch: Sequence[Delivery]) -> None:
        items = batch
        try:
            if self._hooks is not None:
                items = self._hooks.before_sending_data(batch)
            waiting = self._handler.handle(items, self._wire, self._encoder) if items else None
            if isinstance(waiting, Awaitable):
                await waiting
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - of a handler: the next batch may pass
            self._settlement.fail(list(dict.fromkeys((*batch, *items))), error, logs=True)
            return
        # What a handler has dealt with in its own way is done, too.
        handled = [item for item in items if not item.is_done]
        for item in handled:
            self._settlement.settle([item], Shipment(item.topic))
        if items is not batch:
            self._settlement.fail(batch, KctlError("dropped by the callback handler"))

    def _dequeued(self, item: Delivery | None) -> Sequence[Delivery]:
        assert self._hooks is not None
        try:
            items = self._hooks.after_dequeuing_existing_data(item)
        except Exception as error:  # noqa: BLE001 - of a hook: the next message may pass
            if item is None:
                self._runtime.trace.warning(f"a hook for the end of queue.time failed: {error!r}")
            else:
                self._settlement.fail([item], error, logs=True)
            return ()
        if item is not None and not any(it is item for it in items):
            self._settlement.fail([item], KctlError("dropped by the callback handler"))
        return items

    async def _wait(self) -> None:
        """Wait until there is something to look at."""
        assert self._collector is not None
        with self._lock:
            queued = self._queue.count
            due_ms = self._collector.due_ms(queued)
        self._wake_up = self._runtime.scheduler.future()
        timer = None
        if due_ms is not None:
            timer = self._runtime.scheduler.call_at(due_ms, self._wake)
        await self._wake_up
        if timer is not None:
            timer.cancel()

    def _wake(self) -> None:
        if self._wake_up is not None and not self._wake_up.done:
            self._wake_up.set_result(None)

    def _finish_flushes(self) -> None:
        flushes, self._flushes = self._flushes, []
        for done in flushes:
            done.set_result(None)

    async def _end(self) -> None:
        """Send what the handler kept, then close the handlers."""
        trace = self._runtime.trace
        closing: list[Callable[[], None]] = [self._handler.close]
        if self._hooks is not None:
            closing.insert(0, self._hooks.close)
            try:
                last = list(self._hooks.last_batch_before_close())
            except Exception as error:  # noqa: BLE001 - of a hook: the end comes all the same
                trace.warning(f"last_batch_before_close failed: {error!r}")
            else:
                if last:
                    await self._dispatch(last)
        for close in closing:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - of a handler: the end comes all the same
                trace.warning(f"closing a handler failed: {error!r}")


def _queued_bytes(item: Delivery) -> int:
    message = item.message
    size = _ITEM_OVERHEAD_BYTES
    for field in (message.message, message.key):
        if isinstance(field, bytes | str):
            size += len(field)
    return size
