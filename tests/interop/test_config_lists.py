"""Lists, versions and rates in settings: what kctl and Apache Kafka 2.7.2 make of the same
changes, and what they describe afterwards."""

import pytest

from tests.interop.test_versions_configs import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    describe,
    increment,
    wait_until,
)
from tests.support.broker_client import assert_same

THROTTLED = "leader.replication.throttled.replicas"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate", LOG_DIRS_RATE)


def without_words(answer):
    """An answer whose error messages do not matter."""
    for response in answer["responses"]:
        response["error_message"] = response["error_message"] and "words"
    return answer


def shown(twins, kind, resource, name):
    """What both describe of setting `name`."""
    ours, theirs = describe(twins, 3, kind, resource, keys=[name], include_synonyms=True)
    assert_same(ours, theirs)
    return ours.get(name)


def value(twins, kind, resource, name):
    found = shown(twins, kind, resource, name)
    return found and found["value"]


def test_lists_of_topics_start_from_the_default_of_topics(twins, new_topic):
    topic = new_topic()

    def change(operation, text, name="cleanup.policy"):
        return increment(twins, 1, TOPIC, topic, (name, operation, text))

    # The broker's own list is another one, and does not matter.
    increment(twins, 1, BROKER, "", ("log.cleanup.policy", SET, "compact"))
    try:
        wait_until(lambda: value(twins, BROKER, "0", "log.cleanup.policy") == "compact")
        assert change(APPEND, "compact") == 0
        assert value(twins, TOPIC, topic, "cleanup.policy") == "delete,compact"
        assert change(SUBTRACT, "delete") == 0
        assert change(SUBTRACT, "delete") == 0
        assert value(twins, TOPIC, topic, "cleanup.policy") == "compact"
        assert change(SUBTRACT, "compact") == 0
        assert change(SUBTRACT, "compact") == 0
        assert change(SUBTRACT, "shred") == 0
        assert value(twins, TOPIC, topic, "cleanup.policy") == ""
        assert change(APPEND, "shred") != 0
        # "" and an entry is ",entry", and the empty entry is not a valid value.
        assert change(APPEND, "compact") != 0
        assert change(APPEND, "0:0", THROTTLED) == 0
        assert change(APPEND, "1:0,2:0", THROTTLED) == 0
        assert value(twins, TOPIC, topic, THROTTLED) == ",0:0,1:0,2:0"
        assert change(SUBTRACT, "1:0,9:9,0:0", THROTTLED) == 0
        assert value(twins, TOPIC, topic, THROTTLED) == ",2:0"
        assert change(SUBTRACT, "2:0", THROTTLED) == 0
        assert change(SUBTRACT, "2:0", THROTTLED) == 0
        assert change(SET, "*,x", THROTTLED) == 0
        assert change(SET, "x", THROTTLED) != 0
    finally:
        increment(twins, 1, BROKER, "", ("log.cleanup.policy", DELETE, None))
        wait_until(lambda: value(twins, BROKER, "0", "log.cleanup.policy") == "delete")


@pytest.mark.parametrize("name", ["", "0"])
def test_lists_of_brokers_start_from_their_default(twins, name):
    def change(operation, text):
        return increment(twins, 1, BROKER, name, ("log.cleanup.policy", operation, text))

    def is_now(text):
        wait_until(lambda: value(twins, BROKER, name, "log.cleanup.policy") == text)

    try:
        assert change(APPEND, "compact") == 0
        is_now("delete,compact")
        assert change(SUBTRACT, "compact") == 0
        is_now("delete")
        assert change(SUBTRACT, "compact") == 0
        assert change(APPEND, "shred") != 0
    finally:
        change(DELETE, None)
        is_now(None if name == "" else "delete")


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("resource", ["", "0"])
def test_throttled_rates_are_settings_of_a_broker(twins, resource, name):
    assert shown(twins, BROKER, resource, name) is None
    try:
        assert increment(twins, 1, BROKER, resource, (name, SET, "1000000")) == 0
        wait_until(lambda: value(twins, BROKER, resource, name) == "1000000")
        found = shown(twins, BROKER, resource, name)
        assert not found["is_sensitive"]
        assert increment(twins, 1, BROKER, resource, (name, SET, "-1")) != 0
        assert increment(twins, 1, BROKER, resource, (name, SET, "fast")) != 0
        assert increment(twins, 1, BROKER, resource, (name, APPEND, "1")) != 0
    finally:
        increment(twins, 1, BROKER, resource, (name, DELETE, None))
        wait_until(lambda: value(twins, BROKER, resource, name) is None)


