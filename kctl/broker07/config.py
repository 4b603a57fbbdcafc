"""Broker07Config: Kafka 0.7's server.properties, typed, with its defaults.

`SETTINGS` is the table of all its settings: the field of the config that a setting has, or why it
has no effect here. Settings per topic are lists: `topic:value,topic:value`.

Kafka 0.7: kafka.server.KafkaConfig, kafka.utils.Utils.{getTopicRetentionHours, ...}
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

MS_PER_HOUR = 3_600_000
MS_PER_MINUTE = 60_000
_INT_MAX = 0x7FFF_FFFF
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Broker07Config:
    """The settings of a broker, by their units."""

    broker_id: int = 0
    # None: this machine's address.
    host_name: str | None = None
    port: int = 6667
    log_dir: str = ""
    request_bytes_max: int = 104_857_600
    message_bytes_max: int = 1_000_000
    topic_name_length_max: int = 255
    partitions: int = 1
    partitions_by_topic: Mapping[str, int] = field(default_factory=dict)
    segment_bytes: int = 1_073_741_824
    segment_bytes_by_topic: Mapping[str, int] = field(default_factory=dict)
    roll_hours: int = 168
    roll_hours_by_topic: Mapping[str, int] = field(default_factory=dict)
    flush_messages: int = 500
    flush_ms: int | None = None
    flush_ms_by_topic: Mapping[str, int] = field(default_factory=dict)
    flush_check_ms: int = 3_000
    retention_hours: int = 168
    retention_hours_by_topic: Mapping[str, int] = field(default_factory=dict)
    # -1: unlimited.
    retention_bytes: int = -1
    retention_bytes_by_topic: Mapping[str, int] = field(default_factory=dict)
    cleanup_minutes: int = 10
    uses_zookeeper: bool = True
    zookeeper_connect: str = ""
    session_timeout_ms: int = 6_000
    # None: the session timeout.
    connection_timeout_ms: int | None = None

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions that this broker has, or would have, of a topic."""
        return self.partitions_by_topic.get(topic, self.partitions)

    def segment_bytes_of(self, topic: str) -> int:
        """Return the size above which a topic's segments are rolled."""
        return self.segment_bytes_by_topic.get(topic, self.segment_bytes)

    def roll_ms_of(self, topic: str) -> int:
        """Return the age above which a topic's segments are rolled."""
        return self.roll_hours_by_topic.get(topic, self.roll_hours) * MS_PER_HOUR

    def flush_ms_of(self, topic: str) -> int:
        """Return the age above which a topic's messages are flushed."""
        default = self.flush_check_ms if self.flush_ms is None else self.flush_ms
        return self.flush_ms_by_topic.get(topic, default)

    def retention_ms_of(self, topic: str) -> int:
        """Return the age above which a topic's segments are deleted."""
        return self.retention_hours_by_topic.get(topic, self.retention_hours) * MS_PER_HOUR

    def retention_bytes_of(self, topic: str) -> int:
        """Return the size that a topic's logs may have, or -1."""
        return self.retention_bytes_by_topic.get(topic, self.retention_bytes)


class Setting07(NamedTuple):
    """A setting of Kafka 0.7's brokers."""

    name: str
    # As server.properties would have it.
    default: str
    # Of Broker07Config; None: without effect.
    field: str | None
    parse: Callable[[str], Any]
    # What it does, or why it does nothing.
    note: str


