"""Encoders: from what an application sends to the bytes of a message. Pure.

Kafka: kafka.serializer.{Encoder, DefaultEncoder, StringEncoder} of 0.7 to 1.1
"""

from typing import Any, Protocol

from kctl.errors import UsageError


class Encoder(Protocol):
    """Turns the messages, or the keys, of an application into bytes."""

    def to_bytes(self, value: Any) -> bytes | None:
        """Return the bytes of `value`; None is a null, which 0.7's wire refuses. An exception fails
        this message only."""
        ...


class DefaultEncoder:
    """Takes bytes, or None, as they are."""

    def to_bytes(self, value: Any) -> bytes | None:
        """Return `value`; UsageError if it is neither bytes nor None."""
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise UsageError(
            f"a message of type {type(value).__name__} is not bytes",
            hint="pass encoder=StringEncoder(), or an encoder of your own",
        )


class StringEncoder:
    """Encodes text."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def to_bytes(self, value: Any) -> bytes | None:
        """Return the text as bytes; None stays None."""
        return None if value is None else str(value).encode(self._encoding)


ENCODERS = {
    "kafka.serializer.DefaultEncoder": DefaultEncoder(),
    "kafka.serializer.StringEncoder": StringEncoder(),
    "org.apache.kafka.common.serialization.ByteArraySerializer": DefaultEncoder(),
    "org.apache.kafka.common.serialization.StringSerializer": StringEncoder(),
}
