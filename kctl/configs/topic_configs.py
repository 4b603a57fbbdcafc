"""The configs of a topic, and the broker setting that each falls back to.

Kafka 2.7: kafka.log.LogConfig, kafka.server.KafkaConfig (`extractLogConfigMap`).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from kctl.configs.api_version import api_version_complaint
from kctl.configs.config_key import LONG_MAX, ConfigKey, ConfigType

# Empty entries are valid: they appear when an entry is appended to an empty list.
_PARTITION_AND_BROKER = re.compile(r"\s*([0-9]+:[0-9]+)?\s*")


class TopicConfig(NamedTuple):
    """A topic config; `broker_config` names its fallback (None: its own default)."""

    key: ConfigKey
    broker_config: str | None


def _throttled_replicas(name: str) -> TopicConfig:
    def complaint(value: list[str]) -> str | None:
        if value[:1] == ["*"] or all(_PARTITION_AND_BROKER.fullmatch(item) for item in value):
            return None
        return (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    return TopicConfig(ConfigKey(name, ConfigType.LIST, [], complaint=complaint), None)


_ALL = (
    TopicConfig(
        ConfigKey("cleanup.policy", ConfigType.LIST, ["delete"], choices=("compact", "delete")),
        "log.cleanup.policy",
    ),
    TopicConfig(
        ConfigKey(
            "compression.type",
            ConfigType.STRING,
            "producer",
            choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ),
        "compression.type",
    ),
    TopicConfig(
        ConfigKey("delete.retention.ms", ConfigType.LONG, 86400000, minimum=0),
        "log.cleaner.delete.retention.ms",
    ),
    TopicConfig(
        ConfigKey("file.delete.delay.ms", ConfigType.LONG, 60000, minimum=0),
        "log.segment.delete.delay.ms",
    ),
    TopicConfig(
        ConfigKey("flush.messages", ConfigType.LONG, LONG_MAX, minimum=0),
        "log.flush.interval.messages",
    ),
    TopicConfig(
        ConfigKey("flush.ms", ConfigType.LONG, LONG_MAX, minimum=0), "log.flush.interval.ms"
    ),
    _throttled_replicas("follower.replication.throttled.replicas"),
    TopicConfig(
        ConfigKey("index.interval.bytes", ConfigType.INT, 4096, minimum=0),
        "log.index.interval.bytes",
    ),
    _throttled_replicas("leader.replication.throttled.replicas"),
    TopicConfig(
        ConfigKey("max.compaction.lag.ms", ConfigType.LONG, LONG_MAX, minimum=1),
        "log.cleaner.max.compaction.lag.ms",
    ),
    TopicConfig(
        ConfigKey("max.message.bytes", ConfigType.INT, 1048588, minimum=0), "message.max.bytes"
    ),
    TopicConfig(
        ConfigKey("message.downconversion.enable", ConfigType.BOOLEAN, True),
        "log.message.downconversion.enable",
    ),
    TopicConfig(
        ConfigKey(
            "message.format.version", ConfigType.STRING, "2.7-IV2", complaint=api_version_complaint
        ),
        "log.message.format.version",
    ),
    TopicConfig(
        ConfigKey("message.timestamp.difference.max.ms", ConfigType.LONG, LONG_MAX, minimum=0),
        "log.message.timestamp.difference.max.ms",
    ),
    TopicConfig(
        ConfigKey(
            "message.timestamp.type",
            ConfigType.STRING,
            "CreateTime",
            choices=("CreateTime", "LogAppendTime"),
        ),
        "log.message.timestamp.type",
    ),
    TopicConfig(
        ConfigKey("min.cleanable.dirty.ratio", ConfigType.DOUBLE, 0.5, minimum=0, maximum=1),
        "log.cleaner.min.cleanable.ratio",
    ),
    TopicConfig(
        ConfigKey("min.compaction.lag.ms", ConfigType.LONG, 0, minimum=0),
        "log.cleaner.min.compaction.lag.ms",
    ),
    TopicConfig(
        ConfigKey("min.insync.replicas", ConfigType.INT, 1, minimum=1), "min.insync.replicas"
    ),
    TopicConfig(ConfigKey("preallocate", ConfigType.BOOLEAN, False), "log.preallocate"),
    TopicConfig(ConfigKey("retention.bytes", ConfigType.LONG, -1), "log.retention.bytes"),
    TopicConfig(
        ConfigKey("retention.ms", ConfigType.LONG, 604800000, minimum=-1), "log.retention.ms"
    ),
    TopicConfig(
        ConfigKey("segment.bytes", ConfigType.INT, 1073741824, minimum=14), "log.segment.bytes"
    ),
    TopicConfig(
        ConfigKey("segment.index.bytes", ConfigType.INT, 10485760, minimum=0),
        "log.index.size.max.bytes",
    ),
    TopicConfig(
        ConfigKey("segment.jitter.ms", ConfigType.LONG, 0, minimum=0), "log.roll.jitter.ms"
    ),
    TopicConfig(ConfigKey("segment.ms", ConfigType.LONG, 604800000, minimum=1), "log.roll.ms"),
    TopicConfig(
        ConfigKey("unclean.leader.election.enable", ConfigType.BOOLEAN, False),
        "unclean.leader.election.enable",
    ),
)

TOPIC_CONFIGS: Mapping[str, TopicConfig] = {config.key.name: config for config in _ALL}
