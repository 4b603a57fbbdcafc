"""Partitioners: from a key to a partition, as Kafka's clients of each age choose. Pure.

A key of text, integer or bytes has the hash that it has in Java. Other types have no hash that
other clients would agree on, and are refused: their application passes a partitioner of its own.

Kafka: kafka.producer.{DefaultPartitioner, ByteArrayPartitioner} of 1.1.1;
org.apache.kafka.clients.producer.internals.DefaultPartitioner
"""

from typing import Any, Protocol

from kctl.client.partitioner import partition_for_key
from kctl.errors import UsageError
from kctl.java_hash import java_hash

_INT32_MIN = -(1 << 31)
_INT32 = range(_INT32_MIN, 1 << 31)
_INT64 = range(-(1 << 63), 1 << 63)
_U32 = 0xFFFFFFFF


class Partitioner(Protocol):
    """Chooses partitions."""

    def partition(self, key: Any, partition_count: int) -> int:
        """Return an index from 0 to `partition_count` - 1; any other fails the message.

        On 0.7's wire it is an index into the list of (broker, partition), sorted.
        """
        ...


def hash_code(key: object) -> int:
    """Return Java's hashCode of a String, Integer, Long, Boolean, or of a byte[] by its content.

    >>> hash_code("orders"), hash_code(-7), hash_code(1 << 32), hash_code(b"orders")
    (-1008770331, -7, 1, -121266650)
    """
    if isinstance(key, str):
        return java_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if key in _INT32:
            return key
        if key in _INT64:
            return _signed((key ^ key >> 32) & _U32)
    if isinstance(key, bytes | bytearray):
        return _hash_of_bytes(key)
    raise UsageError(
        f"a key of type {type(key).__name__} has no hash that Kafka's clients agree on",
        hint="pass a partitioner",
    )


class DefaultPartitioner:
    """`abs(hashCode) % count`: the default of 0.7 to 1.1.

    Unlike 0.7's, it does not fail for the one hash in 2**32 that has no absolute value: that is 0,
    as in 1.1. A key of bytes counts by its content, as in ByteArrayPartitioner.
    """

    def partition(self, key: Any, partition_count: int) -> int:
        """Return the index for `key`."""
        return _absolute(hash_code(key)) % partition_count


class ByteArrayPartitioner:
    """`abs(Arrays.hashCode(key)) % count`, for keys of bytes."""

    def partition(self, key: Any, partition_count: int) -> int:
        """Return the index for `key`; UsageError if it is not bytes."""
        if not isinstance(key, bytes | bytearray):
            raise UsageError(f"a key of type {type(key).__name__} is not bytes")
        return _absolute(_hash_of_bytes(key)) % partition_count


class Murmur2Partitioner:
    """The default of today's clients: `murmur2(key) % count`, for keys of bytes or text."""

    def partition(self, key: Any, partition_count: int) -> int:
        """Return the index for `key`."""
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes | bytearray):
            raise UsageError(f"a key of type {type(key).__name__} is neither bytes nor text")
        return partition_for_key(bytes(key), partition_count)


PARTITIONERS = {
    "kafka.producer.DefaultPartitioner": DefaultPartitioner(),
    "kafka.producer.ByteArrayPartitioner": ByteArrayPartitioner(),
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": Murmur2Partitioner(),
}


def _hash_of_bytes(key: bytes | bytearray) -> int:
    code = 1
    for byte in key:
        code = (31 * code + byte - ((byte & 0x80) << 1)) & _U32
    return _signed(code)


def _signed(code: int) -> int:
    return code - (1 << 32) if code >> 31 else code


def _absolute(code: int) -> int:
    return 0 if code == _INT32_MIN else abs(code)
