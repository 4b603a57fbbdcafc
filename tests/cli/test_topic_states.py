"""Partitions by state: the options of topic list and describe, and the states themselves."""

import pytest

from kctl.admin.partition_states import PartitionState, states_of
from kctl.admin.topics import PartitionDescription

STATES = ("--under-replicated", "--under-min-isr", "--at-min-isr", "--unavailable")


@pytest.mark.parametrize(
    ("leader", "isr", "min_isr", "adding", "expected"),
    [
        (1, [1, 2, 3], 2, 0, ""),
        (1, [1, 2], 2, 0, "under-replicated at-min-isr"),
        (1, [1], 2, 0, "under-replicated under-min-isr"),
        (1, [1, 2], None, 0, "under-replicated"),
        (1, [1, 2], 1, 1, ""),
        (-1, [1], 1, 0, "under-replicated under-min-isr at-min-isr unavailable"),
    ],
)
def test_states_are_those_of_kafka_topics(leader, isr, min_isr, adding, expected):
    partition = PartitionDescription("t", 0, leader, 0, [1, 2, 3], isr, [])

    assert states_of(partition, min_isr, adding) == set(map(PartitionState, expected.split()))


@pytest.fixture
def below(on, name):
    """A topic whose single replica is fewer than min.insync.replicas."""
    config = ("-c", "min.insync.replicas=2")
    below = f"{name}-below"
    assert on("topic", "create", below, "-p", 2, "-r", 1, *config).status == 0
    return below


def test_topics_are_listed_by_state(on, topic, below):
    def listed(option):
        names = on("topic", "list", "t-*", option, "-o", "name").lines
        return {it for it in names if it in (topic, below)}

    assert [listed(option) for option in STATES] == [set(), {below}, {topic}, set()]


def test_partitions_are_described_by_state(on, topic, below):
    def described(*options):
        ran = on("topic", "describe", topic, below, *options, "-o", "json")
        return {it["name"]: len(it["partitions"]) for it in ran.documents}

    assert [described(option) for option in STATES] == [{}, {below: 2}, {topic: 3}, {}]
    assert described("--under-min-isr", "--at-min-isr") == {below: 2, topic: 3}


def test_describe_shows_the_size_of_each_partition_and_of_the_topic(on, topic):
    on("produce", topic, "x" * 2000, "-p", 1)

    [document] = on("topic", "describe", topic, "--size", "-o", "json").documents

    sizes = [it["size_bytes"] for it in document["partitions"]]
    assert sizes[0] == sizes[2] == 0
    assert document["size_bytes"] == sizes[1] > 2000
    table = on("topic", "describe", topic, "--size")
    assert table.lines[0].startswith(f"{topic}: 3 partitions, replication factor 1, ")
    assert table.lines[0].endswith(" KiB")
    assert table.lines[1].split()[-1] == "SIZE"
    assert table.lines[3].endswith(" KiB")
