"""The order in which Scala 2.13's mutable hash maps and sets iterate over their elements.

kafka-dump-log prints group members and a transaction's partitions in that order, so its text can
only be reproduced with it: a table of a power of two, doubled as it fills to three quarters, an
element's place given by its mixed hash code, elements of one place by ascending hash code.

Kafka 2.7: kafka.coordinator.group.GroupMetadata.allMemberMetadata,
kafka.coordinator.transaction.TransactionMetadata.topicPartitions
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from kctl.java_hash import unsigned_java_hash

T = TypeVar("T")

_SMALLEST_TABLE = 16


def in_hash_order(elements: Iterable[T], hash_code: Callable[[T], int]) -> list[T]:
    """Return `elements` in the iteration order of a Scala collection."""
    items = list(elements)
    size = _SMALLEST_TABLE
    while len(items) >= size * 3 // 4:
        size *= 2

    def place(item: T) -> tuple[int, int]:
        code = hash_code(item) & 0xFFFFFFFF
        mixed = code ^ code >> 16
        signed = mixed - 2**32 if mixed >= 2**31 else mixed
        return mixed & size - 1, signed

    return sorted(items, key=place)


def topic_partition_hash(topic: str, partition: int) -> int:
    """Return TopicPartition.hashCode, as an unsigned number."""
    return (31 * (31 + partition) + unsigned_java_hash(topic)) & 0xFFFFFFFF
