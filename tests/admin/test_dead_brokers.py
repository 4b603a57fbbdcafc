"""Plans of clusters in which brokers 8 and 9 are not alive."""

import pytest

from kctl.admin.dead_brokers import DeadBrokers, dead_replicas
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
from kctl.errors import UsageError
from kctl.model import TopicPartition

KEEP, EVACUATE = DeadBrokers.KEEP, DeadBrokers.EVACUATE


def layout(partitions, live=(1, 2, 3)):
    assignment = {TopicPartition("t", n): brokers for n, brokers in enumerate(partitions)}
    return ClusterLayout(dict.fromkeys(live), assignment, dict.fromkeys(assignment, 100))


def tps(*numbers):
    return [TopicPartition("t", number) for number in numbers]


# Broker 9 has a replica of partitions 0 and 1, which every intent concerns.
FOUND = layout([(9, 1), (1, 9), (1, 2), (1, 2), (1, 3), (1, 2)])
INTENTS = {
    "rebalance by count": lambda dead: rebalance(FOUND, dead=dead),
    "rebalance by size": lambda dead: rebalance(FOUND, BalanceBy.SIZE, dead=dead),
    "rebalance by leaders": lambda dead: rebalance(FOUND, BalanceBy.LEADERS, dead=dead),
    "rebalance over brokers": lambda dead: rebalance(FOUND, brokers=[1, 2], dead=dead),
    "drain": lambda dead: drain(FOUND, [1], dead),
    "add": lambda dead: add_brokers(FOUND, [3], dead=dead),
    "more replicas": lambda dead: set_replication_factor(FOUND, "t", 3, dead),
    "fewer replicas": lambda dead: set_replication_factor(FOUND, "t", 1, dead),
    "move": lambda dead: move(FOUND, tps(0, 2), 1, 3, dead),
    "swap leader": lambda dead: swap_leader(FOUND, tps(1, 2), dead=dead),
}


@pytest.mark.parametrize("intent", INTENTS)
def test_every_plan_is_refused_and_names_the_dead_broker(intent):
    with pytest.raises(UsageError, match=r"^Broker 9 is not alive and has \d replicas? that") as it:
        INTENTS[intent](DeadBrokers.REFUSE)
    assert "--dead-brokers keep" in it.value.hint


@pytest.mark.parametrize("intent", INTENTS)
def test_partitions_with_a_replica_on_a_dead_broker_can_be_kept(intent):
    plan = INTENTS[intent](KEEP)
    assert plan.after
    assert not set(plan.after) & set(tps(0, 1))
    assert all(9 not in after for after in plan.after.values())


@pytest.mark.parametrize("intent", set(INTENTS) - {"move", "swap leader", "rebalance by leaders"})
def test_dead_brokers_are_evacuated_on_request(intent):
    plan = INTENTS[intent](EVACUATE)
    final = {**FOUND.assignment, **plan.after}
    assert dead_replicas(FOUND.racks, final) == {}
    assert all(len(set(brokers)) == len(brokers) for brokers in final.values())


@pytest.mark.parametrize("intent", ["move", "swap leader", "rebalance by leaders"])
def test_an_intent_that_copies_nothing_else_does_not_evacuate(intent):
    with pytest.raises(UsageError, match="evacuate"):
        INTENTS[intent](EVACUATE)


def test_a_drain_evacuates_other_dead_brokers_only_of_what_it_drains():
    found = layout([(1, 9), (2, 9)])
    assert set(drain(found, [1], EVACUATE).after) == set(tps(0))


def test_an_intent_that_names_the_dead_broker_moves_its_replicas():
    assert set(drain(FOUND, [9]).after) == set(tps(0, 1))
    assert move(FOUND, tps(0), 9, 2).after == {TopicPartition("t", 0): (2, 1)}


def test_a_dead_broker_that_the_intent_does_not_concern_forbids_nothing():
    assert rebalance(FOUND, topics=[]).after == {}
    assert move(FOUND, tps(2), 2, 3).after == {TopicPartition("t", 2): (1, 3)}
    assert swap_leader(FOUND, tps(2)).after == {TopicPartition("t", 2): (2, 1)}
    assert set(drain(FOUND, [3]).after) == set(tps(4))


def test_the_refusal_counts_the_replicas_of_several_dead_brokers():
    with pytest.raises(UsageError, match=r"^Brokers 8, 9 are not alive and have 3 replicas"):
        rebalance(layout([(8, 1), (9, 1), (9, 2)]))


def test_fewer_replicas_leave_dead_brokers_first_even_a_preferred_leader():
    plan = set_replication_factor(layout([(9, 1, 2)]), "t", 2, EVACUATE)
    assert plan.after == {TopicPartition("t", 0): (1, 2)}
    assert plan.moves == 0
