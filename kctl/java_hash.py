"""Java's String.hashCode, and the choices of a partition that Apache Kafka makes with it.

Clients, tools and brokers rely on these mappings. Pure.

Kafka 2.7: org.apache.kafka.common.utils.Utils.abs; GroupMetadataManager.partitionFor.
"""


def java_hash(text: str) -> int:
    """Return Java's String.hashCode over UTF-16 units, from -2**31 to 2**31 - 1.

    >>> java_hash("range")
    108280125
    """
    code = unsigned_java_hash(text)
    return code - 0x100000000 if code >> 31 else code


def unsigned_java_hash(text: str) -> int:
    """Return the 32 bits of Java's String.hashCode as a number that is not negative."""
    code = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code


def abs_java_hash(text: str) -> int:
    """Return the absolute value of Java's String.hashCode; 0 for -2**31, which has none.

    >>> abs_java_hash("g-coop")
    1301546765
    """
    code = abs(java_hash(text))
    return 0 if code == 0x80000000 else code
