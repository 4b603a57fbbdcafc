"""Which partition a record goes to: by its key's hash, as Kafka's clients agree, or by turns.

Kafka 2.7: org.apache.kafka.clients.producer.internals.DefaultPartitioner,
org.apache.kafka.common.utils.Utils (`murmur2`); KIP-480
"""

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of `data` with Kafka's seed, unsigned."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = (value * _MULTIPLIER & _MASK) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic of so many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Chooses partitions; records without a key stay together until `turn`, which makes bigger
    batches than going round record by record."""

    def __init__(self, partitions: int, start: int = 0) -> None:
        self._partitions = partitions
        self._current = start % partitions

    def partition(self, key: bytes | None) -> int:
        """Where a record with this key goes."""
        return self._current if key is None else partition_for_key(key, self._partitions)

    def turn(self) -> None:
        """From now on, the next partition."""
        self._current = (self._current + 1) % self._partitions
