"""Moves between log directories: their state after a stop, and their continuation by the next
start."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kctl.broker.log.future_logs import common_end
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.unified_log import FetchIsolation
from kctl.errors import StorageError
from kctl.runtime.real.disk import RealDisk
from tests.support.log_world import TP, LogWorld, append, bytes_of, values_of
from tests.support.segment_check import check_partition

ALL = FetchIsolation.LOG_END


@pytest.fixture
def world(make_world):
    return make_world(log_dirs=2, segment_bytes=400)


def fill(log, count, epoch=0):
    for _ in range(count):
        append(log, b"%d" % log.log_end_offset, epoch=epoch)


def copy(world, bytes_max=1 << 20):
    """Copy to the end, or about `bytes_max` bytes."""
    current, future = world.manager.get_log(TP), world.manager.futures.get(TP)
    while future.log_end_offset < current.log_end_offset and bytes_max > 0:
        data = bytes_of(current.read(future.log_end_offset, 100, isolation=ALL))
        future.append_as_follower(data)
        bytes_max -= len(data)
    return future


def begin(world, count=20):
    log = world.log()
    fill(log, count)
    assert log.log_directory == world.log_dirs[0]
    return log, world.manager.begin_move(TP, world.log_dirs[1])


def bytes_in(directory):
    files = [path for path in Path(directory).iterdir() if path.suffix != ".deleted"]
    return {path.name: path.read_bytes() for path in files}


def directories(world):
    """Return (log dir, directory) of all directories, without uuids."""
    found = []
    for number, path in enumerate(world.log_dirs):
        for directory in sorted(Path(path).glob("t-0*")):
            name, _, rest = directory.name.partition(".")
            found.append((number, name + rest[32:]))
    return found


def numbers(count):
    return [(n, b"%d" % n) for n in range(count)]


def test_a_future_log_takes_the_current_ones_place(world):
    log, _ = begin(world)
    assert directories(world) == [(0, "t-0"), (1, "t-0-future")]
    copy(world)
    moved = world.manager.complete_move(TP)
    assert directories(world) == [(0, "t-0-delete"), (1, "t-0")]
    assert world.manager.get_log(TP) is moved
    assert TP not in world.manager.futures
    assert log.is_closed
    assert values_of(moved) == numbers(20)
    assert (moved.high_watermark, moved.latest_epoch) == (20, 0)
    assert moved.recovery_point == 20
    fill(moved, 1, epoch=1)
    world.runtime.scheduler.advance(60_000)
    assert directories(world) == [(1, "t-0")]
    assert values_of(world.restart()) == numbers(21)


def test_a_moved_log_recognizes_whatever_the_replaced_one_did(world):
    log, _ = begin(world, count=1)
    for sequence in range(5):
        append(log, b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
    copy(world)
    # Its producers go on in memory: a snapshot has the last batch of each only.
    moved = world.manager.complete_move(TP)
    for sequence in range(5):
        again = append(moved, b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert again.is_duplicate
    append(moved, b"v", producer_id=7, producer_epoch=0, base_sequence=5)
    moved.close()
    assert (Path(moved.directory) / f"{7:020}.snapshot").exists()


def test_it_must_catch_up_first(world):
    begin(world)
    copy(world, 100)
    with pytest.raises(RuntimeError, match="has not caught up"):
        world.manager.complete_move(TP)
    assert values_of(world.manager.get_log(TP)) == numbers(20)


def make_durable(world):
    """Make the copy durable, with a checkpoint that records it."""
    world.manager.futures.get(TP).flush()
    world.manager.checkpoint()
    world.runtime.scheduler.settle()


@pytest.mark.parametrize("clean", [True, False])
def test_a_future_log_continues_after_a_stop(world, clean):
    begin(world)
    end = copy(world, 300).log_end_offset
    make_durable(world)
    world.restart(clean=clean)
    future = world.manager.futures.get(TP)
    assert end - 1 <= future.log_end_offset <= end < 20
    copy(world)
    assert values_of(world.manager.complete_move(TP)) == numbers(20)


def test_possibly_torn_records_are_copied_again_after_a_crash(world):
    """The log that is deleted in the end was durable all along."""
    begin(world)
    copy(world, 300)
    make_durable(world)
    known = world.manager.futures.get(TP).log_end_offset
    copy(world)
    world.restart()
    assert world.manager.futures.get(TP).log_end_offset <= known
    copy(world)
    assert values_of(world.manager.complete_move(TP)) == numbers(20)


def test_a_crash_between_the_two_renames_leaves_one_log(world):
    """Both are complete; the newer one may have more already."""
    log, _ = begin(world)
    copy(world)
    shutil.copytree(log.directory, world.log_dirs[0] + "/kept")
    fill(world.manager.complete_move(TP), 2, epoch=3)
    world.crash()
    (Path(world.log_dirs[0]) / "kept").rename(Path(world.log_dirs[0]) / "t-0")
    world.start()
    assert world.manager.offline_log_dirs == []
    assert world.manager.get_log(TP).log_directory == world.log_dirs[1]
    assert values_of(world.manager.get_log(TP)) == numbers(22)
    world.runtime.scheduler.advance(60_000)
    assert directories(world) == [(1, "t-0")]


def test_a_future_log_without_a_current_one_becomes_the_log(world):
    log, _ = begin(world)
    copy(world)
    world.close()
    shutil.rmtree(log.directory)
    world.start()
    assert values_of(world.manager.get_log(TP)) == numbers(20)
    assert directories(world) == [(1, "t-0")]


def test_a_future_log_waits_while_the_directory_of_the_current_one_is_offline(world):
    begin(world)
    copy(world, 300)
    world.close()
    (Path(world.log_dirs[0]) / "meta.properties").write_text("broken")
    world.start()
    assert world.manager.offline_log_dirs == [world.log_dirs[0]]
    assert world.manager.get_log(TP) is None
    assert directories(world) == [(0, "t-0"), (1, "t-0-future")]


def test_records_that_a_crash_removed_from_the_current_log_are_removed_from_the_future_one(world):
    log, _ = begin(world, 10)
    fill(log, 10, epoch=2)
    copy(world)
    make_durable(world)
    world.crash()
    segments = sorted(Path(log.directory).glob("*.log"))
    with segments[-1].open("r+b") as file:
        file.truncate(segments[-1].stat().st_size - 1)
    world.start()
    log, future = world.manager.get_log(TP), world.manager.futures.get(TP)
    assert future.log_end_offset == log.log_end_offset < 20
    append(log, b"other", epoch=3)
    copy(world)
    assert values_of(world.manager.complete_move(TP))[-1] == (19, b"other")


def test_diverging_logs_agree_up_to_their_common_epoch(make_world):
    world = make_world(log_dirs=2)
    log, _ = begin(world, 5)
    fill(log, 5, epoch=2)
    future = copy(world)
    log.truncate_to(5)
    fill(log, 7, epoch=4)
    assert common_end(future, log) == 5
    world.manager.futures.reconcile_with_current()
    assert future.log_end_offset == 5
    copy(world)
    assert common_end(future, log) == 12


def test_a_damaged_copy_starts_over(world):
    _, future = begin(world)
    copy(world)
    world.close()
    last = max(Path(future.directory).glob("*.log"))
    data = bytearray(last.read_bytes())
    data[70] ^= 1
    last.write_bytes(data)
    (Path(world.log_dirs[1]) / ".kafka_cleanshutdown").unlink()
    world.start()
    assert world.manager.futures.get(TP).log_end_offset == 0
    copy(world)
    assert values_of(world.manager.complete_move(TP)) == numbers(20)


def test_the_future_log_is_deleted_with_the_log(world):
    begin(world)
    world.manager.delete_log(TP)
    assert directories(world) == [(0, "t-0-delete"), (1, "t-0-delete")]


def test_a_directory_that_fails_at_the_end_leaves_the_current_log(world, monkeypatch):
    log, _ = begin(world)
    copy(world)

    def fail(*_):
        raise StorageError("no")

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "rename", fail)
        with pytest.raises(StorageError):
            world.manager.complete_move(TP)
    world.manager.handle_log_dir_failure(world.log_dirs[1], "no")
    assert world.manager.get_log(TP) is log
    fill(log, 1)
    assert values_of(log) == numbers(21)


def test_a_compacted_log_is_not_cleaned_during_a_move_and_keeps_its_cleaned_offset(make_world):
    world = make_world(
        log_dirs=2, segment_bytes=150, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01
    )
    log, cleaner = world.log(), world.manager.cleaner
    for value in (b"a", b"b", b"c", b"d"):
        append(log, value)
    cleaning = world.runtime.scheduler.spawn(cleaner.clean_one())
    world.runtime.scheduler.settle()
    assert cleaning.result()
    cleaned = log.local.cleaned_offset
    assert cleaned > 0
    world.manager.begin_move(TP, world.log_dirs[1])
    for value in (b"e", b"f", b"g", b"h"):
        append(log, value)
    cleaning = world.runtime.scheduler.spawn(cleaner.clean_one())
    world.runtime.scheduler.settle()
    assert not cleaning.result(), "held while it moves"
    copy(world)
    moved = world.manager.complete_move(TP)
    assert moved.local.cleaned_offset == cleaned
    cleaning = world.runtime.scheduler.spawn(cleaner.clean_one())
    world.runtime.scheduler.settle()
    assert cleaning.result()


def test_a_replica_is_created_in_the_chosen_directory(world):
    world.manager.prefer_directory(TP, world.log_dirs[1])
    assert world.log().log_directory == world.log_dirs[1]


class CountedDisk:
    """A disk that counts its calls."""

    def __init__(self, disk):
        self._disk = disk
        self.calls = 0

    def __getattr__(self, name):
        self.calls += 1
        return getattr(self._disk, name)


@pytest.mark.parametrize("open_segments", [3, 1000])
def test_the_last_turn_of_a_move_asks_the_disk_for_no_segment(runtime, tmp_path, open_segments):
    """It took a quarter of a second for 5,000 segments, which were closed and opened again."""
    calls = []
    for count in (20, 60):
        runtime = replace(runtime, disk=CountedDisk(RealDisk()))
        config = LogConfig(segment_bytes=400)
        world = LogWorld(runtime, tmp_path / f"{count}", config, 2, open_segments_max=open_segments)
        begin(world, count * 5)
        copy(world)
        for _ in range(2):
            flushed = world.manager.flush_soon(world.manager.futures.get(TP))
            runtime.scheduler.settle()
            flushed.result()
        before = runtime.disk.calls
        moved = world.manager.complete_move(TP)
        calls.append(runtime.disk.calls - before)
        # What the segments know stays right.
        assert len(moved.segments) == count
        assert values_of(moved) == numbers(count * 5)
        assert moved.size == sum(
            path.stat().st_size for path in Path(moved.directory).glob("*.log")
        )
        fill(moved, 10)
        assert values_of(moved) == numbers(count * 5 + 10)
        assert values_of(world.restart(clean=True)) == numbers(count * 5 + 10)
    assert calls[0] == calls[1]


def test_the_files_of_a_moved_log_are_those_that_a_start_expects(world):
    begin(world)
    copy(world)
    moved = world.manager.complete_move(TP)
    fill(moved, 20, epoch=1)
    moved.truncate_to(30)
    world.close()
    assert check_partition(Path(moved.directory)) == 30
    before = bytes_in(moved.directory)
    world.start()
    assert values_of(world.manager.get_log(TP)) == numbers(30)
    world.close()
    assert bytes_in(moved.directory) == before