def test_versions_are_spelled_in_many_ways(twins, new_topic):
    topic = new_topic()
    for text in (
        "2.7", "2.7.0", "2.7.2-SNAPSHOT", "2.7-IV0", "2.7-IV1.9", "2.0.0", "2.7.", "0.10.2.0",
        "0.10.2", "0.8.2.2", "0.11.0.3", "1.1.x", " 2.7 ",
    ):  # fmt: skip
        assert alter(twins, 1, TOPIC, topic, {"message.format.version": text}) == 0, text
        assert value(twins, TOPIC, topic, "message.format.version") == text.strip()
    for text in ("", "2", "2.", "2.8", "0.10", "0.8", "2..7", "2.7-IV9", "x"):
        assert alter(twins, 1, TOPIC, topic, {"message.format.version": text}) != 0, text


@pytest.mark.parametrize("resource", ["", "0"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.io.threads", "100"),
        ("num.io.threads", "3"),
        ("log.cleaner.threads", "3"),
        ("background.threads", "21"),
        ("ssl.keystore.type", "PEM"),
        ("ssl.protocol", "TLSv1.2"),
        ("log.retention.hours", "1"),
        ("broker.rack", "a"),
        ("max.connections", "100"),
    ],
)
def test_some_settings_of_a_broker_are_refused(twins, resource, name, text):
    # Apache Kafka names the class of a set here, and one exception inside another there.
    but_code = {"but": without_words} if name.endswith(("threads", "store.type")) else {}
    increment(twins, 1, BROKER, resource, (name, SET, text), **but_code)
    assert alter(twins, 1, BROKER, resource, {}) == 0


@pytest.mark.parametrize("spelling", ["+0", "00", "-0", "0.0", " 0", "0x0", "2147483648"])
def test_ids_of_brokers_are_spelled_in_many_ways(twins, spelling):
    name = "log.retention.ms"
    increment(twins, 1, BROKER, spelling, (name, SET, "600000"))
    describe(twins, 3, BROKER, spelling, keys=["broker.id.generation.enable"])
    assert alter(twins, 1, BROKER, "0", {}) == 0


def test_a_change_that_names_nothing_known_is_refused(twins, new_topic):
    topic = new_topic()
    for operation in (APPEND, SUBTRACT):
        for kind, resource in ((TOPIC, topic), (BROKER, "0")):
            code = increment(twins, 1, kind, resource, ("no.such.setting", operation, "x"))
            assert code != 0


@pytest.mark.parametrize("resource", ["", "0"])
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("compression.type", ("zstd", "uncompressed"), ("lz5", "none", "", "-1")),
        (
            "metric.reporters",
            ("", "org.apache.kafka.common.metrics.JmxReporter"),
            ("no.such.Class", "org.apache.kafka.common.metrics.JmxReporter,x"),
        ),
        ("log.cleaner.dedupe.buffer.size", ("1048577",), ("1048576", "0", "-1")),
        ("log.retention.ms", ("1", "-1", "-2"), ("0", "x")),
        ("log.roll.jitter.ms", ("0",), ("-1",)),
        ("log.roll.ms", ("1",), ("0", "-1")),
    ],
)
def test_values_with_which_no_broker_starts_are_refused(twins, resource, name, good, bad):
    for text in good:
        assert increment(twins, 1, BROKER, resource, (name, SET, text), is_dry=True) == 0
    for text in bad:
        change = (name, SET, text)
        # Apache Kafka's messages begin with "requirement failed".
        code = increment(twins, 1, BROKER, resource, change, is_dry=True, but=without_words)
        assert code != 0


@pytest.mark.parametrize("resource", ["", "0"])
@pytest.mark.parametrize("name", ["principal.builder.class", "ssl.engine.factory.class"])
def test_a_class_that_no_broker_has_is_refused(twins, resource, name):
    for text in ("no.such.Class", ""):
        change = (name, SET, text)
        code = increment(twins, 1, BROKER, resource, change, is_dry=True, but=without_words)
        assert code != 0
