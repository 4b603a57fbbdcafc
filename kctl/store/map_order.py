"""The order in which Java and Scala maps give their keys, which is the order in Kafka's JSON.

Nothing depends on it but comparison byte by byte: with it, what kctl writes is what Apache Kafka
2.7.2 (Scala 2.13, Java 9 and later) would write.
"""

from collections.abc import Collection

_LOAD_FACTOR = 0.75
_FIRST_TABLE_SIZE = 16


def scala_map_order(keys: Collection[str]) -> list[str]:
    """`scala.collection.mutable.HashMap`: by bucket, inside one by hash."""
    mask = _table_size(keys) - 1

    def place(key: str) -> tuple[int, int]:
        spread = _spread_hash(key)
        return spread & mask, spread - (1 << 32) if spread >> 31 else spread

    return sorted(keys, key=place)


def java_properties_order(keys: Collection[str]) -> list[str]:
    """`java.util.Properties`: by bucket, inside one as they were put."""
    mask = _table_size(keys) - 1
    return sorted(keys, key=lambda key: _spread_hash(key) & mask)


def _table_size(keys: Collection[str]) -> int:
    size = _FIRST_TABLE_SIZE
    while len(keys) >= _LOAD_FACTOR * size:
        size *= 2
    return size


def _spread_hash(key: str) -> int:
    """`String.hashCode` with its upper half mixed into the lower, as an unsigned number."""
    value = 0
    for unit in memoryview(key.encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value ^ (value >> 16)
