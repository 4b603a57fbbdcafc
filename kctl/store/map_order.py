"""The order in which Java and Scala maps list their keys, which is the order in Kafka's JSON.

Only byte-by-byte comparison depends on it: with it, kctl writes what Apache Kafka 2.7.2 (Scala
2.13, Java 9 and later) would write.
"""

from collections.abc import Collection
from functools import lru_cache

from kctl.java_hash import unsigned_java_hash

_LOAD_FACTOR = 0.75
_FIRST_TABLE_SIZE = 16


def scala_map_order(keys: Collection[str]) -> list[str]:
    """Return keys in the order of `scala.collection.mutable.HashMap`: by bucket, inside one by
    hash."""
    mask = _table_size(keys) - 1

    def place(key: str) -> tuple[int, int]:
        spread = _spread_hash(key)
        return spread & mask, spread - (1 << 32) if spread >> 31 else spread

    return sorted(keys, key=place)


@lru_cache(maxsize=8)
def scala_number_order(count: int) -> tuple[str, ...]:
    """Return the decimal numbers from 0 to `count` - 1 in the order of `scala_map_order`.

    Assignments of topics have such keys, and are written again for every partition that moves.
    """
    mask = _table_size(range(count)) - 1
    hashes = list(map(ord, "0123456789"[:count]))
    for number in range(len(hashes), count):
        # Java's hash of a string is that of all but its last unit, times 31, plus that unit.
        hashes.append((hashes[number // 10] * 31 + 48 + number % 10) & 0xFFFFFFFF)

    places = [
        ((spread := value ^ (value >> 16)) & mask) << 32 | (spread ^ 0x80000000) for value in hashes
    ]
    return tuple(map(str, sorted(range(count), key=places.__getitem__)))


def java_properties_order(keys: Collection[str]) -> list[str]:
    """Return keys in the order of `java.util.Properties`: by bucket, inside one by insertion."""
    mask = _table_size(keys) - 1
    return sorted(keys, key=lambda key: _spread_hash(key) & mask)


def _table_size(keys: Collection[object]) -> int:
    size = _FIRST_TABLE_SIZE
    while len(keys) >= _LOAD_FACTOR * size:
        size *= 2
    return size


def _spread_hash(key: str) -> int:
    """Return `String.hashCode` with its upper half mixed into the lower, as an unsigned number."""
    value = unsigned_java_hash(key)
    return value ^ (value >> 16)
