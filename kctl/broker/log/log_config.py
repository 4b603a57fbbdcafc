"""LogConfig: a topic's settings as its logs need them.

An attribute per topic setting of Kafka 2.7, dots as underscores; the defaults are Kafka's. A
changed setting is a new LogConfig that replaces the old one.

Kafka 2.7: kafka.log.LogConfig
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kctl.broker.log.validation_rules import ValidationRules
from kctl.errors import UsageError
from kctl.model import TopicPartition
from kctl.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kctl.records.record_batch import CREATE_TIME, LOG_APPEND_TIME

LONG_MAX = 2**63 - 1
_DAY_MS = 24 * 60 * 60 * 1000

# compression.type "producer" keeps what came.
_CODECS: Mapping[str, int | None] = {
    "producer": None,
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's settings."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    # -1: no limit.
    retention_bytes: int = -1
    # -1: for ever.
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
        """From parsed values by Kafka's names ("segment.bytes"); others keep their default."""
        given: dict[str, Any] = {}
        known = {field.name for field in fields(cls)}
        for name, value in values.items():
            attribute = name.replace(".", "_")
            if attribute not in known:
                raise UsageError(f"Unknown topic config name: {name}")
            given[attribute] = tuple(value) if isinstance(value, list) else value
        return cls(**given)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments go by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def segment_ms_max(self) -> int:
        """After how long a segment is rolled: the active one is never compacted (KIP-354)."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def timestamp_type(self) -> int:
        """As a number of record batches."""
        return LOG_APPEND_TIME if self.message_timestamp_type == "LogAppendTime" else CREATE_TIME

    @property
    def magic(self) -> int:
        """The record format that `message.format.version` asks for."""
        return magic_of_version(self.message_format_version)

    def validation_rules(self, topic_partition: TopicPartition) -> ValidationRules:
        """What the settings say about a producer's records."""
        return ValidationRules(
            topic_partition=str(topic_partition),
            magic=self.magic,
            compression_type=_CODECS[self.compression_type],
            timestamp_type=self.timestamp_type,
            timestamp_difference_max_ms=self.message_timestamp_difference_max_ms,
            is_compacted=self.is_compacted,
            message_bytes_max=self.max_message_bytes,
        )


def magic_of_version(version: str) -> int:
    """The record format of a Kafka release: 0 before 0.10, 1 before 0.11, 2 since."""
    numbers = [int(part) for part in version.split("-")[0].split(".")[:3]]
    if numbers < [0, 10]:
        return 0
    return 1 if numbers < [0, 11] else 2
