"""C1: who reads what, as Apache Kafka 1.1.1's assignors compute it.

`KCTL_CLASSIC_ASSIGNMENTS=5000` with `-m kafka` asks the assignors themselves about so many groups.
"""

import json
import os

import pytest

from kctl.kafka.assignment import HashedText, Strategy, assign
from kctl.store.consumer_znodes import BrokerPartition, ConsumedPartition
from tests.kafka.assignment_cases import GOLDEN, for_java, has_tie, ours, same


def test_assignments_are_those_of_java():
    answers = json.loads(GOLDEN.read_text())
    different = [seed for seed, answer in enumerate(answers) if not same(ours(seed), answer)]
    assert different == []
    assert len(answers) == 150


@pytest.mark.kafka
def test_more_assignments_are_those_of_java():
    from tests.support import java_consumers

    java_consumers.skip_without_java()
    seeds = range(int(os.environ.get("KCTL_CLASSIC_ASSIGNMENTS", "500")))
    answers = java_consumers.java_assignments(map(for_java, seeds))
    different = [
        seed
        for seed, answer in zip(seeds, answers, strict=True)
        if not same(ours(seed), answer) and not has_tie(seed)
    ]
    assert different == []


def test_threads_are_sorted_as_strings():
    assigned = assign({"c": {"t": 11}}, {"t": range(11)})
    assert assigned[ConsumedPartition("t", 2)] == "c-10"


def test_a_rest_goes_to_the_first_threads():
    assigned = assign({"a": {"t": 1}, "b": {"t": 1}}, {"t": range(3)})
    assert [*assigned.values()] == ["a-0", "a-0", "b-0"]


def test_partitions_of_kafka_0_7_are_sorted_as_strings():
    partitions = [BrokerPartition(2, 0), BrokerPartition(10, 0), BrokerPartition(0, 10),
                  BrokerPartition(0, 2)]  # fmt: skip
    assigned = assign({"a": {"t": 1}}, {"t": partitions})
    assert [str(it.partition) for it in assigned] == ["0-10", "0-2", "10-0", "2-0"]


def test_names_are_sorted_by_utf_16_units_as_in_java():
    # U+1F600 comes after U+FF5E, but its surrogates before it.
    members = {"\uff5e": {"t": 1}, "\U0001f600": {"t": 1}}
    assigned = assign(members, {"t": range(2)})
    assert assigned[ConsumedPartition("t", 0)] == "\U0001f600-0"


def test_roundrobin_of_older_releases_hashes_another_text():
    members = {"a": {"t": 1}, "b": {"t": 1}}
    by_text = [assign(members, {"t": range(20)}, Strategy.ROUNDROBIN, it) for it in HashedText]
    assert [*by_text[0]] != [*by_text[1]]
    assert [sorted(it.values()) for it in by_text] == [["a-0"] * 10 + ["b-0"] * 10] * 2


def test_topics_without_partitions_or_readers_are_left_out():
    assert assign({"a": {"gone": 1, "t": 0}}, {"t": range(2), "other": range(2)}) == {}
