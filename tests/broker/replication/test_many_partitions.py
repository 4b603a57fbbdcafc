"""Requests with many partitions are handled in parts, with turns for others in between."""

import pytest

from kctl.broker.log.unified_log import FetchIsolation
from kctl.broker.replication import fetch_reader, replica_manager
from kctl.broker.replication.delayed import FetchParams
from kctl.broker.replication.fetch_reader import READS_PER_TURN
from kctl.broker.replication.leadership import PARTITIONS_PER_TURN, UNITS_PER_LOG
from kctl.broker.replication.partition import Partition, Role
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from kctl.runtime.turns import fail_loudly
from kctl.work import at_once
from tests.broker.replication.conftest import BROKER_EPOCH, ME
from tests.support.builds import needs_sources
from tests.support.log_world import batch, bytes_of

LOGS_PER_TURN = PARTITIONS_PER_TURN // UNITS_PER_LOG + 1
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
    world.manager.fetch(params, partitions, answered.extend, fail_loudly)
    return answered


@pytest.fixture
def world(make_world):
    world = make_world()
    world.lead()
    return world


def test_a_fetch_of_many_partitions_returns_all_in_order(world):
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


def test_records_appended_while_many_partitions_are_read_are_not_missed(world):
    answered = fetch(world, [("t", 0)] * MANY, max_wait_ms=1_000)
    world.runtime.scheduler.call_later(0, lambda: world.produce(batch(b"value"), acks=1))
    world.runtime.scheduler.settle()
    assert len(answered) == MANY


def test_a_partition_that_goes_away_while_others_are_read_ends_the_wait(world):
    answered = fetch(world, [("t", 0)] * MANY, max_wait_ms=1_000)
    world.manager.partitions.clear()
    world.runtime.scheduler.settle()
    assert answered[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def parked(world, count, *, min_bytes, max_wait_ms=1_000, replica_id=-1):
    """A fetch of the first `count` partitions of t, from offset 0; what it answers."""
    params = FetchParams(replica_id, max_wait_ms, min_bytes, 1 << 20, FetchIsolation.LOG_END)
    answered = []
    partitions = [
        ("t", FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20,
                             current_leader_epoch=-1))
        for number in range(count)
    ]  # fmt: skip
    world.manager.fetch(params, partitions, answered.extend, fail_loudly)
    world.runtime.scheduler.settle()
    return answered


def counting(monkeypatch, owner, name):
    """The number of calls of a method, as a list's length."""
    calls, original = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *a, **k: (calls.append(1), original(*a, **k))[1])
    return calls


def test_an_append_examines_only_its_own_partition_of_a_waiting_fetch(world, monkeypatch):
    at_once(world.leadership.become_leader_or_follower(leader_and_isr(50, controller_epoch=1)))
    answered = parked(world, 50, min_bytes=1 << 19)
    examined = counting(monkeypatch, Partition, "readable_log")
    world.produce(batch(b"value"), acks=1)
    assert not answered
    assert len(examined) == 1


def test_a_waiting_fetch_counts_what_each_of_its_partitions_received(world):
    at_once(world.leadership.become_leader_or_follower(leader_and_isr(3, controller_epoch=1)))
    size = len(batch(b"value"))
    answered = parked(world, 3, min_bytes=2 * size)
    world.produce(batch(b"value"), acks=1)
    assert not answered
    world.manager.append_records([("t", 2, batch(b"value"))], 1, 1_000, lambda _: None)
    assert [len(it.data.records or b"") for it in answered] == [size, 0, size]


def test_a_waiting_fetch_counts_what_its_first_read_found(world):
    size = len(batch(b"value"))
    world.produce(batch(b"value"), acks=1)
    answered = parked(world, 1, min_bytes=2 * size)
    assert not answered
    world.produce(batch(b"value"), acks=1)
    assert len(answered) == 1


