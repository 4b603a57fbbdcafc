"""Replicas move between the log directories of a broker while they are led and followed."""

import pytest

from kctl.broker.log.log_config import LogConfig
from kctl.broker.quotas import ReplicationQuota
from kctl.broker.replication.alter_log_dirs import ReplicaAlterLogDirsManager
from kctl.broker.replication.log_dirs import ReplicaInfo, describe_log_dirs
from kctl.broker.replication.partition import Role
from kctl.errors import StorageError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from kctl.records.record_batch import MAGIC_OFFSET
from kctl.runtime.real.disk import RealDiskFile
from kctl.work import at_once
from tests.support.log_world import TP, batch, values_of

CONFIG = {"replica.fetch.max.bytes": "500"}


class Mover:
    """A world with two log directories and the manager that moves replicas."""

    def __init__(self, make_world, rate=None, **settings):
        self.world = make_world(log_dirs=2, config=CONFIG, **settings)
        self.logs = self.world.logs.manager
        self.first, self.second = self.world.logs.log_dirs
        self.replaced = []
        quota = ReplicationQuota(1, "", lambda _: {}, window_ms=1000, window_count=11)
        quota.rate = rate
        self.moves = ReplicaAlterLogDirsManager(
            self.world.runtime,
            self.world.manager,
            {TopicPartition("known", 0): "what is known"}.get,
            quota,
        )
        self.moves.on_log_replaced(self.replaced.append)
        self.world.leadership.on_role_change(self.moves.on_role_change)
        self.written = 0

    def lead(self, **state):
        assert self.world.lead(**state) == 0
        return self

    def produce(self, count=20):
        for _ in range(count):
            (result,) = self.world.produce(batch(b"%d" % self.written), acks=1)
            assert result.error_code == 0
            self.written += 1

    def alter(self, log_dir, tp=TP):
        return self.moves.alter(tp, log_dir)

    def settle(self):
        self.world.runtime.scheduler.settle()

    @property
    def future(self):
        return self.logs.futures.get(TP)

    def is_at(self, log_dir):
        log = self.world.partition.log
        assert log is self.logs.get_log(TP)
        assert values_of(log) == [(n, b"%d" % n) for n in range(self.written)]
        return log.log_directory == log_dir and self.future is None


@pytest.fixture
def mover(make_world):
    mover = Mover(make_world).lead()
    mover.produce()
    return mover


def test_a_replica_moves_while_it_is_written_to(mover):
    assert mover.alter(mover.second) == ErrorCode.NONE
    assert mover.alter(mover.second) == ErrorCode.NONE
    mover.produce(5)
    assert mover.is_at(mover.first) is False
    mover.settle()
    assert mover.is_at(mover.second)
    assert mover.replaced == [mover.world.partition]
    mover.produce(5)
    assert mover.world.partition.log.high_watermark == 30
    assert mover.alter(mover.first) == ErrorCode.NONE
    mover.settle()
    assert mover.is_at(mover.first)


