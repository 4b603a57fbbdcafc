"""Assignment of replicas, compared with that of Apache Kafka 2.7.2's AdminUtils."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.errors import UsageError
from kctl.replica_assignment import assign_replicas, rack_alternated_brokers

# Topics of a recorded cluster of three brokers on three racks: the start and shift that Kafka chose
# explain the whole assignment.
RACKS = {1: "rack1", 2: "rack2", 3: "rack3"}
RECORDED = [
    {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (1, 3), 4: (2, 1), 5: (3, 2)},
    {0: (2, 3), 1: (3, 1), 2: (1, 2), 3: (2, 1)},
    {0: (1, 2, 3)},
]


@pytest.mark.parametrize("recorded", RECORDED)
def test_recorded_topics_are_placed_as_kafka_placed_them(recorded):
    factor = len(recorded[0])
    assert recorded in [
        assign_replicas(RACKS, len(recorded), factor, start_index=start, shift=shift)
        for start, shift in product(range(3), repeat=2)
    ]


def test_added_partitions_continue_as_kafka_continued():
    # kafka-topics --alter: start and shift are the index of partition 0's leader.
    added = assign_replicas(RACKS, 2, 2, start_index=0, shift=0, first_partition=6)
    assert added == {6: (1, 3), 7: (2, 1)}
    added = assign_replicas(RACKS, 1, 2, start_index=1, shift=1, first_partition=4)
    assert added == {4: (3, 2)}


def test_without_racks_followers_shift_with_every_round():
    brokers = dict.fromkeys(range(5))
    placed = assign_replicas(brokers, 10, 3, start_index=0, shift=0)
    assert placed[0] == (0, 1, 2)
    assert placed[4] == (4, 0, 1)
    assert placed[5] == (0, 2, 3)
    assert placed[9] == (4, 1, 2)


def test_racks_alternate():
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert rack_alternated_brokers(racks) == [0, 3, 1, 5, 4, 2]


@given(
    brokers=st.integers(1, 12),
    rack_count=st.integers(1, 4),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_replicas_use_all_racks_before_any_twice(brokers, rack_count, partitions, data):
    racks = {b: f"rack{b % rack_count}" for b in range(brokers)}
    factor = data.draw(st.integers(1, brokers))
    start, shift = data.draw(st.integers(0, brokers - 1)), data.draw(st.integers(0, brokers - 1))
    placed = assign_replicas(racks, partitions, factor, start_index=start, shift=shift)
    assert list(placed) == list(range(partitions))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert len({racks[b] for b in replicas}) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in placed.values())
    counts = [leaders[b] for b in racks]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("partitions", "factor", "message"),
    [
        (0, 1, "Number of partitions must be larger than 0."),
        (1, 0, "Replication factor must be larger than 0."),
        (1, 3, "Replication factor: 3 larger than available brokers: 2."),
    ],
)
def test_impossible_counts_are_rejected_with_kafkas_messages(partitions, factor, message):
    with pytest.raises(UsageError) as refusal:
        assign_replicas({1: None, 2: None}, partitions, factor, start_index=0, shift=0)
    assert str(refusal.value) == message


def test_racks_on_only_some_brokers_are_rejected():
    with pytest.raises(UsageError, match="Not all brokers have rack information"):
        assign_replicas({1: "a", 2: None}, 1, 1, start_index=0, shift=0)
