"""BrokerConfig: a server.properties as Kafka 2.7 reads it."""

import pytest

from kctl.broker.config.config_changes import (
    AlterOperation,
    ConfigChange,
    check_broker_config,
    check_topic_config,
    incremented,
    replaced,
    topic_keys,
)
from kctl.broker.config.config_entries import (
    BrokerConfigView,
    ConfigSource,
    broker_entries,
    topic_entries,
)
from kctl.broker.log.log_config import LogConfig
from kctl.configs.api_version import API_VERSIONS, api_version
from kctl.configs.broker_config import BrokerConfig, parse_properties
from kctl.configs.config_key import ConfigType
from kctl.errors import UsageError
from kctl.protocol.error_codes import ApiError, ErrorCode


def test_the_finest_unit_of_a_time_wins():
    config = BrokerConfig(
        {"log.retention.hours": "1", "log.retention.minutes": "2", "log.roll.hours": "3"}
    )
    assert config.log_retention_ms == 120_000
    assert config.log_roll_ms == 3 * 3_600_000
    assert BrokerConfig({"log.retention.ms": "-1"}).log_retention_ms == -1


def test_an_unknown_name_from_the_command_line_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match=r"setting num\.partition\n") as error:
        BrokerConfig.from_properties({"num.partition": "3"}, strict=["num.partition"])
    assert error.value.hint == "did you mean num.partitions?"
    assert BrokerConfig.from_properties({"my.plugin": "x"}).unknown == ["my.plugin"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num.partitions", "many", "Not a number of type INT"),
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "3000000000", "Not a number of type INT"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleanup.policy", "delete,burn", "must be one of: compact, delete"),
        ("inter.broker.protocol.version", "4.0", "not a valid version"),
        ("listeners", "PLAINTEXT//x", "Unable to parse"),
        ("listeners", "NOBODY://x:1", "No security protocol defined"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "nonroutable"),
    ],
)
def test_an_invalid_value_is_reported(name, text, words):
    with pytest.raises(UsageError, match=words):
        BrokerConfig({name: text})


