"""Settings of three ages are one table."""

import pytest

from kctl.errors import UsageError
from kctl.kafka.old_names import Age, Setting, choice, flag, instance, number, read_settings, text

TABLE = [
    Setting(
        "wait_ms", number(-1), ("queue.time", "queue.buffering.max.ms", "linger.ms"), (5, 6, 7)
    ),
    Setting("zookeeper", text, ("zk.connect", "zookeeper.connect", None)),
    Setting("codec", choice({"none": 0, "gzip": 1}), ("codec", "codec", "codec"), 0),
    Setting("checks", flag, ("checks", "checks", None), defaults=False),
]


def test_all_spellings_of_a_setting_are_one_setting():
    for name in TABLE[0].names:
        assert read_settings(TABLE, {name: "100"})["wait_ms"] == 100


@pytest.mark.parametrize(
    ("given", "age", "wait_ms"),
    [
        ({}, Age.TODAY, 7),
        ({"codec": "gzip"}, Age.TODAY, 7),
        ({"zk.connect": "h"}, Age.KAFKA_07, 5),
        ({"zookeeper.connect": "h"}, Age.KAFKA_08, 6),
        ({"linger.ms": 1, "zookeeper.connect": "h"}, Age.KAFKA_08, 1),
    ],
)
def test_defaults_are_those_of_the_oldest_age_that_is_spelled(given, age, wait_ms):
    found = read_settings(TABLE, given)
    assert (found.age, found["wait_ms"]) == (age, wait_ms)


def test_a_setting_in_two_spellings_is_an_error():
    with pytest.raises(UsageError, match=r"queue\.time and linger\.ms are the same setting"):
        read_settings(TABLE, {"queue.time": 1, "linger.ms": 1})


def test_an_unknown_name_is_reported_with_the_name_that_was_meant():
    found = read_settings(TABLE, {"queue.tyme": 1, "ssl.key": "k"})
    assert found.warnings == ("unknown setting queue.tyme: did you mean queue.time?",)
    assert found.security == {"ssl.key": "k"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger.ms", "soon"),
        ("linger.ms", -2),
        ("codec", "zip"),
        ("checks", "yes"),
        ("zk.connect", " "),
    ],
)
def test_a_value_that_is_not_valid_is_an_error_that_names_its_setting(name, value):
    with pytest.raises(UsageError, match=name):
        read_settings(TABLE, {name: value})


def test_known_class_names_are_objects_and_others_are_refused():
    read = instance({"kafka.serializer.StringEncoder": str})
    assert read("serializer.class", "kafka.serializer.StringEncoder") is str
    assert read("serializer.class", len) is len
    with pytest.raises(UsageError, match=r"com\.shop\.Encoder: this class is not known"):
        read("serializer.class", "com.shop.Encoder")
