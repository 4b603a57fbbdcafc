"""What a producer takes and returns: KeyedMessage, ProducerData, Delivery, RecordMetadata. Pure.

Kafka: kafka.producer.{KeyedMessage, ProducerData} of 0.8 and 0.7;
org.apache.kafka.clients.producer.RecordMetadata
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol

from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass

Headers = Sequence[tuple[str, bytes | None]]


class AnyPartition(int):
    """A random number in place of a key: messages that share it share a partition."""


@dataclass(slots=True)
class KeyedMessage:
    """One message for `topic`, before it is encoded.

    `partition_key`, else `key`, chooses the partition, unless `partition` does. Kafka 0.7 stores no
    keys, headers and timestamps: there a key only chooses, and headers are refused.
    """

    topic: str
    message: Any
    key: Any = None
    partition_key: Any = None
    partition: int | None = None
    headers: Headers = ()
    # Milliseconds since 1970; None: when it is sent.
    timestamp_ms: int | None = None

    @property
    def choice(self) -> Any:
        """Return what chooses the partition; None if nothing does."""
        return self.key if self.partition_key is None else self.partition_key


class ProducerData:
    """Messages for one partition of `topic`, as 0.7's producer takes them.

    `data` is one message or a list of them. The key chooses the partition; without a key it is a
    random one, the same for all messages.
    """

    __slots__ = ("data", "key", "topic")

    def __init__(self, topic: str, data: Any, key: Any = None) -> None:
        self.topic = topic
        self.data: list[Any] = list(data) if isinstance(data, list | tuple) else [data]
        self.key = key


class RecordMetadata(NamedTuple):
    """Where a message was written."""

    topic: str
    # -1: the broker chose it (0.7, `broker.list`).
    partition: int
    # -1: unknown, since nothing is acknowledged (0.7's wire, acks=0), or an earlier try wrote it.
    offset: int
    # Milliseconds: the broker's time if the topic has LogAppendTime, else when it was sent; -1:
    # there is none (0.7).
    timestamp_ms: int


class Shipment:
    """What became of messages that were sent together, in order."""

    __slots__ = ("base_offset", "error", "is_append_time", "partition", "timestamp_ms", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        *,
        base_offset: int = -1,
        timestamp_ms: int = -1,
        is_append_time: bool = False,
        error: KctlError | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = base_offset
        # The broker's time (LogAppendTime), or that of messages which bring none themselves.
        self.timestamp_ms = timestamp_ms
        self.is_append_time = is_append_time
        self.error = error


class _Waiter(Protocol):
    """How a Delivery waits: the producer that sends it."""

    def wait_for(self, delivery: "Delivery", timeout_s: float | None) -> None: ...

    def awaiting(self, delivery: "Delivery") -> Generator[Any, None, None]: ...


class Delivery:
    """A message on its way: what `send` returns, and what handlers get.

    Creating one costs a fraction of a microsecond, and no lock: it refers to what became of the
    messages that it was sent with.
    """

    __slots__ = ("_client", "_index", "_shipment", "message")

    def __init__(self, message: KeyedMessage, client: _Waiter | None = None) -> None:
        self.message = message
        self._client = client
        self._shipment: Shipment | None = None
        self._index = 0

    @property
    def topic(self) -> str:
        """Return the topic of the message."""
        return self.message.topic

    @property
    def is_done(self) -> bool:
        """Return whether the message was written or has failed."""
        return self._shipment is not None

    def error(self) -> KctlError | None:
        """Return why the message was not written; None if it was, or is on its way."""
        return None if self._shipment is None else self._shipment.error

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until the message is written and return where; raise the error if it was not.

        TimedOutError after `timeout_s` seconds; the message is still on its way.
        """
        if self._shipment is None and self._client is not None:
            self._client.wait_for(self, timeout_s)
        return self._outcome()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Do the same in a coroutine of asyncio: `await delivery`."""
        if self._shipment is None and self._client is not None:
            yield from self._client.awaiting(self)
        return self._outcome()

    def copy(self, message: KeyedMessage) -> "Delivery":
        """Return a further delivery, for hooks that replace or split messages."""
        return Delivery(message, self._client)

    def settle(self, shipment: Shipment, index: int) -> None:
        """Finish as message `index` of `shipment`; nothing if it is done already."""
        if self._shipment is None:
            self._index = index
            self._shipment = shipment

    def _outcome(self) -> RecordMetadata:
        shipment = self._shipment
        if shipment is None:
            raise RuntimeError("result() of a delivery that is not done")
        if shipment.error is not None:
            raise shipment.error
        offset = shipment.base_offset
        if offset >= 0:
            offset += self._index
        stamp_ms = shipment.timestamp_ms
        own_ms = self.message.timestamp_ms
        if own_ms is not None and stamp_ms >= 0 and not shipment.is_append_time:
            stamp_ms = own_ms
        return RecordMetadata(shipment.topic, shipment.partition, offset, stamp_ms)
