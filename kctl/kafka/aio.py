"""The clients of `kctl.kafka` under the same names, with coroutines for asyncio.

    from kctl.kafka import KeyedMessage
    from kctl.kafka.aio import Producer

    async with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        await producer.send(KeyedMessage("orders", b"tea"))

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.kafka.aio_connector import AioConsumerConnector as ConsumerConnector
    from kctl.kafka.aio_producer import AioProducer as Producer
    from kctl.kafka.consumer import AioConsumer as Consumer
    from kctl.kafka.simple_consumer import AioSimpleConsumer as SimpleConsumer

__all__ = ["Consumer", "ConsumerConnector", "Producer", "SimpleConsumer"]

# Name -> the module and the name there.
_HOMES = {
    "Consumer": ("kctl.kafka.consumer", "AioConsumer"),
    "ConsumerConnector": ("kctl.kafka.aio_connector", "AioConsumerConnector"),
    "Producer": ("kctl.kafka.aio_producer", "AioProducer"),
    "SimpleConsumer": ("kctl.kafka.simple_consumer", "AioSimpleConsumer"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, original = _HOMES[name]
    return getattr(import_module(module), original)
