"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs in every version, on kctl and on Apache
Kafka 2.7.2."""

import time

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import alter_configs, describe_configs, incremental_alter_configs
from tests.support.broker_client import assert_same
from tests.support.twin_requests import HIGHEST

TOPIC, BROKER, LOGGER = 2, 4, 8
STATIC, DEFAULT = 4, 5
# They say where a broker is and where its files are.
OF_THE_BROKER = {
    "advertised.listeners", "broker.id", "listeners", "log.dir", "log.dirs", "port",
    "zookeeper.connect",
}  # fmt: skip

SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(twins, version, kind, name, *, keys=None, **fields):
    """Both answers: setting -> what is said of it."""
    request = describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            )
        ],
        **fields,
    )
    has_words = request.include_documentation
    answers = twins.both(request, version)
    results = [answer["results"][0] for answer in answers]
    tables = []
    for result in results:
        tables.append({config.pop("name"): config for config in result.pop("configs")})
        for config in tables[-1].values():
            # Apache Kafka's messages differ.
            assert config["documentation"] is None or has_words or version < 3
            del config["documentation"]
            if version == 0:
                # KIP-226 lost it in Apache Kafka 2.7: there nothing is a default.
                config["is_default"] = False
        if result["error_code"]:
            # Some, "" or null.
            result["error_message"] = result["error_message"] and "words"
    assert_same(*results)
    return tables


@pytest.mark.parametrize("version", HIGHEST[ApiKey.DESCRIBE_CONFIGS])
def test_topic_configs_are_described_in_full(twins, new_topic, version):
    topic = new_topic(
        cleanup_policy="compact,delete", retention_ms="1000", segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.25", unclean_leader_election_enable="true",
        message_format_version="0.10.2",
    )  # fmt: skip
    options = [{}]
    if version >= 1:
        options.append({"include_synonyms": True})
    if version >= 3:
        options.append({"include_synonyms": True, "include_documentation": True})
    for fields in options:
        for keys in (None, [], ["retention.ms", "no.such.setting"]):
            ours, theirs = describe(twins, version, TOPIC, topic, keys=keys, **fields)
            assert_same(ours, theirs)
            assert len(ours) == (1 if keys else 26)
    describe(twins, version, TOPIC, "no-such-topic")
    describe(twins, version, TOPIC, "bad name")
    describe(twins, version, 9, topic)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.DESCRIBE_CONFIGS])
def test_broker_configs_are_described_in_full(twins, version):
    fields = {"include_synonyms": True} if version >= 1 else {}
    ours, theirs = describe(twins, version, BROKER, "0", **fields)
    for table in (ours, theirs):
        for name in OF_THE_BROKER:
            del table[name]
    assert_same(sorted(ours), sorted(theirs))
    assert_same(ours, theirs)
    describe(twins, version, BROKER, "", **fields)
    describe(twins, version, BROKER, "1", **fields)
    describe(twins, version, BROKER, "one", **fields)


def alter_request(*resources, is_dry=False):
    """An AlterConfigs for (kind, name, settings)."""
    return alter_configs.AlterConfigsRequest(
        validate_only=is_dry,
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    alter_configs.AlterableConfig(name=key, value=value)
                    for key, value in settings.items()
                ],
            )
            for kind, name, settings in resources
        ],
    )


def incremental_request(*resources, is_dry=False):
    """An IncrementalAlterConfigs for (kind, name, operations): (setting, operation, value)."""
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        validate_only=is_dry,
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in operations
                ],
            )
            for kind, name, operations in resources
        ],
    )


def alter(twins, version, kind, name, settings, *, is_dry=False):
    """Return the error code with which both brokers answer an AlterConfigs."""
    request = alter_request((kind, name, settings), is_dry=is_dry)
    return error_and_words(twins.ask(request, version))


def increment(twins, version, kind, name, *operations, is_dry=False, but=None):
    """The same of IncrementalAlterConfigs with (setting, operation, value)."""
    request = incremental_request((kind, name, operations), is_dry=is_dry)
    return error_and_words(twins.ask(request, version, but=but))


def error_and_words(answer):
    (response,) = answer["responses"]
    return response["error_code"]


def overrides(twins, topic):
    ours, theirs = describe(twins, 3, TOPIC, topic, include_synonyms=True)
    assert_same(ours, theirs)
    return {name: found["value"] for name, found in ours.items() if found["config_source"] == 1}


@pytest.mark.parametrize("version", HIGHEST[ApiKey.ALTER_CONFIGS])
def test_alter_configs_replaces_what_a_topic_overrides(twins, new_topic, version):
    topic = new_topic(retention_ms="1000")

    def ask(**settings):
        names = {key.replace("_", "."): value for key, value in settings.items()}
        return alter(twins, version, TOPIC, topic, names)

    assert ask(segment_bytes="100000", cleanup_policy="compact") == 0
    wait_until(lambda: overrides(twins, topic).keys() == {"segment.bytes", "cleanup.policy"})
    assert alter(twins, version, TOPIC, topic, {}, is_dry=True) == 0
    assert ask(segment_bytes="many") == ErrorCode.INVALID_REQUEST
    assert ask(segment_bytes="1") == ErrorCode.INVALID_REQUEST
    assert ask(cleanup_policy="shred") == ErrorCode.INVALID_REQUEST
    ask(no_such_setting="1")
    ask(min_compaction_lag_ms="5", max_compaction_lag_ms="3")
    alter(twins, version, TOPIC, "no-such-topic", {})
    alter(twins, version, TOPIC, "", {})
    assert len(overrides(twins, topic)) == 2
    assert alter(twins, version, TOPIC, topic, {}) == 0
    wait_until(lambda: overrides(twins, topic) == {})


@pytest.mark.parametrize("version", HIGHEST[ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_incremental_alter_configs_changes_one_by_one(twins, new_topic, version):
    topic = new_topic(retention_ms="1000", cleanup_policy="delete")

    def ask(*operations, **options):
        return increment(twins, version, TOPIC, topic, *operations, **options)

    assert ask(("cleanup.policy", APPEND, "compact"), ("retention.ms", DELETE, None)) == 0
    wait_until(lambda: overrides(twins, topic) == {"cleanup.policy": "delete,compact"})
    assert ask(("cleanup.policy", SUBTRACT, "delete"), ("segment.ms", SET, "7")) == 0
    wait_until(lambda: overrides(twins, topic)["cleanup.policy"] == "compact")
    assert ask(("segment.ms", APPEND, "7")) == ErrorCode.INVALID_REQUEST
    assert ask(("segment.ms", SET, None)) == ErrorCode.INVALID_REQUEST
    assert ask(("segment.ms", SET, "seven")) == ErrorCode.INVALID_REQUEST
    assert ask(("segment.ms", SET, "7"), ("segment.ms", DELETE, "")) == ErrorCode.INVALID_REQUEST
    assert ask(("segment.ms", DELETE, None), is_dry=True) == 0
    assert ask(("retention.bytes", DELETE, None)) == 0
    ask(("no.such.setting", SET, "1"))
    ask(("no.such.setting", DELETE, ""))
    increment(twins, version, TOPIC, "no-such-topic", ("segment.ms", SET, "1"))
    increment(twins, version, BROKER, "7", ("log.retention.ms", SET, "1"))
    increment(twins, version, BROKER, "x", ("log.retention.ms", SET, "1"))
    assert len(overrides(twins, topic)) == 2


@pytest.mark.parametrize("version", HIGHEST[ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_an_operation_that_no_version_defines_is_refused(twins, new_topic, version):
    topic = new_topic()
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    for kind, name, setting in (
        (TOPIC, topic, "segment.ms"),
        (BROKER, "", "log.retention.ms"),
        (LOGGER, "0", "kafka"),
    ):
        assert increment(twins, version, kind, name, (setting, 9, "7")) == unknown
        refused = increment(twins, version, kind, name, (setting, 9, None))
        assert refused == ErrorCode.INVALID_REQUEST
    assert overrides(twins, topic) == {}


def test_the_last_entry_of_a_topic_in_an_incremental_request_is_applied(twins, new_topic):
    topic, other = new_topic(), new_topic()
    request = incremental_request(
        (TOPIC, topic, [("no.such.setting", SET, "1")]),
        (TOPIC, other, [("segment.ms", SET, "6")]),
        (TOPIC, topic, [("segment.ms", SET, "7")]),
    )
    answer = twins.ask(request, 1)
    assert [it["error_code"] for it in answer["responses"]] == [0, 0]
    wait_until(lambda: overrides(twins, topic) == {"segment.ms": "7"})


def test_alter_configs_fails_as_a_whole_for_a_null_value(twins, new_topic):
    topics = [new_topic(), new_topic()]
    request = alter_request(
        *(
            (TOPIC, topic, {"segment.ms": value})
            for topic, value in zip(topics, ("7", None), strict=True)
        )
    )
    answer = twins.ask(request, 1)
    codes = [it["error_code"] for it in answer["responses"]]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert [overrides(twins, topic) for topic in topics] == [{}, {}]


def wait_until(condition):
    """Until it is so on both brokers, which hear of changes in their own time."""
    deadline = time.monotonic() + 120
    while True:
        try:
            assert condition()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


@pytest.mark.parametrize("name", ["", "0"])
def test_broker_configs_change_while_it_runs(twins, name):
    own = 3 if name == "" else 2
    changes = {
        "log.retention.ms": "600000",
        "log.cleaner.threads": "2",
        "max.connections.per.ip.overrides": "10.0.0.1:5",
        "message.max.bytes": "2000000",
        "compression.type": "gzip",
    }
    if name:
        del changes["max.connections.per.ip.overrides"]
    try:
        assert increment(twins, 1, BROKER, name, *((k, SET, v) for k, v in changes.items())) == 0

        def dynamic():
            ours, theirs = describe(twins, 3, BROKER, name, include_synonyms=True)
            for table in (ours, theirs):
                for key in OF_THE_BROKER:
                    table.pop(key, None)
            assert_same(ours, theirs)
            return {k: it["value"] for k, it in ours.items() if it["config_source"] == own}

        wait_until(lambda: dynamic() == changes)
        assert increment(twins, 1, BROKER, name, ("num.partitions", SET, "3")) != 0
        assert increment(twins, 1, BROKER, name, ("log.cleaner.threads", SET, "x")) != 0
        assert increment(twins, 1, BROKER, name, ("log.cleaner.threads", SET, "-1")) != 0
        # It may be a plugin's.
        assert increment(twins, 1, BROKER, name, ("no.such.setting", SET, "1")) == 0
        wait_until(lambda: dynamic() == {**changes, "no.such.setting": None})
        changes["no.such.setting"] = None
    finally:
        increment(twins, 1, BROKER, name, *((k, DELETE, None) for k in changes))
    wait_until(lambda: dynamic() == {})
