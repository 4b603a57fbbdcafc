"""A follower truncates a log of many batches over many turns; other work goes on meanwhile."""

import pytest

from kctl.broker.replication.fetcher_manager import FetcherLoop
from kctl.broker.replication.replica_fetcher import FetcherOptions, Truncate
from kctl.model import TopicPartition
from tests.broker.replication.conftest import ME
from tests.support.log_world import batch

TP = TopicPartition("t", 0)
LEADER = 2
BATCHES = 3000


@pytest.fixture
def world(make_world):
    world = make_world()
    world.lead()
    for number in range(BATCHES):
        world.produce(batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number), acks=0)
    world.lead(leader=LEADER, epoch=1, isr=(LEADER,), replicas=(ME, LEADER))
    return world


@pytest.fixture
def loop(world):
    options = FetcherOptions(ME, 500, 1, 1000, 100, 1000)
    loop = FetcherLoop(world.runtime, world.manager, LEADER, options, lambda _: None)
    loop.fetcher.add(TP, 1, world.partition.log)
    return loop


def turns_of(world, task):
    """Return the number of turns until `task` is done, and the ends of the log after each."""
    ends = []
    while not task.done:
        ends.append(world.partition.log.log_end_offset)
        world.runtime.scheduler.turn()
    return ends


def test_the_log_is_truncated_in_the_last_of_several_turns(world, loop):
    task = world.runtime.scheduler.spawn(loop._apply([[Truncate(TP, 2990)]]), "test")
    ends = turns_of(world, task)
    assert len(ends) > 4
    assert set(ends) == {BATCHES}
    assert world.partition.log.log_end_offset == 2990
    assert world.partition.log.producers[7].last_sequence == 2989


@pytest.mark.parametrize("change", ["another leader", "led here", "deleted", "closed"])
def test_a_log_whose_role_changes_meanwhile_is_not_truncated(world, loop, change):
    log = world.partition.log
    task = world.runtime.scheduler.spawn(loop._apply([[Truncate(TP, 2990)]]), "test")
    world.runtime.scheduler.turn()
    assert not task.done
    if change == "another leader":
        loop.fetcher.remove(TP)
        loop.fetcher.add(TP, 2, log)
    elif change == "led here":
        world.lead(epoch=2)
        loop.fetcher.remove(TP)
    elif change == "deleted":
        del world.manager.partitions[TP]
        loop.fetcher.remove(TP)
    else:
        loop.close()
    world.runtime.scheduler.settle()
    assert task.done
    assert log.log_end_offset == BATCHES
    assert world.logs.warnings == []
