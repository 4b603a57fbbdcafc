"""A log whose segments are tiny, as any client that may create topics can ask for.

What is done with its segments is done for a few of them in one turn of the loop, and with the files
of a few of them open.
"""

import pytest

from kctl.broker.log import group_commit
from kctl.broker.log.local_log import FlushJob, LocalLog
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.producer_state_manager import SNAPSHOTS_PER_STEP, ProducerStateManager
from kctl.broker.log.retention import DELETED_AT_ONCE
from kctl.errors import StorageError
from kctl.model import TopicPartition
from kctl.work import at_once
from tests.support.log_world import TP, append, values_of

COUNT = 40
FILES_PER_SEGMENT = 5


@pytest.fixture
def world(make_world):
    return make_world(segment_bytes=80, retention_ms=-1)


@pytest.fixture(autouse=True)
def jobs(monkeypatch):
    """The segments and files of each flush that ran; none waits for the disk."""
    ran = []
    monkeypatch.setattr(
        FlushJob, "run", lambda job: ran.append((len(job.logs), len(job.logs) + len(job.others)))
    )
    return ran


def filled(world, count=COUNT):
    """A log of `count` segments, none of which is durable."""
    log = world.log()
    for number in range(count):
        append(log, b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
    assert len(log.segments) == count
    return log


def test_a_flush_takes_few_segments_at_a_time(world, jobs):
    log = filled(world)
    flushed = world.manager.flush_soon(log)
    world.runtime.scheduler.settle()
    flushed.result()
    assert log.recovery_point == COUNT
    assert len(jobs) == -(-COUNT // group_commit.SEGMENTS_PER_LOG_MAX)
    assert max(segments for segments, _ in jobs) <= group_commit.SEGMENTS_PER_LOG_MAX
    assert max(files for _, files in jobs) <= FILES_PER_SEGMENT * group_commit.SEGMENTS_PER_LOG_MAX


def after_each_part(monkeypatch, do):
    """Call `do` after each part of a flush."""
    complete = LocalLog.complete_flush

    def complete_and_do(local, job):
        complete(local, job)
        do()

    monkeypatch.setattr(LocalLog, "complete_flush", complete_and_do)


def test_a_caller_is_answered_once_its_own_records_are_durable(world, monkeypatch):
    """Not when the log has no more segments to flush, which may never be."""
    log = filled(world, 3 * group_commit.SEGMENTS_PER_LOG_MAX)
    end = log.log_end_offset

    def write_more():
        if log.log_end_offset < 10 * end:
            for _ in range(2 * group_commit.SEGMENTS_PER_LOG_MAX):
                append(log, b"v")

    after_each_part(monkeypatch, write_more)
    flushed = world.manager.flush_soon(log)
    points = []
    flushed.add_done_callback(lambda _: points.append(log.recovery_point))
    world.runtime.scheduler.settle()
    assert end <= points[0] < end + 2 * group_commit.SEGMENTS_PER_LOG_MAX
    assert log.recovery_point == log.log_end_offset


def test_after_a_crash_between_two_parts_the_log_is_whole(world):
    log = filled(world)
    job = log.prepare_flush(limit=10)
    job.run()
    log.complete_flush(job)
    assert log.recovery_point == log.segments[10].base_offset
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    log = world.restart()
    assert values_of(log) == [(number, b"%d" % number) for number in range(COUNT)]
    assert log.producer_state.map_end_offset == COUNT


def test_a_truncation_between_two_parts_leaves_no_caller_waiting(world, monkeypatch):
    log = filled(world)
    truncated = []

    def truncate():
        if not truncated:
            truncated.append(log.truncate_to(log.recovery_point + 3))

    after_each_part(monkeypatch, truncate)
    flushed = world.manager.flush_soon(log)
    world.runtime.scheduler.settle()
    flushed.result()
    assert truncated
    assert log.recovery_point == log.log_end_offset < COUNT


def test_a_failure_of_a_later_part_is_reported(world, monkeypatch):
    log = filled(world)
    runs = []

    def fail(job):
        runs.append(job)
        if len(runs) == 2:
            raise StorageError("the disk is gone")

    monkeypatch.setattr(FlushJob, "run", fail)
    flushed = world.manager.flush_soon(log)
    world.runtime.scheduler.settle()
    with pytest.raises(StorageError):
        flushed.result()
    assert world.manager.live_log_dirs == []


def test_a_stop_flushes_few_segments_at_a_time(world, jobs):
    filled(world)
    world.close()
    assert max(segments for segments, _ in jobs) <= group_commit.SEGMENTS_PER_LOG_MAX
    world.start()
    assert len(values_of(world.manager.get_log(TP))) == COUNT
    assert not world.warnings


def per_turn(world, monkeypatch, owner, name):
    """Note how often a method is called in each turn from now on."""
    calls, turns = [0], []
    method = getattr(owner, name)

    def count(*arguments):
        calls[0] += 1
        return method(*arguments)

    monkeypatch.setattr(owner, name, count)

    def settle():
        while world.runtime.scheduler.turn():
            turns.append(calls[0])
            calls[0] = 0
        return turns

    return settle


def test_a_checkpoint_removes_few_snapshots_in_a_turn(world, monkeypatch):
    log = filled(world)
    log.flush()
    settle = per_turn(world, monkeypatch, ProducerStateManager, "_delete_snapshot")
    world.manager.checkpoint()
    turns = settle()
    assert max(turns) == SNAPSHOTS_PER_STEP
    assert sum(turns) > COUNT - 5
    assert len(log.producer_state.snapshots) == COUNT - sum(turns) - 1


def test_a_log_that_is_deleted_between_two_turns_loses_no_file_of_its_successor(world, monkeypatch):
    log = filled(world)
    log.flush()
    work = log.recovery_point_saved(log.truncations)
    removed = []
    monkeypatch.setattr(
        ProducerStateManager,
        "_delete_snapshot",
        lambda state, _: removed.append(state.snapshots.pop(0)),
    )
    world.manager.checkpoint()
    while not removed:
        world.runtime.scheduler.turn()
    world.manager.delete_log(TP)
    count = len(removed)
    world.runtime.scheduler.settle()
    assert len(removed) == count
    work.close()


def test_records_deleted_by_a_client_remove_few_snapshots_at_once(world, monkeypatch):
    log = filled(world)
    log.flush()
    before = len(log.producer_state.snapshots)
    log.maybe_increment_log_start_offset(COUNT - 1)
    assert len(log.producer_state.snapshots) == before - SNAPSHOTS_PER_STEP
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    assert min(log.producer_state.snapshots) >= COUNT - 1
    log = world.restart()
    assert log.producer_state.map_end_offset == COUNT


def test_retention_deletes_few_segments_in_a_turn(world, monkeypatch):
    log = filled(world)
    world.runtime.scheduler.settle()
    log.maybe_increment_log_start_offset(COUNT - 1)
    deleted = []
    mark = LogSegment.mark_deleted
    monkeypatch.setattr(
        LogSegment, "mark_deleted", lambda segment: deleted.append(segment) or mark(segment)
    )
    work = world.manager.delete_old_segments()
    steps = []
    for _ in work:
        steps.append(len(deleted))
        deleted.clear()
    assert max(steps) == DELETED_AT_ONCE
    assert len(log.segments) == 1
    assert at_once(world.manager.delete_old_segments()) == 0


def test_retention_of_many_logs_deletes_as_few_segments_in_a_turn(world, monkeypatch):
    tps = [TopicPartition("t", number) for number in range(6)]
    for tp in tps:
        for _ in range(DELETED_AT_ONCE + 2):
            append(world.log(tp), b"v")
    world.runtime.scheduler.settle()
    for tp in tps:
        world.log(tp).maybe_increment_log_start_offset(DELETED_AT_ONCE + 1)
    deleted = []
    mark = LogSegment.mark_deleted
    monkeypatch.setattr(
        LogSegment, "mark_deleted", lambda segment: deleted.append(segment) or mark(segment)
    )
    steps = []
    for _ in world.manager.delete_old_segments():
        steps.append(len(deleted))
        deleted.clear()
    assert max(steps) < 2 * DELETED_AT_ONCE
    assert [len(world.log(tp).segments) for tp in tps] == [1] * 6
