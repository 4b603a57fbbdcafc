"""The planner compared with Kafka's own assignment, on random clusters, and in single cases."""

import os
import random  # noqa: TID251 - clusters come from seeds

import pytest

from kctl.admin.reassignment_plan import (
    BalanceBy,
    ClusterLayout,
    add_brokers,
    drain,
    move,
    rebalance,
    set_replication_factor,
    swap_leader,
)
from kctl.errors import ImpossibleError, UsageError
from kctl.model import TopicPartition
from kctl.replica_assignment import assign_replicas

CLUSTERS = int(os.environ.get("KCTL_PLANNER_CLUSTERS", "1000"))


def layout(racks, partitions, sizes=None):
    """`racks`: {broker: rack}, or ids without racks; `partitions`: {"t-0": (1, 2)}."""
    racks = racks if isinstance(racks, dict) else dict.fromkeys(racks)
    assignment = {
        TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])): tuple(brokers)
        for name, brokers in partitions.items()
    }
    return ClusterLayout(racks, assignment, sizes or {})


def counts(found, assignment):
    held = dict.fromkeys(found.racks, 0)
    for brokers in assignment.values():
        for broker in brokers:
            held[broker] = held.get(broker, 0) + 1
    return held


def final(plan):
    return {**plan.layout.assignment, **plan.after}


def spread(found, assignment):
    held = counts(found, assignment).values()
    return max(held) - min(held)


def leader_spread(found, assignment):
    held = dict.fromkeys(found.racks, 0)
    for brokers in assignment.values():
        held[brokers[0]] += 1
    return max(held.values()) - min(held.values())


def byte_spread(found, assignment):
    held = dict.fromkeys(found.racks, 0)
    for tp, brokers in assignment.items():
        for broker in brokers:
            held[broker] += found.sizes[tp]
    return max(held.values()) - min(held.values())


def copies(before, after):
    return sum(len(set(after[tp]) - set(before[tp])) for tp in after)


def check_racks(racks, assignment):
    """Assert that no broker has two replicas of a partition, and no rack two before all are
    used."""
    for tp, brokers in assignment.items():
        assert len(set(brokers)) == len(brokers)
        if None not in racks.values():
            used = len({racks[broker] for broker in brokers})
            assert used == min(len(brokers), len(set(racks.values()))), tp


def random_cluster(seed):
    """Return a cluster with or without racks, whose topics are distributed arbitrarily."""
    chance = random.Random(seed)
    brokers = range(chance.randint(2, 12))
    rack_count = chance.choice([0, 0, 2, 3, 4])
    racks = {b: f"r{chance.randrange(rack_count)}" if rack_count else None for b in brokers}
    old = sorted(chance.sample(brokers, chance.randint(2, len(brokers))))
    assignment, sizes = {}, {}
    for topic in range(chance.randint(1, 6)):
        factor = chance.randint(1, min(3, len(old)))
        for number in range(chance.randint(1, 30)):
            tp = TopicPartition(f"t{topic}", number)
            assignment[tp] = tuple(chance.sample(old, factor))
            sizes[tp] = int(chance.lognormvariate(20, 1.5))
    return ClusterLayout(racks, assignment, sizes), chance


def generated(found, chance):
    """Return what Kafka's --generate proposes for all topics and all brokers."""
    proposal = {}
    by_topic = {}
    for tp, brokers in found.assignment.items():
        by_topic.setdefault(tp.topic, []).append(brokers)
    for topic, partitions in by_topic.items():
        placed = assign_replicas(
            found.racks,
            len(partitions),
            len(partitions[0]),
            start_index=chance.randrange(len(found.racks)),
            shift=chance.randrange(len(found.racks)),
        )
        proposal |= {TopicPartition(topic, n): brokers for n, brokers in placed.items()}
    return proposal


