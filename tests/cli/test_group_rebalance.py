"""kctl consume shares a group with another client: partitions are divided and handed over."""

import signal
import subprocess
import sys

import confluent_kafka
import pytest


@pytest.fixture
def other(address, name):
    """A librdkafka consumer in group `name`."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 500,
            "session.timeout.ms": 10_000,
            "enable.auto.commit": True,
        }
    )
    yield consumer
    consumer.close()


def poll_until(consumer, condition):
    """Poll and return the values read."""
    values = []
    for _ in range(4000):
        if condition():
            break
        message = consumer.poll(0.05)
        if message is not None and not message.error():
            values.append(message.value().decode())
    assert condition()
    return values


def assigned(on, name):
    [group] = on("group", "describe", name, "-o", "json").documents
    return group["state"], sorted(len(it["assignment"]) for it in group["members"])


@pytest.mark.slow
def test_partitions_are_shared_and_handed_over(on, address, topic, name, other):
    with subprocess.Popen(
        [sys.executable, "-m", "kctl", "consume", topic, "-g", name, "-B", "-b", address],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        on("produce", topic, "first", "-p", 0)
        assert process.stdout.readline() == "first\n"

        other.subscribe([topic])
        poll_until(other, lambda: assigned(on, name) == ("Stable", [1, 2]))
        for partition in range(3):
            on("produce", topic, f"shared-{partition}", "-p", partition)
        process.send_signal(signal.SIGINT)
        ours = process.stdout.read().split()

    theirs = poll_until(other, lambda: assigned(on, name) == ("Stable", [3]))
    on("produce", topic, "last", "-p", 2)
    theirs += poll_until(other, lambda: len(other.assignment()) == 3)
    while len(ours) + len(theirs) < 4:
        theirs += poll_until(other, lambda: True) or [
            message.value().decode() for message in [other.poll(120)] if message
        ]
    assert sorted(ours + theirs) == ["last", "shared-0", "shared-1", "shared-2"]
