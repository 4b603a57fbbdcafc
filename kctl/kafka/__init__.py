"""Reading and writing Kafka of any age from Python: blocking here, for asyncio in `kctl.kafka.aio`.

    from kctl.kafka import KeyedMessage, Producer

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        producer.send(KeyedMessage("orders", b"tea"))

Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.kafka.errors import ConsumerTimeoutError, QueueFullError

__all__ = ["ConsumerTimeoutError", "QueueFullError"]

# Name -> its module.
_HOMES = {
    "ConsumerTimeoutError": "kctl.kafka.errors",
    "QueueFullError": "kctl.kafka.errors",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
