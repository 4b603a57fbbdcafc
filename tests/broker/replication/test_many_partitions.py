"""Requests with many partitions are carried out in parts, and others have turns in between."""

import pytest

from kctl.broker.replication.delayed import FetchParams
from kctl.broker.replication.leadership import PARTITIONS_PER_TURN
from kctl.broker.replication.partition import Role
from kctl.broker.replication.replica_manager import READS_PER_TURN, FetchIsolation
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tests.broker.replication.conftest import BROKER_EPOCH, ME
from tests.support.log_world import batch, bytes_of

MANY = 2 * READS_PER_TURN + 500


def fetch(world, asked, *, max_wait_ms=0):
    params = FetchParams(-1, max_wait_ms, 1, 1 << 20, FetchIsolation.HIGH_WATERMARK)
    answered = []
    partitions = [
        (topic, FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20))
        for topic, number in asked
    ]
    for _, request in partitions:
        request.current_leader_epoch = -1
    world.manager.fetch(params, partitions, answered.extend)
    return answered


@pytest.fixture
def world(make_world):
    world = make_world()
    world.lead()
    return world


def test_a_fetch_of_many_partitions_answers_all_in_order(world):
    world.produce(batch(b"value"), acks=1)
    asked = [("none", number) for number in range(MANY)]
    asked[1_500] = ("t", 0)
    answered = fetch(world, asked)
    assert not answered, "others have their turn first"
    world.runtime.scheduler.settle()
    assert [(it.topic, it.request.partition) for it in answered] == asked
    assert answered[1_500].data.records is not None
    assert {it.error_code for it in answered if it.topic == "none"} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


def test_a_fetch_of_many_partitions_waits_and_is_woken(world):
    answered = fetch(world, [("t", 0)] * MANY, max_wait_ms=1_000)
    world.runtime.scheduler.settle()
    assert not answered
    world.produce(batch(b"value"), acks=1)
    world.runtime.scheduler.settle()
    assert len(answered) == MANY
    assert bytes_of(answered[0].data)


def test_what_comes_while_many_partitions_are_read_is_not_missed(world):
    answered = fetch(world, [("t", 0)] * MANY, max_wait_ms=1_000)
    world.runtime.scheduler.call_later(0, lambda: world.produce(batch(b"value"), acks=1))
    world.runtime.scheduler.settle()
    assert len(answered) == MANY


def test_a_partition_that_goes_away_while_others_are_read_ends_the_wait(world):
    answered = fetch(world, [("t", 0)] * MANY, max_wait_ms=1_000)
    world.manager.partitions.clear()
    world.runtime.scheduler.settle()
    assert answered[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def leader_and_isr(count, *, controller_epoch):
    states = [
        LeaderAndIsrPartitionState(
            partition_index=number, controller_epoch=controller_epoch, leader=ME,
            leader_epoch=1, isr=[ME], replicas=[ME],
        )
        for number in range(count)
    ]  # fmt: skip
    return LeaderAndIsrRequest(
        controller_epoch=controller_epoch,
        broker_epoch=BROKER_EPOCH,
        topic_states=[LeaderAndIsrTopicState(topic_name="t", partition_states=states)],
    )


def test_many_roles_are_taken_in_parts_and_announced_together(world):
    world.changes.clear()
    work = world.leadership.become_leader_or_follower(
        leader_and_isr(PARTITIONS_PER_TURN + 1, controller_epoch=1)
    )
    next(work)
    assert not world.changes
    with pytest.raises(StopIteration) as stop:
        next(work)
    assert {it.error_code for it in stop.value.value.partition_errors} == {ErrorCode.NONE}
    # t-0 was led before.
    assert len(world.changes) == PARTITIONS_PER_TURN


def test_a_newer_controller_ends_what_an_older_one_began(world):
    world.changes.clear()
    work = world.leadership.become_leader_or_follower(
        leader_and_isr(PARTITIONS_PER_TURN + 1, controller_epoch=1)
    )
    next(work)
    assert world.leadership.refusal(2, BROKER_EPOCH) == ErrorCode.NONE
    with pytest.raises(StopIteration) as stop:
        next(work)
    assert stop.value.value.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    begun = world.manager.partitions[TopicPartition("t", 1)]
    assert begun.role is Role.LEADER
    assert TopicPartition("t", PARTITIONS_PER_TURN) not in world.manager.partitions
    assert TopicPartition("t", 1) in {it.topic_partition for it in world.changes}
