"""Reading and writing Kafka of any age from Python: blocking here, for asyncio in `kctl.kafka.aio`.

    from kctl.kafka import KeyedMessage, Producer

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        producer.send(KeyedMessage("orders", b"tea"))

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.kafka.connector import ConsumerConnector, KafkaStream
    from kctl.kafka.connector_config import ConnectorConfig
    from kctl.kafka.consumer import Consumer
    from kctl.kafka.consumer_config import ConsumerConfig
    from kctl.kafka.encoders import DefaultEncoder, Encoder, StringEncoder
    from kctl.kafka.errors import (
        ConsumerTimeoutError,
        MessageTooLargeError,
        QueueFullError,
        RebalanceFailedError,
    )
    from kctl.kafka.handlers import CallbackHandler, EventHandler
    from kctl.kafka.message_set import FetchRequest, MessageAndOffset, MessageSet
    from kctl.kafka.messages import Delivery, KeyedMessage, ProducerData, RecordMetadata
    from kctl.kafka.offsets import OffsetsStorage
    from kctl.kafka.partitioners import (
        ByteArrayPartitioner,
        DefaultPartitioner,
        Murmur2Partitioner,
        Partitioner,
    )
    from kctl.kafka.producer import Producer
    from kctl.kafka.producer_config import ProducerConfig
    from kctl.kafka.simple_consumer import SimpleConsumer
    from kctl.kafka.streams import ConsumedMessage
    from kctl.model import TopicPartition
    from kctl.protocol.kafka07 import EARLIEST_TIME, LATEST_TIME
    from kctl.store.topic_filter import Blacklist, Whitelist

# Name -> its module.
_HOMES = {
    "Blacklist": "kctl.store.topic_filter",
    "ByteArrayPartitioner": "kctl.kafka.partitioners",
    "CallbackHandler": "kctl.kafka.handlers",
    "ConnectorConfig": "kctl.kafka.connector_config",
    "ConsumedMessage": "kctl.kafka.streams",
    "Consumer": "kctl.kafka.consumer",
    "ConsumerConfig": "kctl.kafka.consumer_config",
    "ConsumerConnector": "kctl.kafka.connector",
    "ConsumerTimeoutError": "kctl.kafka.errors",
    "DefaultEncoder": "kctl.kafka.encoders",
    "DefaultPartitioner": "kctl.kafka.partitioners",
    "Delivery": "kctl.kafka.messages",
    "EARLIEST_TIME": "kctl.protocol.kafka07",
    "Encoder": "kctl.kafka.encoders",
    "EventHandler": "kctl.kafka.handlers",
    "FetchRequest": "kctl.kafka.message_set",
    "KafkaStream": "kctl.kafka.connector",
    "KeyedMessage": "kctl.kafka.messages",
    "LATEST_TIME": "kctl.protocol.kafka07",
    "MessageAndOffset": "kctl.kafka.message_set",
    "MessageSet": "kctl.kafka.message_set",
    "MessageTooLargeError": "kctl.kafka.errors",
    "Murmur2Partitioner": "kctl.kafka.partitioners",
    "OffsetsStorage": "kctl.kafka.offsets",
    "Partitioner": "kctl.kafka.partitioners",
    "Producer": "kctl.kafka.producer",
    "ProducerConfig": "kctl.kafka.producer_config",
    "ProducerData": "kctl.kafka.messages",
    "QueueFullError": "kctl.kafka.errors",
    "RebalanceFailedError": "kctl.kafka.errors",
    "RecordMetadata": "kctl.kafka.messages",
    "SimpleConsumer": "kctl.kafka.simple_consumer",
    "StringEncoder": "kctl.kafka.encoders",
    "TopicPartition": "kctl.model",
    "Whitelist": "kctl.store.topic_filter",
}

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "Blacklist",
    "ByteArrayPartitioner",
    "CallbackHandler",
    "ConnectorConfig",
    "ConsumedMessage",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerTimeoutError",
    "DefaultEncoder",
    "DefaultPartitioner",
    "Delivery",
    "Encoder",
    "EventHandler",
    "FetchRequest",
    "KafkaStream",
    "KeyedMessage",
    "MessageAndOffset",
    "MessageSet",
    "MessageTooLargeError",
    "Murmur2Partitioner",
    "OffsetsStorage",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerData",
    "QueueFullError",
    "RebalanceFailedError",
    "RecordMetadata",
    "SimpleConsumer",
    "StringEncoder",
    "TopicPartition",
    "Whitelist",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
