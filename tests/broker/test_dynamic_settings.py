"""Every setting that Apache Kafka 2.7.2 changes at run time has its effect here, or none by
intent."""

import pytest

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.topics import NewTopic
from kctl.broker.config.config_entries import PER_LISTENER_CONFIGS
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.idle_configs import IDLE_SETTINGS
from kctl.configs.topic_configs import TOPIC_CONFIGS
from kctl.records.record_batch import LOG_APPEND_TIME
from tests.support.broker_cluster import running_brokers

ALL_BROKERS = ""

# Setting of the broker that is a default of topics: (text, field of LogConfig, its value).
TOPIC_DEFAULTS = {
    "compression.type": ("gzip", "compression_type", "gzip"),
    "log.cleaner.delete.retention.ms": ("7", "delete_retention_ms", 7),
    "log.cleaner.max.compaction.lag.ms": ("9000", "max_compaction_lag_ms", 9000),
    "log.cleaner.min.cleanable.ratio": ("0.25", "min_cleanable_dirty_ratio", 0.25),
    "log.cleaner.min.compaction.lag.ms": ("11", "min_compaction_lag_ms", 11),
    "log.cleanup.policy": ("compact", "cleanup_policy", ("compact",)),
    "log.flush.interval.messages": ("12", "flush_messages", 12),
    "log.flush.interval.ms": ("13", "flush_ms", 13),
    "log.index.interval.bytes": ("14", "index_interval_bytes", 14),
    "log.index.size.max.bytes": ("1500", "segment_index_bytes", 1500),
    "log.message.downconversion.enable": ("false", "message_downconversion_enable", False),
    "log.message.timestamp.difference.max.ms": ("16", "message_timestamp_difference_max_ms", 16),
    "log.message.timestamp.type": ("LogAppendTime", "message_timestamp_type", None),
    "log.preallocate": ("true", "preallocate", True),
    "log.retention.bytes": ("17", "retention_bytes", 17),
    "log.retention.ms": ("18", "retention_ms", 18),
    "log.roll.jitter.ms": ("19", "segment_jitter_ms", 19),
    "log.roll.ms": ("20", "segment_ms", 20),
    "log.segment.bytes": ("2100", "segment_bytes", 2100),
    "log.segment.delete.delay.ms": ("22", "file_delete_delay_ms", 22),
    "message.max.bytes": ("2300", "max_message_bytes", 2300),
    "min.insync.replicas": ("2", "min_insync_replicas", 2),
    "unclean.leader.election.enable": ("true", "unclean_leader_election_enable", True),
}
CLEANER = {
    "log.cleaner.backoff.ms": ("31", "backoff_ms", 31),
    "log.cleaner.dedupe.buffer.size": ("3200000", "dedupe_buffer_bytes", 3_200_000),
    "log.cleaner.io.buffer.load.factor": ("0.5", "load_factor", 0.5),
    "log.cleaner.io.buffer.size": ("330000", "io_buffer_bytes", 330_000),
    "log.cleaner.io.max.bytes.per.second": ("3400.5", "bytes_per_second", 3400.5),
}
LIMITS = {
    "max.connection.creation.rate": ("4100", "rate_max", 4100),
    "max.connections": ("4200", "connections_max", 4200),
    "max.connections.per.ip": ("4300", "connections_per_ip_max", 4300),
    "max.connections.per.ip.overrides": ("127.0.0.9:44", "connections_per_ip_overrides", None),
}
# tests/broker/test_listener_changes.py has these.
LISTENERS = {"advertised.listeners", "listener.security.protocol.map", "listeners"}
# Of a listener that is added; one that stays keeps its own until a restart, as in Apache Kafka.
OF_NEW_LISTENERS = {
    "sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol", "ssl.cipher.suites",
    "ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
    "ssl.protocol",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_brokers(tmp_path_factory.mktemp("settings")) as cluster:
        cluster.start(1)
        cluster.admins = cluster.admin()
        (result,) = cluster.run(cluster.admins.topics.create([NewTopic("t", 1, 1)]))
        assert result.error is None
        cluster.until(lambda: cluster.partition(1, "t"), "the replica")
        yield cluster


def alter(cluster, resource_type, name, values, delete=()):
    changes = {ConfigResource(resource_type, name): ConfigChanges(values, list(delete), {}, {})}
    (result,) = cluster.run(cluster.admins.configs.alter(changes))
    assert result.error is None, result.error


def test_every_dynamic_setting_is_in_one_of_these_tables():
    dynamic = {name for name, key in BrokerConfig.KEYS.items() if key.is_dynamic}
    known = [
        TOPIC_DEFAULTS.keys(), CLEANER.keys(), LIMITS.keys(), LISTENERS, OF_NEW_LISTENERS,
        PER_LISTENER_CONFIGS, IDLE_SETTINGS.keys() & dynamic,
    ]  # fmt: skip
    assert set().union(*known) == dynamic
    assert sum(map(len, known)) == len(dynamic), "in one table only"
    of_topics = {broker_name for _, broker_name in TOPIC_CONFIGS.values() if broker_name}
    assert of_topics & dynamic == TOPIC_DEFAULTS.keys()


@pytest.mark.parametrize("entity", [ALL_BROKERS, "1"], ids=["of all brokers", "of one broker"])
def test_dynamic_settings_take_effect_and_end(cluster, entity):
    broker = cluster.brokers[1]
    log = cluster.partition(1, "t").log
    tables = {**TOPIC_DEFAULTS, **CLEANER, **LIMITS}

    def state():
        cleaner = broker.services.log_manager._options.cleaner()
        return {
            **{name: getattr(log.config, field) for name, (_, field, _) in TOPIC_DEFAULTS.items()},
            **{name: getattr(cleaner, field) for name, (_, field, _) in CLEANER.items()},
            **{name: getattr(broker.server.limits, it) for name, (_, it, _) in LIMITS.items()},
        }

    before = state()
    values = {name: text for name, (text, _, _) in tables.items()}
    alter(cluster, ResourceType.BROKER, entity, values)
    cluster.until(lambda: log.config.retention_bytes == 17, "the change")
    after = state()
    wanted = {name: value for name, (_, _, value) in tables.items()}
    wanted["log.message.timestamp.type"] = after["log.message.timestamp.type"]
    wanted["max.connections.per.ip.overrides"] = {"127.0.0.9": 44}
    assert after == wanted
    assert all(after[name] != before[name] for name in tables), "each has changed"
    assert after["log.message.timestamp.type"] in ("LogAppendTime", LOG_APPEND_TIME)
    # A topic's own config comes first.
    alter(cluster, ResourceType.TOPIC, "t", {"retention.bytes": "99"})
    cluster.until(lambda: log.config.retention_bytes == 99, "the topic's own")
    alter(cluster, ResourceType.TOPIC, "t", {}, ["retention.bytes"])
    alter(cluster, ResourceType.BROKER, entity, {}, values)
    cluster.until(lambda: state() == before, "the end of the change")


@pytest.mark.parametrize("level", ["brokers", "topic"])
def test_leaderless_partitions_get_leaders_when_unclean_election_is_enabled(tmp_path, level):
    """1 leads alone in the ISR of 1,2 and stops; 2 is out of sync; then the config changes."""
    with running_brokers(tmp_path) as cluster:
        cluster.start(1, 2, 3)
        cluster.admins = cluster.admin()
        topic = NewTopic("t", assignment={0: [1, 2]})
        (result,) = cluster.run(cluster.admins.topics.create([topic]))
        assert result.error is None
        cluster.until(lambda: cluster.partition(2, "t"), "the replicas")
        cluster.stop(2)
        cluster.until(lambda: cluster.state("t").isr == (1,), "2 leaves the ISR")
        cluster.stop(1)
        cluster.start(2)
        cluster.until(lambda: cluster.leader("t") == -1, "no leader")
        cluster.admins = cluster.admin()
        name = "unclean.leader.election.enable"
        kind, entity = ResourceType.TOPIC, "t"
        if level == "brokers":
            kind, entity = ResourceType.BROKER, ALL_BROKERS
        alter(cluster, kind, entity, {name: "true"})
        cluster.until(lambda: cluster.leader("t") == 2, "2 leads, unclean")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.replica.fetchers", "0"), ("log.cleaner.threads", "0"), ("log.cleaner.threads", "3"),
        ("num.io.threads", "3"), ("num.io.threads", "17"), ("max.connections", "0"),
        ("min.insync.replicas", "0"), ("log.segment.bytes", "13"), ("log.retention.ms", "x"),
        ("log.cleanup.policy", "shrink"), ("log.message.timestamp.type", "Now"),
        ("broker.rack", "r1"), ("auto.create.topics.enable", "false"),
        ("ssl.keystore.location", "/x"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("entity", [ALL_BROKERS, "1"])
def test_what_apache_kafka_refuses_is_refused(cluster, name, text, entity):
    changes = {ConfigResource(ResourceType.BROKER, entity): ConfigChanges({name: text}, [], {}, {})}
    (result,) = cluster.run(cluster.admins.configs.alter(changes))
    assert result.error is not None
