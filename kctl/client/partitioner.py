"""Chooses the partition of a record: by the hash of its key, as Kafka's clients do, or in turn.

Kafka 2.7: org.apache.kafka.clients.producer.internals.DefaultPartitioner,
org.apache.kafka.common.utils.Utils (`murmur2`); KIP-480
"""

# Of MurmurHash2, as Kafka uses it.
SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit MurmurHash2 of `data` with Kafka's seed."""
    length = len(data)
    value = SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * MULTIPLIER & _MASK
        word = (word ^ word >> 24) * MULTIPLIER & _MASK
        value = (value * MULTIPLIER & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & _MASK
    value = (value ^ value >> 13) * MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic of `partitions` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Chooses partitions; records without a key stay on one partition until `turn`, which makes
    larger batches than round robin by record."""

    def __init__(self, partitions: int, start: int = 0) -> None:
        self._partitions = partitions
        self._current = start % partitions

    def partition(self, key: bytes | None) -> int:
        """Return the partition of a record with this key."""
        return self._current if key is None else partition_for_key(key, self._partitions)

    def turn(self) -> None:
        """Switch records without a key to the next partition."""
        self._current = (self._current + 1) % self._partitions
