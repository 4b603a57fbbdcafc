"""A new log of a partition whose earlier log was deleted: what the checkpoints say of that one does
not apply to it."""

from pathlib import Path

import pytest

from kctl.broker.log.unified_log import FetchIsolation
from kctl.runtime.real.disk import RealDisk
from tests.support.log_world import TP, append, bytes_of, values_of

# The log start offset of the log that is deleted lies beyond the end of the next one.
OLD_START, OLD_END, NEW_END = 80, 100, 50


def fill(log, count):
    for number in range(count):
        append(log, b"%d" % number)


def fill_old(world):
    log = world.log()
    fill(log, OLD_END)
    log.maybe_increment_log_start_offset(OLD_START)
    return log


def write_checkpoints(world):
    world.manager.checkpoint()
    world.runtime.scheduler.settle()


def check_next_log(world):
    """The records of the next log are durable, and the next start finds all of them."""
    log = world.log()
    fill(log, NEW_END)
    log.flush()
    log = world.restart()
    assert values_of(log) == [(number, b"%d" % number) for number in range(NEW_END)]


def copy(world, end):
    future = world.manager.futures.get(TP)
    while future.log_end_offset < end:
        found = world.log().read(future.log_end_offset, 100, isolation=FetchIsolation.LOG_END)
        future.append_as_follower(bytes_of(found))


def damage(log):
    """Damage the first record of the last segment, which is durable."""
    path = Path(log.segments[-1].path(".log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


def test_a_log_that_is_deleted_while_checkpoints_that_mention_it_are_written(
    make_world, monkeypatch
):
    world = make_world()
    append(world.log(), b"a")
    write_checkpoints(world)
    world.manager.delete_log(TP)
    # The deletion above is what makes the checkpoints be written, with this log in them.
    fill_old(world)
    write = RealDisk.write_file

    def delete_first(disk, path, data):
        if path.endswith("log-start-offset-checkpoint"):
            monkeypatch.setattr(RealDisk, "write_file", write)
            world.manager.delete_log(TP)
        write(disk, path, data)

    monkeypatch.setattr(RealDisk, "write_file", delete_first)
    write_checkpoints(world)
    assert world.manager.get_log(TP) is None
    check_next_log(world)


def test_a_damaged_log_that_is_deleted(make_world):
    world = make_world()
    log = fill_old(world)
    log.flush()
    write_checkpoints(world)
    world.crash()
    damage(log)
    world.start()
    assert TP in world.manager.damaged
    write_checkpoints(world)
    world.manager.delete_log(TP)
    check_next_log(world)


def test_checkpoints_written_after_the_deletion_of_a_damaged_log_omit_it(make_world):
    world = make_world()
    log = fill_old(world)
    log.flush()
    write_checkpoints(world)
    world.crash()
    damage(log)
    world.start()
    world.manager.delete_log(TP)
    world.runtime.scheduler.advance(1_001)
    path = Path(world.log_dirs[0]) / "log-start-offset-checkpoint"
    assert path.read_text().splitlines() == ["0", "0"]


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_log_whose_deletion_a_crash_followed(make_world, is_removed):
    """The checkpoints of the next start are not on disk yet when the next log is created."""
    world = make_world(file_delete_delay_ms=0 if is_removed else 60_000)
    fill_old(world).flush()
    write_checkpoints(world)
    world.manager.delete_log(TP)
    if is_removed:
        world.runtime.scheduler.settle()
    world.crash()
    assert bool(list(Path(world.log_dirs[0]).glob("*-delete"))) is not is_removed
    world.start()
    check_next_log(world)


def test_a_copy_that_starts_over_because_it_is_damaged(make_world):
    world = make_world(log_dirs=2, segment_bytes=1_000)
    fill(world.log(), OLD_END)
    future = world.manager.begin_move(TP, world.log_dirs[1])
    copy(world, OLD_END)
    future.update_high_watermark(OLD_END)
    future.maybe_increment_log_start_offset(OLD_START)
    future.flush()
    write_checkpoints(world)
    world.crash()
    damage(future)
    world.start()
    future = world.manager.futures.get(TP)
    assert (future.log_start_offset, future.log_end_offset) == (0, 0)
    copy(world, NEW_END)
    future.flush()
    world.restart()
    copy(world, OLD_END)
    log = world.manager.complete_move(TP)
    assert values_of(log) == [(number, b"%d" % number) for number in range(OLD_END)]
