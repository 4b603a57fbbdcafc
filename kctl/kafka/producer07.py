"""The producer on the wire of Kafka 0.7: messages to sets, sets to brokers; nothing is answered.

Which partition: with ZooKeeper, the partitioner's index into the sorted list of (broker, number),
and without a key a random one for each message or ProducerData. With `broker.list` a random broker,
which chooses a partition itself.

Which requests: a synchronous producer sends PRODUCE for one ProducerData, and MULTIPRODUCE for
several to one broker; each ProducerData is a message set of its own. An asynchronous one groups a
batch by topic and partition, and always sends MULTIPRODUCE. A set with a codec is one compressed
message; `compressed.topics` counts for an asynchronous producer only, as in 0.7.

When a broker cannot be reached, the brokers are read from ZooKeeper again, and partitions
chosen again, `zk.read.num.retries` times; with a list they are sent again `num.retries`
times (asynchronous only). Then the messages fail.

Kafka 0.7: kafka.producer.{Producer, ProducerPool}, kafka.producer.async.DefaultEventHandler
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from kctl.errors import UnreachableError, UsageError
from kctl.kafka.brokers07 import Directory
from kctl.kafka.connection07 import Pool07
from kctl.kafka.encoders import Encoder
from kctl.kafka.messages import AnyPartition, Delivery, Shipment
from kctl.kafka.partitioners import Partitioner
from kctl.kafka.producer_config import ProducerConfig
from kctl.kafka.producer_core import Settlement
from kctl.protocol.kafka07 import (
    ANY_PARTITION,
    PARTS_MAX,
    MultiProduceRequest,
    ProduceRequest,
    encode_request,
)
from kctl.records.compression import GZIP, NONE, SNAPPY
from kctl.records.message07 import message_set
from kctl.runtime.runtime import Runtime
from kctl.store.consumer_znodes import BrokerPartition

CODECS_07 = (NONE, GZIP, SNAPPY)


class _Encoded(NamedTuple):
    item: Delivery
    payload: bytes


class _Set(NamedTuple):
    """Messages of one partition that become one message set."""

    topic: str
    place: BrokerPartition
    messages: list[_Encoded]


class ProducerWire07:
    """Sends messages to brokers of Kafka 0.7."""

    def __init__(
        self,
        runtime: Runtime,
        config: ProducerConfig,
        settlement: Settlement,
        directory: Directory,
        pool: Pool07,
        *,
        encoder: Encoder,
        partitioner: Partitioner,
    ) -> None:
        if config.codec not in CODECS_07:
            raise UsageError("Kafka 0.7 knows the codecs none, gzip and snappy")
        self.take_max = config.batch_count
        self._runtime = runtime
        self._config = config
        self._settlement = settlement
        self._directory = directory
        self._pool = pool
        self._encoder = encoder
        self._partitioner = partitioner

    async def open(self) -> None:
        """Read where the brokers are; one is connected when it is first needed."""
        await self._directory.open()

    def send_one(self, _item: Delivery) -> None:
        """Leave every message to `send`."""

    async def send(self, items: Sequence[Delivery]) -> None:
        """Send `items`; each is then done, or has failed."""
        left = self._encoded(items)
        has_list = self._config.zookeeper is None
        retries = self._config.zookeeper_retries
        if has_list:
            retries = self._config.retries if self._config.is_async else 0
        for attempt in range(retries + 1):
            is_last = attempt == retries
            left = await self._try(left, is_fresh=attempt > 0 and not has_list, is_last=is_last)
            if not left:
                break

    async def close(self) -> None:
        """Close the connections once everything is sent."""
        self._pool.close()
        await self._directory.close()

    async def _try(
        self, encoded: list[_Encoded], *, is_fresh: bool, is_last: bool
    ) -> list[_Encoded]:
        """Send what can be sent; return what another try may send."""
        again: list[_Encoded] = []
        try:
            sets = await self._sets(encoded, is_fresh=is_fresh)
        except UnreachableError as error:
            if not is_last:
                return encoded
            self._fail([it.item for it in encoded], error)
            return []
        by_broker: dict[int, list[_Set]] = {}
        for it in sets:
            by_broker.setdefault(it.place.broker_id, []).append(it)
        for broker_id, parts in by_broker.items():
            for start in range(0, len(parts), PARTS_MAX):
                chunk = parts[start : start + PARTS_MAX]
                try:
                    await self._request(broker_id, chunk)
                except UnreachableError as error:
                    members = [encoded for part in chunk for encoded in part.messages]
                    if is_last:
                        self._fail([it.item for it in members], error)
                    else:
                        again += members
        return again

    async def _request(self, broker_id: int, sets: Sequence[_Set]) -> None:
        broker = self._directory.brokers.get(broker_id)
        if broker is None:
            raise UnreachableError(f"broker {broker_id} is gone")
        requests = [
            ProduceRequest(
                it.topic,
                it.place.partition,
                message_set([encoded.payload for encoded in it.messages], self._codec(it.topic)),
            )
            for it in sets
        ]
        is_single = len(requests) == 1 and not self._config.is_async
        frame = encode_request(requests[0] if is_single else MultiProduceRequest(requests))
        await self._pool.send(broker, frame)
        for it in sets:
            shipment = Shipment(it.topic, it.place.partition)
            self._settlement.settle([encoded.item for encoded in it.messages], shipment)

    def _codec(self, topic: str) -> int:
        if self._config.is_async:
            return self._config.compression_of(topic)
        return int(self._config.codec)

    def _encoded(self, items: Sequence[Delivery]) -> list[_Encoded]:
        found = []
        bytes_max = self._config.message_bytes_max
        for item in items:
            try:
                if item.message.headers:
                    raise UsageError("Kafka 0.7 stores no headers")
                payload = self._encoder.to_bytes(item.message.message)
                if payload is None:
                    raise UsageError("Kafka 0.7 stores no null; send empty bytes")
            except Exception as error:  # noqa: BLE001 - of an encoder: the next message may pass
                self._fail([item], error)
                continue
            if len(payload) > bytes_max:
                name = self._config.settings.shown("message_bytes_max")
                error_07 = UsageError(f"a message of {len(payload)} bytes; {name} is {bytes_max}")
                self._fail([item], error_07)
            else:
                found.append(_Encoded(item, payload))
        return found

    async def _sets(self, encoded: list[_Encoded], *, is_fresh: bool) -> list[_Set]:
        """Return the message sets, in the order of their first messages."""
        topics = dict.fromkeys(it.item.topic for it in encoded)
        partitions = {
            topic: await self._directory.partitions(topic, is_fresh=is_fresh) for topic in topics
        }
        sets: list[_Set] = []
        is_open: dict[tuple[str, BrokerPartition], _Set] = {}
        last: Any = None
        for it in encoded:
            message = it.item.message
            try:
                place = self._place(it.item, partitions[message.topic])
            except Exception as error:  # noqa: BLE001 - of a partitioner: the next may pass
                self._fail([it.item], error)
                continue
            key = (message.topic, place)
            group = is_open.get(key)
            if group is None or not (self._config.is_async or _belong_together(last, message)):
                group = is_open[key] = _Set(message.topic, place, [])
                sets.append(group)
            last = message
            group.messages.append(it)
        return sets

    def _place(self, item: Delivery, partitions: list[BrokerPartition]) -> BrokerPartition:
        message = item.message
        choice = message.choice
        if not partitions:
            return self._listed_place(message.partition, choice)
        count = len(partitions)
        if message.partition is not None:
            index = message.partition
        elif choice is None:
            index = self._runtime.entropy.random_below(count)
        elif isinstance(choice, AnyPartition):
            index = choice % count
        else:
            index = self._partitioner.partition(choice, count)
        if not 0 <= index < count:
            raise UsageError(f"partition {index} of {message.topic}, which has {count}")
        return partitions[index]

    def _listed_place(self, number: int | None, choice: object) -> BrokerPartition:
        """Return a random broker, the same for all messages of a ProducerData."""
        ids = sorted(self._directory.brokers)
        if isinstance(choice, AnyPartition):
            broker_id = ids[choice % len(ids)]
        else:
            broker_id = ids[self._runtime.entropy.random_below(len(ids))]
        return BrokerPartition(broker_id, ANY_PARTITION if number is None else number)

    def _fail(self, items: Sequence[Delivery], error: BaseException) -> None:
        self._settlement.fail(items, error, logs=self._config.is_async)


def _belong_together(last: Any, message: Any) -> bool:
    """Return whether two messages are of one ProducerData."""
    choice = message.choice
    return last is not None and choice is not None and last.choice is choice
