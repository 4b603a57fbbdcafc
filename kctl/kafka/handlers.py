"""Handlers of an asynchronous producer: hooks at the stages of its queue, and what sends batches.

The hooks are called in this order: `init`; for each message `before_enqueue` and `after_enqueue`,
in the thread that calls `send`, then `after_dequeuing_existing_data`; for each batch
`before_sending_data` and the event handler's `handle`; at the end `last_batch_before_close`, a last
`handle`, and `close`. From `after_dequeuing_existing_data` on they run on the producer's own
thread, which sends nothing meanwhile. A hook that raises fails the messages that it was shown; the
producer continues.

Kafka: kafka.producer.async.{CallbackHandler, EventHandler} of 0.7. Unlike there, `close` is called
after the last batch was handled.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from kctl.kafka.encoders import Encoder
from kctl.kafka.messages import Delivery


class CallbackHandler:
    """Watches, changes or drops messages on their way; override what is needed."""

    def init(self, properties: Mapping[str, str]) -> None:
        """Begin, with `callback.handler.props`."""

    def before_enqueue(self, item: Delivery) -> Delivery | None:
        """Return the item to enqueue; None drops it."""
        return item

    def after_enqueue(self, item: Delivery, *, added: bool) -> None:
        """See whether `item` was added: it was not if the queue is full."""

    def after_dequeuing_existing_data(self, item: Delivery | None) -> Sequence[Delivery]:
        """Return the items to collect for `item`: itself, several, or none. None: `queue.time` is
        over."""
        return () if item is None else (item,)

    def before_sending_data(self, items: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the batch to send."""
        return items

    def last_batch_before_close(self) -> Sequence[Delivery]:
        """Return items to send at the end: those that the handler kept."""
        return ()

    def close(self) -> None:
        """End: everything was sent."""


class BatchSender(Protocol):
    """Sends messages, for event handlers."""

    async def send(self, items: Sequence[Delivery]) -> None:
        """Encode and send `items`; each then has its result. Raises nothing for single messages."""
        ...


class EventHandler:
    """What a batch is given to; this one sends it."""

    def init(self, properties: Mapping[str, str]) -> None:
        """Begin, with `event.handler.props`."""

    def handle(
        self,
        items: Sequence[Delivery],
        sender: BatchSender,
        encoder: Encoder,  # noqa: ARG002 - for subclasses
    ) -> Awaitable[None] | None:
        """Send `items`, or do something else with them. It may be a coroutine of kctl's loop.

        `encoder` is the producer's; `sender` encodes with it already. An exception fails the items
        that have no result yet.
        """
        return sender.send(items)

    def close(self) -> None:
        """End: the last batch was handled."""
