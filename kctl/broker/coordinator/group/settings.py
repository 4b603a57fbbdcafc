"""GroupSettings: the broker configs that the group coordinator's core uses.

Kafka 2.7: kafka.coordinator.group.GroupConfig and OffsetConfig.
"""

from kctl.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and delays; the defaults are Kafka's."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    group_size_max: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    # Maximum size of an offset's metadata in characters (Kafka says bytes but counts characters).
    offset_metadata_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    # Versions of the values of __consumer_offsets, by inter.broker.protocol.version.
    offset_value_version: int = 3
    group_value_version: int = 3
