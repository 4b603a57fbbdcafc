"""A follower appends a wide or large response over many turns; other work goes on meanwhile."""

from collections import Counter
from itertools import pairwise

import pytest

from kctl.broker.replication.fetched_parts import BATCHES_PER_PART
from kctl.broker.replication.fetcher_manager import UNITS_PER_PARTITION, FetcherLoop
from kctl.broker.replication.partition import Partition
from kctl.broker.replication.replica_fetcher import FetcherOptions
from kctl.model import TopicPartition
from kctl.protocol.messages.fetch import (
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchResponse,
)
from kctl.work import Pace, at_once
from tests.broker.replication.conftest import ME
from tests.support.builds import needs_sources
from tests.support.log_world import batch

TP = TopicPartition("t", 0)
LEADER = 2
MANY = 2_000
PARTITIONS_PER_TURN = Pace.UNITS_PER_TURN // UNITS_PER_PARTITION + 1
BATCHES = 5 * BATCHES_PER_PART


@pytest.fixture
def world(make_world):
    world = make_world()
    world.lead(leader=LEADER, epoch=1, isr=(LEADER,), replicas=(ME, LEADER))
    return world


@pytest.fixture
def loop(world):
    options = FetcherOptions(ME, 500, 1, 1000, 100, 1000)
    return FetcherLoop(world.runtime, world.manager, LEADER, options, lambda _: None)


@pytest.fixture
def appends(monkeypatch):
    """The high watermarks of all appends, in order."""
    seen = []
    append = Partition.append_as_follower

    def append_as_follower(partition, records, high_watermark, start_offset):
        seen.append(high_watermark)
        return append(partition, records, high_watermark, start_offset)

    monkeypatch.setattr(Partition, "append_as_follower", append_as_follower)
    return seen


def large_response():
    """Batches of one record each for partition t-0, of leader epoch 1."""
    records = bytearray()
    for offset in range(BATCHES):
        one = batch(b"v" * 60)
        one[:8] = offset.to_bytes(8, "big")
        one[12:16] = (1).to_bytes(4, "big")
        records += one
    partition = FetchablePartitionResponse(
        partition=0, high_watermark=BATCHES, log_start_offset=0, record_set=bytes(records)
    )
    topic = FetchableTopicResponse(topic="t", partition_responses=[partition])
    return FetchResponse(responses=[topic])


def begin(world, loop, response):
    """Begin to apply the response to a request for all partitions; return the task."""
    at_once(loop.fetcher.next_request(0))
    return world.runtime.scheduler.spawn(loop._apply(loop.fetcher.on_response(response, 0)), "test")


def test_many_partitions_are_updated_in_turns(world, loop, appends):
    for number in range(MANY):
        tp = TopicPartition("t", number)
        world.manager.partitions[tp] = world.partition
        loop.fetcher.add(tp, 1, world.partition.log)
    partitions = [
        FetchablePartitionResponse(partition=number, high_watermark=number, log_start_offset=0)
        for number in range(MANY)
    ]
    topic = FetchableTopicResponse(topic="t", partition_responses=partitions)
    task = begin(world, loop, FetchResponse(responses=[topic]))
    counts = [len(appends)]
    while not task.done:
        world.runtime.scheduler.turn()
        counts.append(len(appends))
    assert appends == list(range(MANY))
    per_turn = [after - before for before, after in pairwise([0, *counts])]
    assert max(per_turn) <= PARTITIONS_PER_TURN


def test_many_batches_are_appended_in_turns(world, loop, appends):
    loop.fetcher.add(TP, 1, world.partition.log)
    task = begin(world, loop, large_response())
    log, ends = world.partition.log, [0]
    ends.append(log.log_end_offset)
    while not task.done:
        world.runtime.scheduler.turn()
        ends.append(log.log_end_offset)
    assert log.log_end_offset == log.high_watermark == BATCHES
    assert len(appends) == BATCHES / BATCHES_PER_PART
    steps = Counter(after - before for before, after in pairwise(ends))
    assert max(steps) <= 4 * BATCHES_PER_PART
    assert sum(count for step, count in steps.items() if step) > 1


def test_a_spent_turn_ends_with_one_part(world, loop, appends):
    world.runtime.scheduler.turn_is_spent = True
    loop.fetcher.add(TP, 1, world.partition.log)
    begin(world, loop, large_response())
    assert world.partition.log.log_end_offset == BATCHES_PER_PART
    world.runtime.scheduler.settle()
    assert world.partition.log.log_end_offset == BATCHES


@pytest.mark.parametrize(
    "change",
    [
        "another leader",
        "led here",
        "deleted",
        "offline",
        pytest.param("replaced", marks=needs_sources),
        "closed",
    ],
)
def test_what_is_left_of_a_response_is_dropped_after_a_change(world, loop, appends, change):
    world.runtime.scheduler.turn_is_spent = True
    log = world.partition.log
    loop.fetcher.add(TP, 1, log)
    task = begin(world, loop, large_response())
    assert log.log_end_offset == BATCHES_PER_PART
    if change == "another leader":
        loop.fetcher.add(TP, 2, log)
    elif change == "led here":
        world.lead(epoch=2)
        loop.fetcher.remove(TP)
    elif change == "deleted":
        del world.manager.partitions[TP]
    elif change == "offline":
        world.partition.log = None
    elif change == "replaced":
        world.partition.log = object()
    else:
        loop.close()
    world.runtime.scheduler.settle()
    assert task.done
    assert len(appends) == 1
    assert log.log_end_offset == BATCHES_PER_PART
    assert world.logs.warnings == []