@pytest.mark.parametrize(
    "clusters", [CLUSTERS // 5, pytest.param(CLUSTERS, marks=pytest.mark.slow)]
)
def test_balance_is_no_worse_than_kafkas_generate_and_equal_balance_needs_no_more_moves(clusters):
    """Where Kafka's proposal needs fewer moves, its balance is worse, and that of kctl after as
    many moves is no worse than Kafka's."""
    fewer = 0
    for seed in range(clusters):
        found, chance = random_cluster(seed)
        theirs = generated(found, chance)
        their_moves = copies(found.assignment, theirs)
        plan = rebalance(found, BalanceBy.COUNT)
        check_racks(found.racks, final(plan))
        assert spread(found, final(plan)) <= spread(found, theirs), seed
        if plan.moves > their_moves:
            fewer += 1
            assert spread(found, final(plan)) < spread(found, theirs), seed
            plan = rebalance(found, BalanceBy.COUNT, moves_max=their_moves)
            assert plan.moves <= their_moves, seed
            assert spread(found, final(plan)) <= spread(found, theirs), seed
    assert fewer < clusters / 20


def test_every_intent_keeps_the_rack_rule_and_is_deterministic():
    for seed in range(0, CLUSTERS, 10):
        found, _ = random_cluster(seed)
        for intent in (rebalance, lambda it: rebalance(it, BalanceBy.SIZE)):
            plan = intent(found)
            check_racks(found.racks, final(plan))
            shuffled = dict(reversed(found.assignment.items()))
            again = intent(ClusterLayout(found.racks, shuffled, found.sizes))
            assert list(plan.after.items()) == list(again.after.items())


def test_thirteen_partitions_on_two_of_four_brokers_are_even_after_six_moves():
    names = [(f"a-{n}", (1,)) for n in range(7)] + [(f"b-{n}", (2,)) for n in range(6)]
    plan = rebalance(layout([1, 2, 3, 4], dict(names)))
    assert plan.moves == 6
    assert sorted(counts(plan.layout, final(plan)).values()) == [3, 3, 3, 4]


def test_a_balanced_cluster_does_not_change():
    plan = rebalance(layout([1, 2], {"a-0": (1, 2), "a-1": (2, 1)}))
    assert plan.after == {}


@pytest.mark.slow
def test_ten_thousand_partitions_are_planned_at_once():
    """docs/reassignment.md has the time it takes; this test checks that it completes, and the
    balance."""
    chance = random.Random(7)
    racks = {broker: f"r{broker % 3}" for broker in range(60)}
    old = {broker: racks[broker] for broker in range(45)}
    assignment, sizes = {}, {}
    for topic in range(200):
        start, shift = chance.randrange(45), chance.randrange(45)
        placed = assign_replicas(old, 50, 3, start_index=start, shift=shift)
        for number, brokers in placed.items():
            assignment[TopicPartition(f"t{topic}", number)] = brokers
            sizes[TopicPartition(f"t{topic}", number)] = int(chance.lognormvariate(20, 1))
    found = ClusterLayout(racks, assignment, sizes)
    plan = rebalance(found)
    assert (spread(found, final(plan)), leader_spread(found, final(plan))) == (0, 1)
    assert plan.moves == 15 * 500
    check_racks(racks, final(plan))


def test_drain_moves_only_replicas_of_the_drained_broker():
    racks = {1: "a", 2: "b", 3: "c", 4: "c"}
    plan = drain(
        layout(racks, {"a-0": (1, 2, 3), "a-1": (3, 1, 2), "a-2": (2, 1, 4), "b-0": (4,)}), [3]
    )
    assert {tp: set(brokers) for tp, brokers in plan.after.items()} == {
        ("a", 0): {1, 2, 4},
        ("a", 1): {4, 1, 2},
    }
    assert plan.moves == 2


def test_a_drained_rack_is_replaced_by_the_others_and_the_rest_keeps_the_rule():
    for seed in range(200):
        found, chance = random_cluster(seed)
        if len(found.racks) < 5:
            continue
        gone = chance.sample(sorted(found.racks), 1)
        corrected = rebalance(found)
        found = ClusterLayout(found.racks, final(corrected), found.sizes)
        plan = drain(found, gone)
        assert plan.moves == counts(found, found.assignment)[gone[0]]
        rest = {b: rack for b, rack in found.racks.items() if b not in gone}
        check_racks(rest, {tp: plan.after[tp] for tp in plan.after})


def test_a_dead_broker_can_be_drained():
    plan = drain(layout([1, 2, 3], {"a-0": (9, 1), "a-1": (1, 2)}), [9])
    assert {tp: set(brokers) for tp, brokers in plan.after.items()} in (
        {("a", 0): {1, 2}},
        {("a", 0): {1, 3}},
    )


def test_the_error_names_replicas_that_fit_on_no_broker():
    with pytest.raises(ImpossibleError, match="a-0 has 2 replicas: more than 1 broker"):
        drain(layout([1, 2], {"a-0": (1, 2)}), [2])


def test_new_brokers_get_their_share_and_nothing_moves_between_the_others():
    partitions = {f"a-{n}": (1 + n % 2, 2 - n % 2) for n in range(12)}
    found = layout([1, 2, 3, 4], partitions)
    plan = add_brokers(found, [3, 4])
    assert counts(found, final(plan)) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert {broker for tp in plan.after for broker in plan.adding(tp)} == {3, 4}


def test_more_replicas_go_to_racks_without_one_and_fewer_leave_crowded_racks():
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = set_replication_factor(layout(racks, {"t-0": (1,), "t-1": (3,)}), "t", 2)
    check_racks(racks, plan.after)
    assert [plan.after[("t", n)][0] for n in (0, 1)] == [1, 3]
    plan = set_replication_factor(layout(racks, {"t-0": (1, 2, 3)}), "t", 2)
    assert plan.after == {("t", 0): (1, 3)}
    assert (plan.moves, plan.removing(TopicPartition("t", 0))) == (0, (2,))


@pytest.mark.parametrize(
    ("replication_factor", "error", "words"),
    [
        (0, UsageError, "must be larger than 0"),
        (3, ImpossibleError, "larger than available brokers: 2"),
    ],
)
def test_impossible_replication_factors_are_refused(replication_factor, error, words):
    with pytest.raises(error, match=words):
        set_replication_factor(layout([1, 2], {"t-0": (1,)}), "t", replication_factor)


def test_balance_by_size_moves_few_large_replicas():
    found = layout(
        [1, 2],
        {f"t-{n}": (1,) for n in range(6)},
        {TopicPartition("t", n): size for n, size in enumerate([100, 50, 20, 20, 5, 5])},
    )
    plan = rebalance(found, BalanceBy.SIZE)
    assert (plan.bytes_to_move, byte_spread(found, final(plan))) == (100, 0)


def test_balance_by_leaders_moves_nothing():
    found = layout([1, 2, 3], {f"t-{n}": (1, 2, 3) for n in range(9)})
    plan = rebalance(found, BalanceBy.LEADERS)
    assert (plan.moves, leader_spread(found, final(plan))) == (0, 0)
    assert {tuple(sorted(brokers)) for brokers in plan.after.values()} == {(1, 2, 3)}


def test_other_topics_are_not_touched():
    found = layout([1, 2], {"a-0": (1,), "a-1": (1,), "b-0": (1,), "b-1": (1,)})
    plan = rebalance(found, topics=["b"])
    assert {tp.topic for tp in plan.after} == {"b"}
    assert counts(found, final(plan)) == {1: 2, 2: 2}


def test_a_replica_is_moved_and_a_leader_swapped_in_place():
    found = layout([1, 2, 3], {"t-0": (1, 2)})
    tp = TopicPartition("t", 0)
    assert move(found, [tp], 2, 3).after == {tp: (1, 3)}
    assert swap_leader(found, [tp]).after == {tp: (2, 1)}
    assert swap_leader(found, [tp], 1).after == {}
    with pytest.raises(ImpossibleError, match="t-0 has no replica on broker 3, only on 1, 2"):
        swap_leader(found, [tp], 3)
    with pytest.raises(ImpossibleError, match="t-0 has a replica on broker 2 already"):
        move(found, [tp], 1, 2)


def test_loads_describe_what_brokers_hold_send_and_receive():
    tp = TopicPartition("t", 0)
    found = layout([1, 2, 3], {"t-0": (1, 2)}, {tp: 700})
    plan = move(found, [tp], 2, 3)
    loads = {
        it.broker_id: (it.replicas, it.bytes, it.bytes_in, it.bytes_out) for it in plan.loads()
    }
    assert loads == {
        1: ((1, 1), (700, 700), 0, 700),
        2: ((1, 0), (700, 0), 0, 0),
        3: ((0, 1), (0, 700), 700, 0),
    }
    assert plan.estimate_ms(rate=100) == 7000
