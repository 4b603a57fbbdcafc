"""LogConfig: a topic's configs as its logs need them.

One attribute per topic config of Kafka 2.7, with dots as underscores; the defaults are Kafka's. A
changed config results in a new LogConfig.

Kafka 2.7: kafka.log.LogConfig
"""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache, lru_cache
from typing import Any

from kctl.broker.log.validation_rules import ValidationRules
from kctl.configs.api_version import API_VERSIONS
from kctl.configs.config_key import LONG_MAX
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kctl.records.record_batch import CREATE_TIME, LOG_APPEND_TIME

_DAY_MS = 24 * 60 * 60 * 1000

# compression.type "producer" keeps the producer's codec.
_CODECS: Mapping[str, int | None] = {
    "producer": None,
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}


# Some 4,000 batches of the smallest size, whose headers are read in about 5 ms.
INDEX_ENTRY_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's configs."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    # -1: no limit.
    retention_bytes: int = -1
    # -1: no limit.
    retention_ms: int = 7 * _DAY_MS
    max_message_bytes: int = 1_048_588
    index_interval_bytes: int = 4096
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: tuple[str, ...] = ("delete",)
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    preallocate: bool = False
    message_format_version: str = "2.7-IV2"
    message_timestamp_type: str = "CreateTime"
    message_timestamp_difference_max_ms: int = LONG_MAX
    message_downconversion_enable: bool = True
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> "LogConfig":
        """Return the config for values by Kafka's names ("segment.bytes"); others keep their
        default."""
        given: dict[str, Any] = {}
        attributes = _attributes()
        for name, value in values.items():
            attribute = attributes.get(name)
            if attribute is None:
                raise UsageError(f"Unknown topic config name: {name}")
            given[attribute] = tuple(value) if isinstance(value, list) else value
        return cls(**given)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Return whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def segment_ms_max(self) -> int:
        """Return the age at which a segment is rolled; the active one is never compacted
        (KIP-354)."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def timestamp_type(self) -> int:
        """Return the timestamp type as a number of record batches."""
        return LOG_APPEND_TIME if self.message_timestamp_type == "LogAppendTime" else CREATE_TIME

    @property
    def index_entry_bytes(self) -> int:
        """Return how many bytes may lie between two entries of an index.

        A search reads every batch header from an entry on, so a large `index.interval.bytes` counts
        as INDEX_ENTRY_BYTES_MAX.
        """
        return min(self.index_interval_bytes, INDEX_ENTRY_BYTES_MAX)

    @property
    def magic(self) -> int:
        """Return the record format of `message.format.version`."""
        return magic_of_version(self.message_format_version)

    def validation_rules(self, topic_partition: TopicPartition) -> ValidationRules:
        """Return the rules for records from producers."""
        return ValidationRules(
            topic_partition=str(topic_partition),
            magic=self.magic,
            compression_type=_CODECS[self.compression_type],
            timestamp_type=self.timestamp_type,
            timestamp_difference_max_ms=self.message_timestamp_difference_max_ms,
            is_compacted=self.is_compacted,
            message_bytes_max=self.max_message_bytes,
        )


@cache
def _attributes() -> Mapping[str, str]:
    """Return the attribute of each config, by Kafka's name of it."""
    return {field.name.replace("_", "."): field.name for field in fields(LogConfig)}


@lru_cache(len(API_VERSIONS) * 2)
def magic_of_version(version: str) -> int:
    """Return the record format of a Kafka release: 0 before 0.10, 1 before 0.11, 2 since."""
    # For "2.7-IV2" and "2.7.2": the part after the second number is ignored.
    numbers = [int(part.partition("-")[0]) for part in version.split(".")[:2]]
    if numbers < [0, 10]:
        return 0
    return 1 if numbers < [0, 11] else 2
