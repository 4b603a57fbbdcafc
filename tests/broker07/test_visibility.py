"""When messages become visible, with 0.7's flush settings: measured on Apache Kafka 0.7."""

from kctl.protocol.kafka07 import Kafka07Error
from kctl.records.message07 import message_set
from tests.support.golden07 import golden07_json
from tests.support.kafka07_world import Kafka07World

# Of Apache Kafka: 500 messages, or 3 s looked at every 3 s.
DEFAULTS = {"log.flush.interval": "500"}
LONGEST_MS = 6_000


def test_messages_are_invisible_until_they_are_flushed():
    world = Kafka07World(DEFAULTS).start()
    end = 0
    for row in golden07_json("visibility.json"):
        count = row["messages in one set"]
        at_the_end, further, growth = row[
            "meanwhile: fetch at the old end, fetch one message further, growth of the file"
        ]
        sent = message_set([b"four"] * count)
        if count < 500:
            assert len(sent) == growth
        growth = len(sent)
        size = sum(map(len, world.files().values()))
        world.produce("t", 0, sent)
        assert sum(map(len, world.files().values())) == size + growth
        if count >= 500:
            assert world.offsets("t", 0)[0] == end + growth, "visible at once"
        else:
            found = world.fetch("t", 0, end)
            assert f"00000002{found.error:04x}" == at_the_end
            assert f"00000002{world.fetch('t', 0, end + 14).error:04x}" == further
            assert world.offsets("t", 0)[0] == end
            world.advance(LONGEST_MS)
        end += growth
        assert world.offsets("t", 0)[0] == end
        assert world.fetch("t", 0, end).error == Kafka07Error.NONE


def test_ages_are_looked_at_by_topic():
    settings = {**DEFAULTS, "topic.flush.intervals.ms": "quick:1", "log.default.flush.interval.ms":
                "3600000", "log.default.flush.scheduler.interval.ms": "100"}  # fmt: skip
    world = Kafka07World(settings).start()
    for topic in ("quick", "slow"):
        world.produce(topic, 0, message_set([b"x"]))
    world.advance(200)
    assert world.offsets("quick", 0)[0] == 11
    assert world.offsets("slow", 0) == [0]
    world.stop()
    assert Kafka07World(disk=world.disk).start().offsets("slow", 0) == [11, 0]


def test_without_settings_of_its_own_everything_is_visible_at_once():
    world = Kafka07World().start()
    world.produce("t", 0, message_set([b"x"]))
    assert world.offsets("t", 0) == [11, 0]