def test_invalid_moves_are_rejected(mover):
    assert mover.alter("/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert (
        mover.alter(mover.second, TopicPartition("unknown", 0))
        == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert mover.alter(mover.second, TopicPartition("known", 0)) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (
        mover.alter(mover.second, TopicPartition("x" * 249, 0)) == ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    assert mover.alter(mover.first) == ErrorCode.NONE, "it is there"
    mover.logs.handle_log_dir_failure(mover.second)
    assert mover.alter(mover.second) == ErrorCode.KAFKA_STORAGE_ERROR
    assert mover.is_at(mover.first)


def test_a_future_replica_is_created_in_the_chosen_directory(make_world):
    mover = Mover(make_world)
    assert mover.alter(mover.second) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert mover.lead().is_at(mover.second)


def test_the_lag_of_a_copy_is_reported(make_world):
    mover = Mover(make_world, rate=1).lead()
    mover.produce()
    mover.alter(mover.second)
    mover.settle()
    first, second = at_once(describe_log_dirs(mover.logs))
    log, future = mover.world.partition.log, mover.future
    assert first.replicas == [ReplicaInfo(TP, log.size, 0)]
    lag = 20 - future.log_end_offset
    assert second.replicas == [ReplicaInfo(TP, future.size, lag, is_future=True)]
    assert 0 < lag < 20


def test_a_throttle_slows_the_copy_and_can_be_raised(make_world):
    mover = Mover(make_world, rate=1).lead()
    mover.produce()
    mover.alter(mover.second)
    mover.world.runtime.scheduler.advance(5_000)
    assert not mover.is_at(mover.second)
    mover.moves.quota.rate = None
    mover.world.runtime.scheduler.advance(200)
    assert mover.is_at(mover.second)


def test_the_current_directory_cancels_a_move_and_a_third_one_begins_another(make_world):
    mover = Mover(make_world, rate=1).lead()
    mover.produce()
    mover.alter(mover.second)
    mover.settle()
    assert mover.alter(mover.first) == ErrorCode.NONE
    assert mover.is_at(mover.first)
    mover.moves.quota.rate = None
    assert mover.alter(mover.second) == ErrorCode.NONE
    mover.world.runtime.scheduler.advance(200)
    assert mover.is_at(mover.second)


def test_a_truncated_follower_truncates_its_copy(make_world):
    """The copy never has records that the log has lost."""
    mover = Mover(make_world, rate=1).lead()
    mover.produce()
    mover.alter(mover.second)
    mover.settle()
    mover.lead(leader=2, epoch=5, replicas=(1, 2), isr=(1, 2))
    log, end = mover.world.partition.log, 2
    assert mover.future.log_end_offset > end
    log.truncate_to(end)
    mover.logs.futures.current_truncated(TP, end)
    records = batch(b"2")
    log.append_as_follower(records.replace(records[:8], (end).to_bytes(8, "big"), 1))
    mover.written = 3
    mover.moves.quota.rate = None
    mover.world.runtime.scheduler.advance(200)
    assert mover.is_at(mover.second)


def test_records_deleted_before_they_were_copied_are_left_out(make_world):
    mover = Mover(make_world, rate=1, segment_bytes=200).lead()
    mover.produce()
    mover.alter(mover.second)
    mover.settle()
    mover.world.partition.delete_records(15)
    mover.moves.quota.rate = None
    mover.world.runtime.scheduler.advance(200)
    log = mover.world.partition.log
    assert (log.log_directory, log.log_start_offset, log.log_end_offset) == (mover.second, 15, 20)
    assert [n for n, _ in values_of(log)] == list(range(15, 20))


def test_a_move_continues_after_a_restart(make_world):
    mover = Mover(make_world, rate=1).lead()
    mover.produce()
    mover.alter(mover.second)
    mover.settle()
    mover.moves.shutdown()
    copied = mover.future.log_end_offset
    mover.world.logs.close()
    again = Mover(make_world)
    again.written = mover.written
    assert again.future.log_end_offset == copied
    again.lead()
    again.settle()
    assert again.is_at(again.second)


def test_the_copy_is_deleted_with_its_replica(make_world):
    mover = Mover(make_world, rate=1).lead()
    mover.produce()
    mover.alter(mover.second)
    mover.settle()
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    topic = StopReplicaTopicState(topic_name="t", partition_states=[state])
    request = StopReplicaRequest(controller_epoch=1, broker_epoch=7, topic_states=[topic])
    at_once(mover.world.leadership.stop_replicas(request))
    assert mover.future is None
    mover.moves.quota.rate = None
    mover.world.runtime.scheduler.advance(200)
    assert mover.logs.all_logs() == []


@pytest.mark.parametrize("failing", ["first", "second"])
def test_either_directory_may_fail_in_the_middle(make_world, failing):
    """Target directory: the replica stays where it is. Source: it is offline, the copy is kept."""
    mover = Mover(make_world, rate=1).lead()
    mover.produce()
    mover.alter(mover.second)
    mover.settle()
    mover.logs.handle_log_dir_failure(getattr(mover, failing))
    mover.moves.quota.rate = None
    mover.world.runtime.scheduler.advance(200)
    if failing == "second":
        assert mover.is_at(mover.first)
    else:
        assert mover.world.partition.role is Role.OFFLINE
        assert mover.alter(mover.second) == ErrorCode.KAFKA_STORAGE_ERROR
        assert mover.future is not None


def test_a_corrupt_record_ends_only_the_move(mover):
    segment = mover.world.partition.log.segments[-1]
    segment.records.file.pwrite(b"\xff", 70)
    assert mover.alter(mover.second) == ErrorCode.NONE
    mover.settle()
    assert mover.world.partition.log.log_directory == mover.first
    assert any("cannot be moved" in warning for warning in mover.world.runtime.trace.warnings)
    assert mover.logs.offline_log_dirs == []


def test_a_damaged_batch_ends_only_the_move(mover):
    """Its format is unknown; the log finds that when it reads, before the copy does."""
    segment = mover.world.partition.log.segments[-1]
    segment.records.file.pwrite(b"\x4d", MAGIC_OFFSET)
    assert mover.alter(mover.second) == ErrorCode.NONE
    mover.settle()
    assert mover.world.partition.log.log_directory == mover.first
    assert any("cannot be moved" in warning for warning in mover.world.runtime.trace.warnings)
    assert mover.logs.offline_log_dirs == []
    assert mover.future is None


def fail_on_read(monkeypatch, directory):
    """Let reads of the segments in a log directory fail."""
    pread = RealDiskFile.pread

    def failing(file, length, position):
        if file.path.startswith(directory) and file.path.endswith(".log"):
            raise StorageError(f"{file.path}: Input/output error")
        return pread(file, length, position)

    monkeypatch.setattr(RealDiskFile, "pread", failing)


@pytest.mark.parametrize("is_idle", [True, False])
def test_an_unreadable_source_does_not_take_the_target_offline(mover, monkeypatch, is_idle):
    """The look-up of the next records may fail, or their read in the background."""
    if is_idle:
        mover.world.partition.log.local.segments.active.forget_tail()
    fail_on_read(monkeypatch, mover.first)
    assert mover.alter(mover.second) == ErrorCode.NONE
    mover.settle()
    assert mover.logs.offline_log_dirs == [mover.first]
    assert mover.world.partition.role is Role.OFFLINE


def test_a_log_that_is_deleted_while_it_is_read_takes_no_directory_offline(mover, monkeypatch):
    def delete_first(_, __, position):
        mover.logs.delete_log(TP)
        del mover.world.manager.partitions[TP]
        raise StorageError("no such file")

    monkeypatch.setattr(RealDiskFile, "pread", delete_first)
    assert mover.alter(mover.second) == ErrorCode.NONE
    mover.settle()
    assert mover.logs.offline_log_dirs == []
    assert mover.future is None


def test_a_move_that_was_rejected_can_be_requested_again(mover):
    mover.logs.update_config("t", LogConfig(segment_bytes=50))
    assert mover.alter(mover.second) == ErrorCode.NONE
    mover.settle()
    assert any("cannot be moved" in warning for warning in mover.world.runtime.trace.warnings)
    # Its copy would keep the log from being compacted.
    assert mover.future is None
    mover.logs.update_config("t", LogConfig())
    assert mover.alter(mover.second) == ErrorCode.NONE
    mover.settle()
    assert mover.is_at(mover.second)


def test_every_record_on_the_disk_before_is_on_the_disk_after(make_world):
    """flush.messages=1: acknowledged records are durable in the new directory as well."""
    mover = Mover(make_world, flush_messages=1).lead()
    answered = mover.world.produce(batch(b"0"), acks=-1)
    mover.settle()
    assert len(answered) == 1
    assert mover.alter(mover.second) == ErrorCode.NONE
    answered = mover.world.produce(batch(b"1"), acks=-1)
    mover.written = 2
    mover.settle()
    assert len(answered) == 1
    assert mover.is_at(mover.second)
    assert mover.world.partition.log.recovery_point == 2
    assert mover.world.partition.log.is_write_through