@needs_sources
def test_a_turn_records_few_partitions_of_a_followers_fetch(world, monkeypatch):
    count = READS_PER_TURN + 5
    monkeypatch.setattr(fetch_reader, "READS_PER_TURN", count + 1)
    monkeypatch.setattr(replica_manager, "READS_PER_TURN", 100)
    recorded = counting(monkeypatch, ReplicaManager, "_record_follower_fetches")
    # Partitions that are not here: only the number of parts counts.
    answered = parked(world, count, min_bytes=1, replica_id=2)
    assert len(answered) == count
    assert len(recorded) == -(-count // 100)


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


def watched(work, count):
    """Do `work`; return its result, and how `count()` changed in each of its turns."""
    changes, before, is_over, result = [], count(), False, None
    while not is_over:
        try:
            next(work)
        except StopIteration as stop:
            is_over, result = True, stop.value
        changes.append(count() - before)
        before = count()
    return result, changes


def test_a_turn_creates_few_logs_and_announces_their_roles(world):
    world.changes.clear()
    count = 3 * LOGS_PER_TURN
    work = world.leadership.become_leader_or_follower(leader_and_isr(count, controller_epoch=1))
    answer, announced = watched(work, lambda: len(world.changes))
    assert {it.error_code for it in answer.partition_errors} == {ErrorCode.NONE}
    # t-0 had a leader before.
    assert sum(announced) == count - 1
    assert max(announced) <= LOGS_PER_TURN


def test_a_turn_deletes_few_logs(world):
    count = 3 * LOGS_PER_TURN
    at_once(world.leadership.become_leader_or_follower(leader_and_isr(count, controller_epoch=1)))
    work = world.leadership.stop_replicas(stop_replica(count))
    answer, deleted = watched(work, lambda: -len(world.logs.manager.all_logs()))
    assert {it.error_code for it in answer.partition_errors} == {ErrorCode.NONE}
    assert sum(deleted) == count
    assert max(deleted) <= LOGS_PER_TURN


def test_a_newer_controller_ends_a_request_of_an_older_one(world):
    world.changes.clear()
    work = world.leadership.become_leader_or_follower(
        leader_and_isr(LOGS_PER_TURN + 2, controller_epoch=1)
    )
    next(work)
    assert world.leadership.refusal(2, BROKER_EPOCH) == ErrorCode.NONE
    with pytest.raises(StopIteration) as stop:
        next(work)
    assert stop.value.value.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    begun = world.manager.partitions[TopicPartition("t", 1)]
    assert begun.role is Role.LEADER
    assert TopicPartition("t", LOGS_PER_TURN + 1) not in world.manager.partitions
    assert TopicPartition("t", 1) in {it.topic_partition for it in world.changes}


def test_a_newer_controller_ends_the_stopping_of_an_older_one(world):
    count = LOGS_PER_TURN + 2
    at_once(world.leadership.become_leader_or_follower(leader_and_isr(count, controller_epoch=1)))
    work = world.leadership.stop_replicas(stop_replica(count))
    next(work)
    assert world.leadership.refusal(2, BROKER_EPOCH) == ErrorCode.NONE
    with pytest.raises(StopIteration) as stop:
        next(work)
    assert stop.value.value.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert TopicPartition("t", count - 1) in world.manager.partitions


def stop_replica(count):
    """Return a request to delete the first `count` replicas of the topic."""
    states = [
        StopReplicaPartitionState(partition_index=n, leader_epoch=-2, delete_partition=True)
        for n in range(count)
    ]
    return StopReplicaRequest(
        controller_epoch=1,
        broker_epoch=BROKER_EPOCH,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=states)],
    )


@needs_sources
def test_partitions_of_a_failed_directory_are_announced_in_turns(world, monkeypatch):
    monkeypatch.setattr(replica_manager, "OFFLINE_PER_TURN", 4)
    partitions = [Partition(TopicPartition("p", number), ME) for number in range(10)]
    announced = []
    world.manager.on_offline(lambda part: announced.append([it.topic_partition[1] for it in part]))
    world.manager._go_offline(partitions)
    assert {it.role for it in partitions} == {Role.OFFLINE}
    assert announced == []
    # The controller placed it here again before its turn.
    partitions[9].role = Role.LEADER
    world.runtime.scheduler.settle()
    assert announced == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
