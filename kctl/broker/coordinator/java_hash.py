"""Maps a name to its partition of a coordinator's topic: Java's String.hashCode, made positive.

Clients, tools and the other brokers of the cluster rely on this mapping. Pure.

Kafka 2.7: org.apache.kafka.common.utils.Utils.abs; GroupMetadataManager.partitionFor.
"""

import struct


def abs_java_hash(text: str) -> int:
    """Return the absolute value of Java's String.hashCode over UTF-16 units; 0 for -2**31.

    >>> abs_java_hash("g-coop")
    1301546765
    """
    units = text.encode("utf-16-be", "surrogatepass")
    hash_code = 0
    for (unit,) in struct.iter_unpack(">H", units):
        hash_code = (31 * hash_code + unit) & 0xFFFFFFFF
    if hash_code == 0x80000000:
        return 0
    return hash_code if hash_code < 0x80000000 else 0x100000000 - hash_code
