"""Words sent to a topic and read back, by confluent-kafka."""

import time

from confluent_kafka import Consumer, Producer, TopicPartition

PATIENCE_S = 60


def produce(bootstrap, topic, words):
    """All of them, acknowledged."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for word in words:
        producer.produce(topic, word, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def read(bootstrap, topic, partitions, count):
    """From the beginning until there are `count`, sorted."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [m.value().decode() for m in consumer.consume(100, 0.2) if not m.error()]
    consumer.close()
    return sorted(found)
