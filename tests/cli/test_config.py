"""kctl config."""

import pytest


def test_a_setting_is_set_shown_and_reset(on, topic):
    assert on("config", "alter", "topic", topic, "-c", "flush.ms=5000").status == 0
    ran = on("config", "describe", "topic", topic, "-o", "json")
    assert [(it["name"], it["value"], it["source"]) for it in ran.documents] == [
        ("flush.ms", "5000", "DYNAMIC_TOPIC_CONFIG")
    ]

    assert on("config", "alter", "topic", topic, "-d", "flush.ms").status == 0
    assert on("config", "describe", "topic", topic, "-o", "json").documents == []


def test_all_includes_defaults(on, topic):
    ran = on("config", "describe", "topic", topic, "--all", "-o", "json")

    values = {it["name"]: it["value"] for it in ran.documents}
    assert values["max.message.bytes"] == "1048588"
    assert values["cleanup.policy"] == "delete"


def test_single_settings_can_be_described(on, topic):
    ran = on("config", "describe", "topic", topic, "segment.bytes", "-o", "csv")

    assert ran.lines[0] == "name,value,source"
    assert ran.lines[1].startswith("segment.bytes,1073741824,")


def test_a_setting_that_does_not_exist_is_an_error(on, topic):
    ran = on("config", "describe", "topic", topic, "segment.bites")

    assert ran.status == 1
    assert "no setting segment.bites" in ran.err


def test_an_item_is_added_to_a_list(on, topic):
    ran = on("config", "alter", "topic", topic, "--append", "cleanup.policy=compact", "-y")

    assert ran.status == 0, ran.out
    [entry] = on("config", "describe", "topic", topic, "cleanup.policy", "-o", "json").documents
    assert sorted(entry["value"].split(",")) == ["compact", "delete"]


def test_an_invalid_value_is_rejected(on, topic):
    ran = on("config", "alter", "topic", topic, "-c", "flush.ms=soon", "-o", "json")

    assert ran.status == 1
    assert ran.documents[0]["status"] == "failed"
    assert "flush.ms" in ran.documents[0]["error"]


def test_a_brokers_settings_are_shown(on):
    broker = on("cluster", "describe", "-o", "json").documents["brokers"][0]["broker"]

    ran = on("config", "describe", "broker", broker, "listeners", "-o", "json")

    assert ran.documents[0]["value"].startswith("PLAINTEXT://127.0.0.1:")


def test_a_broker_is_named_by_its_id(on):
    ran = on("config", "describe", "broker", "first")

    assert ran.status == 2
    assert "id of a broker" in ran.err


def test_nothing_to_alter_is_invalid_usage(on, topic):
    assert on("config", "alter", "topic", topic).status == 2


def test_an_unknown_topic_is_an_error(on, name):
    ran = on("config", "describe", "topic", name)

    assert ran.status == 1
    assert ran.err.startswith(f"error: No topic {name}\n")


@pytest.mark.parametrize("argv", [("describe",), ("alter", "-c", "log.cleaner.threads=2")])
def test_an_unknown_broker_is_an_error_at_once(on, argv):
    ran = on("config", argv[0], "broker", 77, *argv[1:])

    assert ran.status == 1
    assert ran.err.startswith("error: No broker 77\nhint: known brokers: ")


def test_a_setting_without_its_option_is_answered_with_the_option(on):
    ran = on("config", "alter", "topic", "orders", "flush.ms=5000", "segment.ms=1000")

    assert ran.status == 2
    assert "hint: -c flush.ms=5000 -c segment.ms=1000" in ran.err


@pytest.mark.parametrize("surplus", [("surplus",), ("flush.ms=5000", "surplus")])
def test_another_surplus_argument_is_answered_with_the_help(on, surplus):
    ran = on("config", "alter", "topic", "orders", *surplus)

    assert ran.status == 2
    assert f"Too many arguments: ({' '.join(surplus)})" in ran.err
    assert "hint: see kctl config alter --help" in ran.err
