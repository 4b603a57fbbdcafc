"""The producer on the wire of Kafka 0.8 and later: messages to batches, batches to leaders.

Messages are grouped by topic and partition and encoded in bulk. The batches of a topic are written
by `kctl.client.producer`, which finds leaders, retries and numbers batches; while it waits for
acknowledgements, further messages gather, and become the next batches. A batch that is too large
for its topic is split, and its parts follow what was written meanwhile.

Messages without a key: with today's settings they stay on one partition for a batch (KIP-480), with
0.8's on one for `topic.metadata.refresh.interval.ms`, and with 0.7's each has a random one.

Kafka: kafka.producer.async.DefaultEventHandler of 1.1.1;
org.apache.kafka.clients.producer.internals.RecordAccumulator
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from kctl.client.producer import (
    BATCH_BYTES_MAX,
    Outcome,
    PartitionBatch,
    PostedRecord,
    Producer,
    wait_for_topic,
)
from kctl.client.retry import RetryPolicy
from kctl.client.router import Router
from kctl.client.security import ClientSecurity
from kctl.client.single_record import Written
from kctl.errors import KctlError, UnsupportedVersionError, UsageError
from kctl.kafka.encoders import DefaultEncoder, Encoder
from kctl.kafka.messages import AnyPartition, Delivery, KeyedMessage, Shipment
from kctl.kafka.old_names import Age
from kctl.kafka.partitioners import Partitioner
from kctl.kafka.producer_config import ProducerConfig
from kctl.kafka.producer_core import Settlement
from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.builder import RecordBatchBuilder
from kctl.runtime.future import Future, gather
from kctl.runtime.runtime import Runtime

# Messages that are taken from the queue at once: a few batches of small ones.
TAKE_MAX = 20_000
# Errors that smaller batches may not meet.
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# An upper bound of what a record without headers needs besides key and value.
_RECORD_OVERHEAD_BYTES = 40


class _Encoded(NamedTuple):
    item: Delivery
    key: bytes | None
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """Return an upper bound of the record's size."""
        size = len(self.key or b"") + len(self.value or b"") + _RECORD_OVERHEAD_BYTES
        for name, content in self.item.message.headers:
            size += len(name) * 4 + len(content or b"") + 10
        return size


@dataclass(slots=True)
class _Group:
    """Messages of one partition that fit into one batch."""

    partition: int
    messages: list[_Encoded]
    bytes: int = 0

    def halves(self) -> "list[_Group]":
        """Return two smaller groups, for a topic that takes only smaller batches (KIP-126)."""
        middle = len(self.messages) // 2
        parts = self.messages[:middle], self.messages[middle:]
        return [_Group(self.partition, part) for part in parts]


class ProducerWireToday:
    """Sends messages to a cluster of Kafka 0.8 or later."""

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        settlement: Settlement,
        bootstrap_servers: Sequence[tuple[str, int]],
        *,
        encoder: Encoder,
        key_encoder: Encoder,
        partitioner: Partitioner,
    ) -> None:
        self.take_max = TAKE_MAX
        self.config = config
        self.settlement = settlement
        self.encoder = encoder
        self.key_encoder = key_encoder
        self.partitioner = partitioner
        self.router = Router(
            runtime,
            bootstrap_servers,
            client_id=config.client_id,
            timeout_ms=config.request_timeout_ms,
            retry=RetryPolicy(backoff_ms=config.backoff_ms),
            security=ClientSecurity.of(config.settings.security),
        )
        self._topics: dict[str, _Topic] = {}

    async def open(self) -> None:
        """Connect to a broker: a wrong address is found at once."""
        await self.router.refresh([])

    async def send(self, items: Sequence[Delivery]) -> None:
        """Write `items`; each then has its outcome."""
        by_topic: dict[str, list[Delivery]] = {}
        for item in items:
            topic = item.message.topic
            group = by_topic.get(topic)
            if group is None:
                group = by_topic[topic] = []
            group.append(item)
        topics = [self._topic(name).send(group) for name, group in by_topic.items()]
        if len(topics) == 1:
            # The common case needs no tasks.
            await topics[0]
        else:
            await gather(self.router.runtime.scheduler, topics)

    def send_one(self, item: Delivery) -> Future[None] | None:
        """Write `item`, if no other message of its topic is on its way; None: use `send`."""
        topic = self._topics.get(item.message.topic)
        return None if topic is None else topic.send_one(item)

    async def close(self) -> None:
        """Close all connections."""
        self.router.close()

    def _topic(self, name: str) -> "_Topic":
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic(self, name)
        return topic


