"""A failure of one request, partition or replica is not one of others."""

import dataclasses
from pathlib import Path

import pytest

from kctl.broker.replication.delayed import FetchParams
from kctl.broker.replication.partition import Role
from kctl.broker.replication.replica_manager import FetchIsolation
from kctl.errors import StorageError
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.records.record_batch import MAGIC_OFFSET
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.turns import fail_loudly
from kctl.work import at_once
from tests.broker.replication.conftest import BROKER_EPOCH, ME, ReplicationWorld
from tests.support.log_world import batch
from tests.support.virtual_runtime import virtual_runtime

SEGMENT_BYTES = 5_000


class FailingDisk(RealDisk):
    """A disk that does not open one file, for lack of descriptors."""

    unopened = None

    def open(self, path, **options):
        if path == self.unopened:
            raise StorageError(f"{path}: Too many open files")
        return super().open(path, **options)


@pytest.fixture
def world(tmp_path):
    runtime = dataclasses.replace(virtual_runtime(), disk=FailingDisk())
    world = ReplicationWorld(runtime, tmp_path / "logs", segment_bytes=SEGMENT_BYTES)
    world.lead()
    return world


def fetch(world, *asked, min_bytes=1):
    """Fetch from (partition, offset) pairs of t; return the results, in a list that fills."""
    params = FetchParams(-1, 30_000, min_bytes, 1 << 20, FetchIsolation.HIGH_WATERMARK)
    requests = [
        FetchPartition(
            partition=number, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1,
            log_start_offset=-1, partition_max_bytes=1 << 20,
        )
        for number, offset in asked
    ]  # fmt: skip
    answered = []
    world.manager.fetch(params, [("t", it) for it in requests], answered.extend, fail_loudly)
    return answered


def fill_segments(world, count=15):
    for _ in range(count):
        world.produce(batch(bytes(400)), acks=1)
    world.runtime.scheduler.settle()
    return world.partition.log


def test_an_append_that_fails_unexpectedly_does_not_stop_those_behind_it(world):
    scheduler = world.runtime.scheduler

    def fail(_results):
        raise RuntimeError("a defect")

    scheduler.turn_is_spent = True
    world.manager.append_records([("t", 0, batch(b"a"))], 1, 1000, fail)
    answered = world.produce(batch(b"b"), acks=1)
    scheduler.turn_is_spent = False
    with pytest.raises(RuntimeError):
        scheduler.advance(0)
    scheduler.advance(0)
    assert [(it.error_code, it.info.first_offset) for it in answered] == [(0, 1)]


def test_a_waiting_fetch_that_cannot_read_its_segment_does_not_fail_an_append(world):
    log = fill_segments(world)
    old = log.segments[0]
    found = fetch(world, (0, log.segments[1].base_offset - 1), min_bytes=100_000)
    assert found == []
    # Evicted, and needed again when there is no descriptor.
    old.close()
    world.runtime.disk.unopened = old.path(".log")
    (result,) = world.produce(batch(b"one"), acks=1)
    world.runtime.scheduler.settle()
    assert result.error_code == 0
    assert [it.error_code for it in found] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_damage_in_one_log_is_the_error_of_one_partition(world):
    log = fill_segments(world)
    state = LeaderAndIsrPartitionState(
        partition_index=1, controller_epoch=1, leader=ME, leader_epoch=0, isr=[ME], replicas=[ME]
    )
    topic = LeaderAndIsrTopicState(topic_name="t", partition_states=[state])
    at_once(
        world.leadership.become_leader_or_follower(
            LeaderAndIsrRequest(controller_epoch=1, broker_epoch=BROKER_EPOCH, topic_states=[topic])
        )
    )
    world.manager.append_records([("t", 1, batch(b"healthy"))], 1, 1000, list)
    path = Path(log.segments[0].path(".log"))
    data = bytearray(path.read_bytes())
    data[MAGIC_OFFSET] = 77
    path.write_bytes(data)
    for _ in range(2):
        damaged, healthy = fetch(world, (0, 0), (1, 0))
        assert damaged.error_code == ErrorCode.CORRUPT_MESSAGE
        assert healthy.error_code == 0
        assert len(healthy.data.records) > 0
    warnings = [it for it in world.runtime.trace.warnings if "Cannot read from t-0" in it]
    assert len(warnings) == 1
    assert world.partition.role is Role.LEADER


def delete(world, offset, timeout_ms=30_000):
    answered = []
    world.manager.delete_records([("t", 0, offset)], timeout_ms, answered.extend)
    return answered


def test_deletions_of_records_do_not_wait_for_a_replica_on_a_dead_broker(tmp_path):
    alive = {ME}
    world = ReplicationWorld(
        dataclasses.replace(virtual_runtime(), disk=RealDisk()),
        tmp_path / "logs",
        is_alive=alive.__contains__,
    )
    world.lead(isr=(ME,), replicas=(ME, 2))
    for _ in range(3):
        world.produce(batch(b"x"), acks=1)
    assert delete(world, 2) == [("t", 0, 2, 0)]
    alive.add(2)
    waiting = delete(world, 3)
    assert waiting == []
    world.runtime.scheduler.advance(30_000)
    ((_, _, _, code),) = waiting
    assert code == ErrorCode.REQUEST_TIMED_OUT
    assert world.partition.log.log_start_offset == 3