def _number(low: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= _INT_MAX:
            raise ValueError(f"it is {low} to {_INT_MAX}")
        return value

    return parse


def _of_topics(low: int) -> Callable[[str], dict[str, int]]:
    number = _number(low)

    def parse(text: str) -> dict[str, int]:
        values = {}
        for item in filter(None, map(str.strip, text.split(","))):
            topic, colon, value = item.rpartition(":")
            if not colon or not topic.strip():
                raise ValueError("it is TOPIC:NUMBER,TOPIC:NUMBER")
            values[topic.strip()] = number(value.strip())
        return values

    return parse


def _flag(text: str) -> bool:
    if text not in _FLAGS:
        raise ValueError("it is true or false")
    return _FLAGS[text]


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65_535:
        raise ValueError("it is 0 to 65535")
    return value


_S = Setting07
SETTINGS = (
    _S("brokerid", "required", "broker_id", _number(0), "The id in ZooKeeper."),
    _S("hostname", "this machine's address", "host_name", str, "What is registered."),
    _S("port", "6667", "port", _port, "Where it listens."),
    _S("log.dir", "required", "log_dir", str, "Where the logs are; --data-dir goes first."),
    _S("max.socket.request.bytes", "104857600", "request_bytes_max", _number(1),
       "Larger requests close their connection."),
    _S("max.message.size", "1000000", "message_bytes_max", _number(0),
       "A set with a larger payload is dropped, with a warning."),
    _S("max.topic.name.length", "255", "topic_name_length_max", _number(1), "Of 0.7.2."),
    _S("num.partitions", "1", "partitions", _number(1), "Of a topic, on this broker."),
    _S("topic.partition.count.map", "", "partitions_by_topic", _of_topics(1), "By topic."),
    _S("log.file.size", "1073741824", "segment_bytes", _number(1),
       "A larger segment is rolled before the next message."),
    _S("topic.log.file.size", "", "segment_bytes_by_topic", _of_topics(1), "By topic."),
    _S("log.roll.hours", "168", "roll_hours", _number(1), "An older segment is rolled."),
    _S("topic.log.roll.hours", "", "roll_hours_by_topic", _of_topics(1), "By topic."),
    _S("log.flush.interval", "500", "flush_messages", _number(1),
       "Messages of a partition after which it is flushed, and they can be read."),
    _S("log.default.flush.interval.ms", "that of the scheduler", "flush_ms", _number(1),
       "Age after which a partition is flushed."),
    _S("topic.flush.intervals.ms", "", "flush_ms_by_topic", _of_topics(1), "By topic."),
    _S("log.default.flush.scheduler.interval.ms", "3000", "flush_check_ms", _number(1),
       "How often ages are looked at."),
    _S("log.retention.hours", "168", "retention_hours", _number(1),
       "Segments whose files are older are deleted."),
    _S("topic.log.retention.hours", "", "retention_hours_by_topic", _of_topics(1), "By topic."),
    _S("log.retention.size", "-1", "retention_bytes", _number(-1),
       "Bytes of a partition above which its oldest segments are deleted."),
    _S("topic.log.retention.size", "", "retention_bytes_by_topic", _of_topics(-1), "By topic."),
    _S("log.cleanup.interval.mins", "10", "cleanup_minutes", _number(1),
       "How often both are looked at; first a minute after the start."),
    _S("enable.zookeeper", "true", "uses_zookeeper", _flag, "Whether it registers."),
    _S("zk.connect", "", "zookeeper_connect", str, "HOST:PORT,HOST:PORT/CHROOT."),
    _S("zk.sessiontimeout.ms", "6000", "session_timeout_ms", _number(1), "Of its session."),
    _S("zk.connectiontimeout.ms", "the session timeout", "connection_timeout_ms", _number(1),
       "How long the start waits for ZooKeeper."),
    _S("num.threads", "cores", None, str, "One thread serves all connections."),
    _S("socket.send.buffer", "102400", None, str, "The system chooses the size."),
    _S("socket.receive.buffer", "102400", None, str, "The system chooses the size."),
    _S("zk.synctime.ms", "2000", None, str, "A setting of consumers."),
    _S("monitoring.period.secs", "600", None, str, "There is no JMX."),
)  # fmt: skip
_BY_NAME = {setting.name: setting for setting in SETTINGS}


class Parsed(NamedTuple):
    """A config, and the names that had no part in it."""

    config: Broker07Config
    unknown: list[str]
    idle: list[str]


def parse_config(properties: Mapping[str, str]) -> Parsed:
    """Return the config of `properties`; UsageError names a setting whose value is invalid."""
    values: dict[str, Any] = {}
    unknown, idle = [], []
    for name, text in properties.items():
        setting = _BY_NAME.get(name)
        if setting is None:
            unknown.append(name)
        elif setting.field is None:
            idle.append(name)
        else:
            values[setting.field] = _parsed(setting, text.strip())
    return Parsed(Broker07Config(**values), unknown, idle)


def _parsed(setting: Setting07, text: str) -> Any:
    try:
        return setting.parse(text)
    except ValueError as error:
        raise UsageError(f"{setting.name}={text}: {error}") from None
