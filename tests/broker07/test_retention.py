"""When segments of Kafka 0.7 are rolled and deleted."""

import pytest

from kctl.broker07.config import MS_PER_HOUR, parse_config
from kctl.errors import UsageError
from kctl.records.message07 import message_set
from tests.support.kafka07_world import Kafka07World

SET = message_set([b"x" * 90])
SMALL = {"log.file.size": "250", "log.cleanup.interval.mins": "1"}


def filled(properties, sets=12):
    world = Kafka07World({**SMALL, **properties}).start()
    for _ in range(sets):
        world.produce("t", 0, SET)
    return world


def starts(world):
    return sorted(int(path[4:24]) for path in world.files())


def test_a_segment_above_the_size_is_rolled_before_the_next_message():
    assert starts(filled({})) == [0, 300, 600, 900]


def test_an_old_segment_is_rolled_before_the_next_message():
    world = filled({"topic.log.roll.hours": "t:2"}, sets=1)
    world.advance(2 * MS_PER_HOUR + 1)
    assert starts(world) == [0]
    world.produce("t", 0, SET)
    assert starts(world) == [0, 100]


def test_the_oldest_segments_beyond_the_size_are_deleted():
    world = filled({"log.retention.size": "500"})
    world.advance(61_000)
    assert starts(world) == [600, 900]
    assert world.offsets("t", 0) == [1_200, 900, 600]
    assert world.fetch("t", 0, 0).error == 1


def test_old_segments_are_deleted_and_the_end_stays():
    world = filled({"log.retention.hours": "1", "log.roll.hours": "1000"})
    world.advance(2 * MS_PER_HOUR)
    assert starts(world) == [1_200]
    assert world.offsets("t", 0) == [1_200]
    world.produce("t", 0, SET)
    assert world.fetch("t", 0, 1_200).message_set == SET


def test_topics_have_settings_of_their_own():
    world = filled({"log.retention.hours": "1", "topic.log.retention.hours": "t:1000"})
    world.advance(2 * MS_PER_HOUR)
    assert starts(world) == [0, 300, 600, 900]


@pytest.mark.parametrize(
    "text", ["topic.log.file.size=t", "topic.log.file.size=t:0", "port=65536", "num.partitions=x",
             "enable.zookeeper=yes"],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(text):
    name, _, value = text.partition("=")
    with pytest.raises(UsageError, match=name):
        parse_config({name: value})
