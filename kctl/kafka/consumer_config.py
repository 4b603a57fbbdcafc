"""ConsumerConfig: settings of a Consumer, by the names of today's clients.

Kafka 2.7: org.apache.kafka.clients.consumer.ConsumerConfig
"""

from collections.abc import Mapping
from typing import Any

from kctl.errors import UsageError
from kctl.kafka.old_names import (
    Setting,
    Settings,
    choice,
    flag,
    number,
    read_settings,
    text,
    today_only,
)
from kctl.protocol.constants import READ_COMMITTED, READ_UNCOMMITTED

_MS = number(1, 2**31 - 1)


TABLE = (
    Setting("bootstrap", text, today_only("bootstrap.servers")),
    Setting("client_id", text, today_only("client.id"), "kctl"),
    Setting("group_id", text, today_only("group.id")),
    Setting(
        "reset",
        choice({"earliest": "earliest", "latest": "latest", "none": "none"}),
        today_only("auto.offset.reset"),
        "latest",
    ),
    Setting("auto_commit", flag, today_only("enable.auto.commit"), defaults=True),
    Setting("auto_commit_ms", _MS, today_only("auto.commit.interval.ms"), 5_000),
    Setting(
        "isolation_level",
        choice({"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}),
        today_only("isolation.level"),
        READ_UNCOMMITTED,
    ),
    Setting("records_max", number(1, 1_000_000), today_only("max.poll.records"), 500),
    Setting("poll_interval_ms", _MS, today_only("max.poll.interval.ms"), 300_000),
    Setting("session_timeout_ms", _MS, today_only("session.timeout.ms"), 10_000),
    Setting("heartbeat_interval_ms", _MS, today_only("heartbeat.interval.ms"), 3_000),
    Setting("fetch_size", number(1, 1 << 30), today_only("max.partition.fetch.bytes"), 1 << 20),
    Setting("fetch_bytes_max", number(1, 1 << 30), today_only("fetch.max.bytes"), 50 << 20),
    Setting("fetch_wait_ms", number(0, 600_000), today_only("fetch.max.wait.ms"), 500),
    Setting("request_timeout_ms", _MS, today_only("request.timeout.ms"), 30_000),
    Setting("timeout_ms", number(-1), today_only("consumer.timeout.ms"), -1),
    Setting("version_request", text, today_only("api.version.request")),
    Setting("version_fallback", text, today_only("broker.version.fallback")),
)


class ConsumerConfig:
    """The settings of a Consumer, checked; `config[...]` by the names in TABLE."""

    def __init__(self, given: Mapping[str, object]) -> None:
        """Read `given`; raise UsageError for values that are not valid."""
        self.settings: Settings = read_settings(TABLE, given)
        if self["bootstrap"] is None:
            raise UsageError("bootstrap.servers is missing", hint="e.g. localhost:9092")
        if self["heartbeat_interval_ms"] >= self["session_timeout_ms"]:
            raise UsageError("heartbeat.interval.ms is not below session.timeout.ms")

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @property
    def properties(self) -> dict[str, str]:
        """Return the settings of connections, by the names of clients."""
        versions = {
            "api.version.request": self["version_request"],
            "broker.version.fallback": self["version_fallback"],
        }
        given = {name: value for name, value in versions.items() if value is not None}
        return {**self.settings.security, **given}