def test_listeners_with_names_hosts_and_brackets():
    config = BrokerConfig(
        {
            "listeners": "INSIDE://:9092,OUTSIDE://[::1]:9093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    inside, outside = config.listener_list
    assert (inside.listener_name, inside.host, inside.port) == ("INSIDE", "", 9092)
    assert (outside.host, outside.security_protocol) == ("::1", "PLAINTEXT")


def test_release_names_compare_by_age():
    assert BrokerConfig({"inter.broker.protocol.version": "2.7"}).is_at_least("2.7-IV2")
    assert not BrokerConfig({"inter.broker.protocol.version": "2.6"}).is_at_least("2.7-IV0")


def test_java_properties_with_continuations_escapes_and_separators():
    text = "# c\n! c\na=b\nc : d\\\n   e\nf g\n  h\\=i = j\\u0041\\n\nempty=\nlast"
    assert parse_properties(text) == {
        "a": "b", "c": "de", "f": "g", "h=i": "jA\n", "empty": "", "last": "",
    }  # fmt: skip


def test_a_topic_shows_where_its_values_come_from():
    static = BrokerConfig({"log.retention.hours": "1", "log.segment.bytes": "1000"})
    view = BrokerConfigView(static, own={"log.segment.bytes": "2000"}, default={})
    overrides = {"retention.ms": "5"}
    entries = {entry.key.name: entry for entry in topic_entries(overrides, view, None)}
    retention = entries["retention.ms"]
    assert (retention.value, retention.source) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert [(s.name, s.value, s.source.name) for s in retention.synonyms] == [
        ("retention.ms", "5", "DYNAMIC_TOPIC_CONFIG"),
    ]
    segment = entries["segment.bytes"]
    assert (segment.value, segment.source) == ("2000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert entries["min.insync.replicas"].source is ConfigSource.DEFAULT_CONFIG


def test_secrets_of_a_broker_are_not_shown():
    view = BrokerConfigView(BrokerConfig({"ssl.key.password": "hunter2"}), own={}, default={})
    (entry,) = broker_entries(view, ["ssl.key.password"])
    assert entry.value is None
    assert "hunter2" not in repr(entry)


def test_incremental_changes_set_delete_append_and_subtract():
    changes = [
        ConfigChange("cleanup.policy", AlterOperation.APPEND, "compact"),
        ConfigChange("retention.ms", AlterOperation.DELETE, None),
        ConfigChange("segment.bytes", AlterOperation.SET, "100"),
    ]
    before = {"retention.ms": "1"}
    after = incremented(before, topic_keys(), changes)
    assert after == {"cleanup.policy": "delete,compact", "segment.bytes": "100"}
    subtract = [ConfigChange("cleanup.policy", AlterOperation.SUBTRACT, "delete")]
    assert incremented(after, topic_keys(), subtract)["cleanup.policy"] == "compact"
    assert before == {"retention.ms": "1"}


@pytest.mark.parametrize(
    "changes",
    [
        [ConfigChange("retention.ms", AlterOperation.APPEND, "1")],
        [ConfigChange("retention.ms", AlterOperation.SET, None)],
        [ConfigChange("retention.ms", 9, None)],
        [ConfigChange("retention.ms", 0, "1"), ConfigChange("retention.ms", 1, None)],
    ],
)
def test_contradictory_changes_are_invalid_requests(changes):
    with pytest.raises(ApiError) as error:
        incremented({}, topic_keys(), changes)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_an_operation_that_no_version_defines_is_an_unknown_error_as_in_kafka():
    with pytest.raises(ApiError) as error:
        incremented({}, topic_keys(), [ConfigChange("retention.ms", 9, "1")])
    assert error.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_altering_all_replaces_all():
    assert replaced([ConfigChange("a", 0, "1")]) == {"a": "1"}
    with pytest.raises(ApiError):
        replaced([ConfigChange("a", 0, None)])


def test_invalid_topic_configs_are_rejected():
    with pytest.raises(ApiError) as error:
        check_topic_config({"retention.msec": "1"})
    assert error.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(UsageError, match=r"retention\.ms"):
        check_topic_config({"retention.ms": "soon"})
    with pytest.raises(ApiError, match="conflict"):
        check_topic_config({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"})


def changed_list(name, before, *operations, keys=None):
    """Return the text of list config `name` after (operation, value)s, from the text `before`."""
    overrides = {} if before is None else {name: before}
    for operation, value in operations:
        change = ConfigChange(name, operation, value)
        overrides = incremented(overrides, keys or topic_keys(), [change])
    return overrides[name]


@pytest.mark.parametrize(
    ("before", "operation", "value", "after"),
    [
        # The default of topics, whatever the broker's is.
        (None, AlterOperation.APPEND, "compact", "delete,compact"),
        (None, AlterOperation.SUBTRACT, "delete", ""),
        (None, AlterOperation.SUBTRACT, "compact", "delete"),
        ("", AlterOperation.SUBTRACT, "delete", ""),
        ("", AlterOperation.SUBTRACT, "shred", ""),
        ("delete,compact,delete", AlterOperation.SUBTRACT, "delete", "compact,delete"),
        ("a,b,a,c", AlterOperation.SUBTRACT, "c,a", "b,a"),
        ("a, b", AlterOperation.SUBTRACT, "b", "a, b"),
        ("", AlterOperation.APPEND, "compact", ",compact"),
        ("a,,", AlterOperation.APPEND, "b,", "a,b"),
    ],
)
def test_lists_are_appended_to_and_subtracted_from_as_text(before, operation, value, after):
    assert changed_list("cleanup.policy", before, (operation, value)) == after


def test_lists_of_a_broker_start_from_its_default():
    both = (AlterOperation.APPEND, "compact"), (AlterOperation.SUBTRACT, "compact")
    keys = BrokerConfig.KEYS
    assert changed_list("log.cleanup.policy", None, both[0], keys=keys) == "delete,compact"
    assert changed_list("log.cleanup.policy", None, *both, keys=keys) == "delete"


@pytest.mark.parametrize("value", ["", "*", ",0:1", "0:1, 2:3", "0:1,", "*,0:1"])
def test_lists_of_throttled_replicas_may_have_empty_entries(value):
    check_topic_config({"leader.replication.throttled.replicas": value})


@pytest.mark.parametrize(
    ("spelling", "version"),
    [
        ("2.7", "2.7-IV2"), ("2.7.0", "2.7-IV2"), ("2.7.2-SNAPSHOT", "2.7-IV2"),
        ("2.7-IV0", "2.7-IV0"), ("2.7-IV1.9", "2.7-IV1"), ("2.0.0", "2.0-IV1"), ("2.7.", "2.7-IV2"),
        ("0.10.2.0", "0.10.2-IV0"), ("0.10.2", "0.10.2-IV0"), ("0.8.2.2", "0.8.2"),
        ("0.10.0-IV0", "0.10.0-IV0"), ("0.11.0.3", "0.11.0-IV2"), ("1.1.x", "1.1-IV0"),
    ],
)  # fmt: skip
def test_versions_are_spelled_in_many_ways(spelling, version):
    assert api_version(spelling) == version
    config = BrokerConfig({"inter.broker.protocol.version": spelling})
    assert config.is_at_least(version)
    assert config.raw_value("inter.broker.protocol.version") == spelling
    check_topic_config({"message.format.version": spelling})
    index = API_VERSIONS.index
    magic = sum(index(version) >= index(first) for first in ("0.10.0-IV0", "0.11.0-IV0"))
    assert LogConfig(message_format_version=spelling).magic == magic
    defaults = BrokerConfig({"log.message.format.version": spelling}).topic_defaults()
    assert defaults["message.format.version"] == version


@pytest.mark.parametrize("spelling", ["", "2", "2.", "2.8", "0.10", "0.8", "2..7", "2.7-IV9", "x"])
def test_invalid_versions_are_rejected(spelling):
    with pytest.raises(UsageError, match="is not a valid version"):
        BrokerConfig({"log.message.format.version": spelling})
    with pytest.raises(UsageError, match="is not a valid version"):
        check_topic_config({"message.format.version": spelling})


def view(**layers):
    return BrokerConfigView(BrokerConfig({}), layers.get("own", {}), layers.get("default", {}))


def test_only_dynamic_settings_of_a_broker_change_while_it_runs():
    check_broker_config({"log.retention.ms": "5"}, view(), is_default=False)
    with pytest.raises(UsageError, match=r"dynamically: Set\(num\.partitions\)"):
        check_broker_config({"num.partitions": "5"}, view(), is_default=False)
    with pytest.raises(UsageError, match=r"log\.segment\.bytes"):
        check_broker_config({"log.segment.bytes": "1"}, view(), is_default=False)


@pytest.mark.parametrize("is_default", [True, False])
def test_a_broker_has_a_cleaner_thread_even_if_the_cleaner_is_disabled(is_default):
    """Apache Kafka divides by their number, and does not start; a change gets UNKNOWN_SERVER_ERROR
    there."""
    none = {"log.cleaner.threads": "0"}
    with pytest.raises(UsageError, match=r"log\.cleaner\.threads must be"):
        BrokerConfig({**none, "log.cleaner.enable": "false"})
    with pytest.raises(UsageError, match=r"log\.cleaner\.threads must be"):
        check_broker_config(none, view(own={"log.cleaner.threads": "2"}), is_default=is_default)


def test_some_settings_belong_to_one_broker_or_one_listener():
    of_one_broker = {"sasl.enabled.mechanisms": "PLAIN"}
    check_broker_config(of_one_broker, view(), is_default=False)
    with pytest.raises(UsageError, match="default cluster level"):
        check_broker_config(of_one_broker, view(), is_default=True)
    with pytest.raises(UsageError, match="default cluster level"):
        check_broker_config({"listener.name.in.ssl.protocol": "x"}, view(), is_default=True)
    check_broker_config({"listener.name.in.max.connections": "9"}, view(), is_default=True)
    check_broker_config({"max.connections": "9"}, view(), is_default=True)
    with pytest.raises(UsageError, match="only per-listener"):
        check_broker_config({"ssl.keystore.type": "PEM"}, view(), is_default=False)


def test_listeners_belong_to_one_broker():
    names = ("listeners", "advertised.listeners", "listener.security.protocol.map")
    for name in names:
        with pytest.raises(UsageError, match=rf"broker id must be specified: Set\({name}\)"):
            check_broker_config({name: "PLAINTEXT://:1"}, view(), is_default=True)
        # Another release may have stored it for all brokers.
        assert view(default={name: "PLAINTEXT://:1"}).effective().given == {}


def test_numbers_of_threads_at_most_double_or_halve():
    for count in ("4", "16"):
        check_broker_config({"num.io.threads": count}, view(), is_default=False)
    for count in ("3", "17"):
        with pytest.raises(
            UsageError, match=r"(at least half|greater than double) the current value 8"
        ):
            check_broker_config({"num.io.threads": count}, view(), is_default=True)
    now = view(own={"num.io.threads": "16"})
    check_broker_config({"num.io.threads": "32"}, now, is_default=False)


def test_throttled_rates_are_numbers_that_only_the_store_holds():
    name = "leader.replication.throttled.rate"
    check_broker_config({name: "1000"}, view(), is_default=False)
    for value in ("-1", "fast"):
        with pytest.raises(UsageError, match=name):
            check_broker_config({name: value}, view(), is_default=False)
    (entry,) = broker_entries(view(own={name: "1000"}), [name])
    assert (entry.value, entry.key.is_sensitive, entry.key.type) == ("1000", False, ConfigType.LONG)
    assert entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert broker_entries(view(), [name]) == []


def test_overrides_that_no_broker_accepts_are_ignored():
    own = {"log.retention.ms": "soon", "num.partitions": "7", "message.max.bytes": "5"}
    default = {"advertised.listeners": "PLAINTEXT://h:1", "log.segment.bytes": "1000"}
    config = view(own=own, default=default).effective()
    assert config.given == {"message.max.bytes": "5", "log.segment.bytes": "1000"}


def test_limits_of_listeners_are_checked_like_the_brokers():
    name = "listener.name.plaintext.max.connections"
    check_broker_config({name: "9"}, view(), is_default=False)
    for value in ("few", "0", "-1"):
        with pytest.raises(UsageError, match=r"max\.connections"):
            check_broker_config({name: value}, view(), is_default=False)
    with pytest.raises(UsageError, match=r"Invalid max\.connection\.creation\.rate 0"):
        check_broker_config({"max.connection.creation.rate": "0"}, view(), is_default=True)
    assert view(own={name: "few"}).effective().given == {}


def test_configs_of_listeners_have_the_brokers_types_and_values_as_synonyms():
    name = "listener.name.plaintext.max.connections"
    (entry,) = broker_entries(view(own={name: "9"}), [name])
    assert (entry.value, entry.key.type, entry.is_read_only) == ("9", ConfigType.INT, True)
    assert [(it.name, it.value) for it in entry.synonyms] == [
        (name, "9"),
        ("max.connections", "2147483647"),
    ]
    secret = "listener.name.in.scram-sha-256.sasl.jaas.config"
    (entry,) = broker_entries(view(own={secret: "x"}), [secret])
    assert (entry.value, entry.key.is_sensitive) == (None, True)
