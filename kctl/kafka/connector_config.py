"""ConnectorConfig: settings of a ConsumerConnector, by their names in three ages of Kafka. Pure.

Kafka: kafka.consumer.ConsumerConfig of 0.7.2 and 1.1.1; the newest names are those of today's
consumers, where they have the setting. Settings that only kctl has are named for both later ages.
"""

from collections.abc import Mapping
from typing import Any

from kctl.errors import UsageError
from kctl.kafka.assignment import HashedText, Strategy
from kctl.kafka.claims import OffsetMoves
from kctl.kafka.offsets import DualPick, OffsetsPolicy, OffsetsStorage
from kctl.kafka.old_names import (
    Setting,
    Settings,
    choice,
    flag,
    in_all_ages,
    number,
    read_settings,
    renamed_since_07,
    since_08,
    text,
)

# How often fetch.size is doubled at most in all, as a factor.
FETCH_SIZE_FACTOR_MAX = 10
_MS = number(0)
_RESETS = {
    "smallest": "smallest",
    "earliest": "smallest",
    "largest": "largest",
    "latest": "largest",
    "none": "none",
}
_STORAGES = {it.value: it for it in OffsetsStorage}
_PICKS = {it.value: it for it in DualPick}
_STRATEGIES = {it.value: it for it in Strategy}
_TEXTS = {it.value: it for it in HashedText}
_MOVES = {it.value: it for it in OffsetMoves}

TABLE = (
    Setting("zookeeper", text, ("zk.connect", "zookeeper.connect", "zookeeper.connect")),
    Setting(
        "zookeeper_session_ms",
        number(100, 3_600_000),
        renamed_since_07("zk.sessiontimeout.ms", "zookeeper.session.timeout.ms"),
        6_000,
    ),
    Setting(
        "zookeeper_connection_ms",
        number(1, 3_600_000),
        renamed_since_07("zk.connectiontimeout.ms", "zookeeper.connection.timeout.ms"),
    ),
    Setting(
        "zookeeper_sync_ms",
        _MS,
        renamed_since_07("zk.synctime.ms", "zookeeper.sync.time.ms"),
        2_000,
    ),
    Setting("group_id", text, ("groupid", "group.id", "group.id")),
    Setting("consumer_id", text, ("consumerid", "consumer.id", "consumer.id")),
    Setting("client_id", text, since_08("client.id")),
    Setting("bootstrap", text, (None, None, "bootstrap.servers")),
    Setting(
        "socket_timeout_ms",
        number(1, 3_600_000),
        ("socket.timeout.ms", "socket.timeout.ms", "request.timeout.ms"),
        30_000,
    ),
    Setting(
        "fetch_size",
        number(1, 1 << 30),
        ("fetch.size", "fetch.message.max.bytes", "max.partition.fetch.bytes"),
        1 << 20,
    ),
    Setting("fetch_size_max", number(1, 1 << 30), in_all_ages("fetch.size.max")),
    Setting("fetch_bytes_max", number(1, 1 << 30), since_08("fetch.max.bytes"), 50 << 20),
    Setting("fetch_bytes_min", number(0, 1 << 30), since_08("fetch.min.bytes"), 1),
    Setting(
        "fetch_wait_ms",
        number(0, 600_000),
        (None, "fetch.wait.max.ms", "fetch.max.wait.ms"),
        (100, 100, 500),
    ),
    Setting(
        "fetch_backoff_ms",
        _MS,
        ("fetcher.backoff.ms", "refresh.leader.backoff.ms", "retry.backoff.ms"),
        (1_000, 200, 100),
    ),
    Setting(
        "queued_chunks",
        number(1, 100_000),
        renamed_since_07("queuedchunks.max", "queued.max.message.chunks"),
        (10, 2, 2),
    ),
    Setting(
        "auto_commit",
        flag,
        ("autocommit.enable", "auto.commit.enable", "enable.auto.commit"),
        defaults=True,
    ),
    Setting(
        "auto_commit_ms",
        number(1),
        renamed_since_07("autocommit.interval.ms", "auto.commit.interval.ms"),
        (10_000, 60_000, 5_000),
    ),
    Setting(
        "reset",
        choice(_RESETS),
        renamed_since_07("autooffset.reset", "auto.offset.reset"),
        ("smallest", "largest", "largest"),
    ),
    Setting(
        "commit_timeout_ms",
        number(1, 3_600_000),
        ("commit.timeout.ms", "commit.timeout.ms", "default.api.timeout.ms"),
        30_000,
    ),
    Setting("timeout_ms", number(-1), in_all_ages("consumer.timeout.ms"), -1),
    Setting("rebalance_backoff_ms", number(1, 3_600_000), in_all_ages("rebalance.backoff.ms")),
    Setting(
        "rebalance_retries",
        number(1),
        renamed_since_07("rebalance.retries.max", "rebalance.max.retries"),
    ),
    Setting("stops_all", flag, in_all_ages("rebalance.stop.all"), defaults=False),
    Setting(
        "strategy",
        choice(_STRATEGIES),
        since_08("partition.assignment.strategy"),
        Strategy.RANGE,
    ),
    Setting("hashed_text", choice(_TEXTS), since_08("roundrobin.hashed.text"), HashedText.DASH),
    Setting("hides_internal_topics", flag, since_08("exclude.internal.topics"), defaults=True),
    Setting("storage", choice(_STORAGES), since_08("offsets.storage"), OffsetsStorage.ZOOKEEPER),
    Setting("is_dual", flag, since_08("dual.commit.enabled")),
    Setting("pick", choice(_PICKS), since_08("dual.commit.pick"), DualPick.MAX),
    Setting("moves", choice(_MOVES), in_all_ages("consumed.offset.moves"), OffsetMoves.LATE),
)


class ConnectorConfig:
    """The settings of one connector; UsageError for what is not valid.

    >>> ConnectorConfig({"zk.connect": "zk:2181", "groupid": "g"})["reset"]
    'smallest'
    """

    def __init__(self, given: Mapping[str, object]) -> None:
        self.settings: Settings = read_settings(TABLE, given)
        for needed, name in (("zookeeper", "zookeeper.connect"), ("group_id", "group.id")):
            if self.settings[needed] is None:
                raise UsageError(f"{name} is missing")
        if "/" in self["group_id"]:
            raise UsageError(f"A group called {self['group_id']!r} cannot be kept in ZooKeeper")
        if self["fetch_wait_ms"] > self["socket_timeout_ms"]:
            wait, limit = (self.settings.shown(it) for it in ("fetch_wait_ms", "socket_timeout_ms"))
            raise UsageError(f"{wait} is above {limit}")

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    def number(self, name: str, otherwise: int = 0) -> int:
        """Return a number, or `otherwise` if it is not set."""
        value = self.settings[name]
        return otherwise if value is None else int(value)

    @property
    def rebalance_backoff_ms(self) -> int:
        """Return the pause after a round that failed; by default ZooKeeper's sync time."""
        return self.number("rebalance_backoff_ms", max(1, self.number("zookeeper_sync_ms")))

    @property
    def fetch_size_max(self) -> int:
        """Return up to what the fetch size is doubled for a message that is larger."""
        size = self.number("fetch_size")
        return max(size, self.number("fetch_size_max", size * FETCH_SIZE_FACTOR_MAX))

    @property
    def offsets(self) -> OffsetsPolicy:
        """Return where offsets are kept."""
        storage = self.settings["storage"]
        is_dual = self.settings["is_dual"]
        if is_dual is None:
            is_dual = storage is OffsetsStorage.KAFKA
        return OffsetsPolicy(storage, is_dual, self.settings["pick"])
