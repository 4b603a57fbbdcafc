"""BrokerConfig: a server.properties as Kafka 2.7 reads it."""

import pytest

from kctl.broker.config import BrokerConfig, parse_properties
from kctl.broker.config_changes import (
    AlterOperation,
    ConfigChange,
    check_broker_config,
    check_topic_config,
    incremented,
    replaced,
    topic_keys,
)
from kctl.broker.config_entries import BrokerConfigView, ConfigSource, broker_entries, topic_entries
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
        ("inter.broker.protocol.version", "4.0", "must be one of"),
        ("listeners", "PLAINTEXT//x", "Unable to parse"),
        ("listeners", "NOBODY://x:1", "No security protocol defined"),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092", "nonroutable"),
    ],
)
def test_a_bad_value_is_named(name, text, words):
    with pytest.raises(UsageError, match=words):
        BrokerConfig({name: text})


def test_listeners_with_names_hosts_and_brackets():
    config = BrokerConfig(
        {
            "listeners": "INSIDE://:9092,OUTSIDE://[::1]:9093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
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
    defaults = {"cleanup.policy": ["delete"]}
    after = incremented(before, defaults, topic_keys(), changes)
    assert after == {"cleanup.policy": "delete,compact", "segment.bytes": "100"}
    subtract = [ConfigChange("cleanup.policy", AlterOperation.SUBTRACT, "delete")]
    assert incremented(after, defaults, topic_keys(), subtract)["cleanup.policy"] == "compact"
    assert before == {"retention.ms": "1"}


@pytest.mark.parametrize(
    "changes",
    [
        [ConfigChange("retention.ms", AlterOperation.APPEND, "1")],
        [ConfigChange("retention.ms", AlterOperation.SET, None)],
        [ConfigChange("retention.ms", 9, "1")],
        [ConfigChange("retention.ms", 0, "1"), ConfigChange("retention.ms", 1, None)],
    ],
)
def test_changes_that_make_no_sense_are_invalid_requests(changes):
    with pytest.raises(ApiError) as error:
        incremented({}, {}, topic_keys(), changes)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_altering_all_replaces_all():
    assert replaced([ConfigChange("a", 0, "1")]) == {"a": "1"}
    with pytest.raises(ApiError):
        replaced([ConfigChange("a", 0, None)])


def test_what_a_topic_cannot_have_is_refused():
    with pytest.raises(ApiError) as error:
        check_topic_config({"retention.msec": "1"})
    assert error.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(UsageError, match=r"retention\.ms"):
        check_topic_config({"retention.ms": "soon"})
    with pytest.raises(ApiError, match="conflict"):
        check_topic_config({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"})


def test_only_dynamic_settings_of_a_broker_change_while_it_runs():
    static = BrokerConfig({})
    check_broker_config({"log.retention.ms": "5"}, ["log.retention.ms"], static)
    with pytest.raises(UsageError, match=r"dynamically: Set\(num\.partitions\)"):
        check_broker_config({"num.partitions": "5"}, ["num.partitions"], static)
    with pytest.raises(UsageError, match=r"log\.segment\.bytes"):
        check_broker_config({"log.segment.bytes": "1"}, ["log.segment.bytes"], static)