class _Topic:
    """Writes the messages of one topic, in the order in which they come."""

    def __init__(self, wire: ProducerWireToday, name: str) -> None:
        self._wire = wire
        self._name = name
        self._config = wire.config
        self._metadata_ms: int = wire.config.metadata_ms
        self._bytes_max: int = wire.config.message_bytes_max
        self._is_today = wire.config.age is Age.TODAY
        self._runtime = wire.router.runtime
        self._producer: Producer | None = None
        self._partition_count = 0
        # When the number of partitions was read, in monotonic milliseconds.
        self._read_ms = 0
        # Where messages without a key go.
        self._current = 0
        self._waiting: list[Delivery] = []
        self._senders: list[Future[None]] = []
        self._is_writing = False

    async def send(self, items: list[Delivery]) -> None:
        """Write `items` together with those of other callers."""
        self._waiting += items
        done: Future[None] = self._runtime.scheduler.future()
        self._senders.append(done)
        if not self._is_writing:
            self._is_writing = True
            self._runtime.scheduler.spawn(self._write_waiting(), f"writer of {self._name}")
        await done

    def send_one(self, item: Delivery) -> Future[None] | None:
        """Write `item` by one request without tasks; None if that cannot be done at once.

        What does not go as expected is left to the general way, under the same number.
        """
        producer, message = self._producer, item.message
        if producer is None or self._is_writing or self._is_outdated():
            return None
        if message.headers or message.timestamp_ms is not None:
            return None
        done: Future[None] = self._runtime.scheduler.future()
        groups = self._grouped(self._checked([item]))
        if not groups:
            done.set_result(None)
            return done
        group = groups[0]
        _, key, value = group.messages[0]
        now_ms = self._runtime.clock.wall_ms()
        posted = producer.post_one(group.partition, now_ms, key, value)
        self._is_writing = True
        if posted is None:
            self._write_slowly(producer, done, group, None)
        else:
            answered = partial(self._answered, producer, done, group, posted)
            posted.outcome.add_done_callback(answered)
        return done

    def _answered(
        self,
        producer: Producer,
        done: Future[None],
        group: _Group,
        posted: PostedRecord,
        outcome: Future[Any],
    ) -> None:
        if self._waiting or not posted.is_written:
            self._write_slowly(producer, done, group, posted)
            return
        self._settle(outcome.result(), group, posted.timestamp_ms)
        self._is_writing = False
        done.set_result(None)

    def _write_slowly(
        self, producer: Producer, done: Future[None], group: _Group, posted: PostedRecord | None
    ) -> None:
        writing = self._write_one(producer, done, group, posted)
        self._runtime.scheduler.spawn(writing, f"writer of {self._name}")

    async def _write_one(
        self, producer: Producer, done: Future[None], group: _Group, posted: PostedRecord | None
    ) -> None:
        """Write the message of `group` in the general way, then those that came meanwhile."""
        try:
            if posted is None:
                await self._write_groups(producer, [group])
            elif posted.is_written:
                self._settle(posted.outcome.result(), group, posted.timestamp_ms)
            else:
                batch = await producer.write_again(posted)
                self._conclude(batch, group, posted.timestamp_ms)
        except Exception as error:  # noqa: BLE001 - the message gets it; the next may pass
            self._fail([it.item for it in group.messages], error)
        done.set_result(None)
        await self._write_waiting()

    async def _write_waiting(self) -> None:
        while self._waiting:
            items, self._waiting = self._waiting, []
            senders, self._senders = self._senders, []
            try:
                await self._write(items)
            except Exception as error:  # noqa: BLE001 - the messages get it; the next may pass
                self._fail(items, error)
            for done in senders:
                done.set_result(None)
        self._is_writing = False

    async def _write(self, items: list[Delivery]) -> None:
        producer = await self._ready()
        groups = self._grouped(self._checked(items))
        while groups:
            groups = await self._write_groups(producer, groups)

    async def _write_groups(self, producer: Producer, groups: list[_Group]) -> list[_Group]:
        """Write a batch for each group; return the halves of those that were too large."""
        now_ms = self._runtime.clock.wall_ms()
        batches: list[tuple[PartitionBatch, _Group]] = []
        for group in groups:
            batch = producer.new_batch(group.partition)
            _fill(batch, group.messages, now_ms)
            batches.append((batch, group))
        await producer.write([batch for batch, _ in batches])
        return [part for batch, group in batches for part in self._conclude(batch, group, now_ms)]

    def _conclude(self, batch: PartitionBatch, group: _Group, now_ms: int) -> list[_Group]:
        """Finish the messages of a batch; return its halves if it was too large."""
        if batch.outcome is Outcome.WRITTEN:
            self._settle(batch, group, now_ms)
        elif _is_too_large(batch.error) and len(group.messages) > 1:
            return group.halves()
        else:
            error = batch.error or KctlError("not written")
            self._fail([it.item for it in group.messages], error)
        return []

    def _settle(self, batch: PartitionBatch | Written, group: _Group, now_ms: int) -> None:
        is_append_time = batch.log_append_time_ms >= 0
        shipment = Shipment(
            self._name,
            group.partition,
            base_offset=batch.base_offset,
            timestamp_ms=batch.log_append_time_ms if is_append_time else now_ms,
            is_append_time=is_append_time,
        )
        self._wire.settlement.settle([it.item for it in group.messages], shipment)

    def _fail(self, items: Sequence[Delivery], error: BaseException) -> None:
        self._wire.settlement.fail(items, error, logs=self._config.is_async)

    # Metadata

    def _is_outdated(self) -> bool:
        """Return whether the number of partitions was read long ago."""
        return 0 <= self._metadata_ms <= self._runtime.clock.monotonic_ms() - self._read_ms

    async def _ready(self) -> Producer:
        """Return the producer of the topic, which is created if the brokers do that."""
        now_ms = self._runtime.clock.monotonic_ms()
        if self._producer is not None and not self._is_outdated():
            return self._producer
        if self._producer is None:
            await wait_for_topic(self._wire.router, self._name)
            config = self._config
            producer = Producer(
                self._wire.router,
                self._name,
                acks=config.acks,
                compression_type=config.compression_of(self._name),
                timeout_ms=config.delivery_timeout_ms,
                is_idempotent=config.is_idempotent,
            )
            await producer.open()
            self._producer = producer
        else:
            await self._wire.router.refresh([self._name])
        self._partition_count = len(self._wire.router.view.partitions_of(self._name))
        self._read_ms = now_ms
        self._current = self._runtime.entropy.random_below(max(self._partition_count, 1))
        return self._producer

    # Encoding

    def _checked(self, items: list[Delivery]) -> list[_Encoded]:
        """Return the items that can be sent, encoded; fail the others."""
        encode, encode_key = self._wire.encoder.to_bytes, self._wire.key_encoder.to_bytes
        takes_bytes = type(self._wire.encoder) is DefaultEncoder
        bytes_max = self._bytes_max
        good: list[_Encoded] = []
        for item in items:
            message = item.message
            value, key = message.message, message.key
            try:
                if not (takes_bytes and type(value) is bytes):
                    value = encode(value)
                if key is not None:
                    key = encode_key(key)
                size = len(value or b"") + len(key or b"")
            except Exception as error:  # noqa: BLE001 - of an encoder: the next message may pass
                self._fail([item], error)
                continue
            if size > bytes_max:
                name = self._config.settings.shown("message_bytes_max")
                self._fail([item], UsageError(f"a message of {size} bytes; {name} is {bytes_max}"))
            else:
                good.append(_Encoded(item, key, value))
        return good

    def _grouped(self, encoded: list[_Encoded]) -> list[_Group]:
        """Return the groups that become batches, in the order in which they are written."""
        groups: list[_Group] = []
        is_open: dict[int, _Group] = {}
        is_today = self._is_today
        for entry in encoded:
            message = entry.item.message
            is_free = is_today and message.choice is None and message.partition is None
            try:
                number = self._current if is_free else self._partition_of(message)
            except Exception as error:  # noqa: BLE001 - of a partitioner: the next may pass
                self._fail([entry.item], error)
                continue
            size = entry.size_bytes
            group = is_open.get(number)
            if group is not None and group.bytes + size > BATCH_BYTES_MAX:
                if is_free:
                    self._turn()
                    number = self._current
                group = None
            if group is None:
                group = is_open[number] = _Group(number, [])
                groups.append(group)
            group.messages.append(entry)
            group.bytes += size
        if is_today:
            self._turn()
        return groups

    def _turn(self) -> None:
        self._current = (self._current + 1) % max(self._partition_count, 1)

    def _partition_of(self, message: KeyedMessage) -> int:
        count = self._partition_count
        if message.partition is not None:
            number = message.partition
        elif (choice := message.choice) is None:
            if self._config.age is Age.KAFKA_08:
                return self._current
            return self._runtime.entropy.random_below(count)
        elif isinstance(choice, AnyPartition):
            return choice % count
        else:
            number = self._wire.partitioner.partition(choice, count)
        if not 0 <= number < count:
            raise UsageError(f"partition {number} of {self._name}, which has {count}")
        return number


def _is_too_large(error: KctlError | None) -> bool:
    return isinstance(error, ApiError) and error.code in _TOO_LARGE


def _fill(batch: PartitionBatch, group: list[_Encoded], now_ms: int) -> None:
    """Add the messages of `group`, in bulk if they have neither headers nor times."""
    builder = batch.builder
    is_plain = all(
        item.message.timestamp_ms is None and not item.message.headers for item, _, _ in group
    )
    if is_plain and isinstance(builder, RecordBatchBuilder):
        if all(key is None for _, key, _ in group):
            builder.append_values(now_ms, [value for _, _, value in group])
        else:
            builder.append_pairs(now_ms, [(key, value) for _, key, value in group])
        return
    for item, key, value in group:
        message = item.message
        if message.headers and not isinstance(builder, RecordBatchBuilder):
            raise UnsupportedVersionError(
                "This broker is older than Kafka 0.11: it does not support record headers"
            )
        stamp_ms = now_ms if message.timestamp_ms is None else message.timestamp_ms
        builder.append(timestamp=stamp_ms, key=key, value=value, headers=message.headers)
