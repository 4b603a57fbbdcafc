"""Kafka Streams counts words exactly once, killed or not, on kctl as on Apache Kafka 2.7.2."""

import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache_kafka, kafka_streams

pytestmark = pytest.mark.kafka

PARTITIONS = 2
LINES = 400
WORDS = ("to", "be", "or", "not", "that", "is")
TIMEOUT_S = 90


def write_lines(address, topic):
    """How often each word is in them."""
    producer = Producer({"bootstrap.servers": address})
    words = Counter()
    for number in range(LINES):
        line = [WORDS[number % len(WORDS)], WORDS[number % 4]]
        words.update(line)
        producer.produce(topic, " ".join(line), partition=number % PARTITIONS)
    assert producer.flush(120) == 0
    return words


class Counts:
    """What a reader of committed data finds: the counts of each word in the order of the log."""

    def __init__(self, address, topic):
        self.found = {}
        settings = {
            "bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }  # fmt: skip
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def read_until(self, records):
        deadline = time.monotonic() + TIMEOUT_S
        while sum(map(len, self.found.values())) < records:
            assert time.monotonic() < deadline, self.found
            for message in self._consumer.consume(100, 0.1):
                assert message.error() is None, message.error()
                count = int.from_bytes(message.value(), "big")
                self.found.setdefault(message.key().decode(), []).append(count)

    def close(self):
        self._consumer.close()


@pytest.mark.parametrize("guarantee", ["exactly_once", "exactly_once_beta"])
def test_words_are_counted_exactly_once_though_the_counter_is_killed(
    bootstrap, topic, tmp_path, guarantee
):
    if apache_kafka.libs() is None or kafka_streams.jars() is None:
        pytest.skip("no jars of Kafka Streams: python -m tests.support.kafka_streams")
    source, target = f"{topic}-in", f"{topic}-out"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (source, target)])
    for future in made.values():
        future.result(120)
    words = write_lines(bootstrap, source)
    counts = Counts(bootstrap, target)
    log, state = tmp_path / "streams.log", tmp_path / "state"
    run = (log, bootstrap, source, target, topic, state, guarantee)
    with kafka_streams.word_count(*run):
        counts.read_until(LINES // 4)  # and then it is killed
    with kafka_streams.word_count(*run):
        counts.read_until(2 * LINES)
        words.update(write_lines(bootstrap, source))
        counts.read_until(4 * LINES)
    counts.close()
    assert counts.found == {word: list(range(1, count + 1)) for word, count in words.items()}
