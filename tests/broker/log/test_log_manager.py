"""All logs of a broker: directories, flushing, checkpoints, deletion, failures."""

import dataclasses
from pathlib import Path, PurePosixPath

import pytest

from kctl.broker.log import checkpoints, log_manager
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.log_manager import LogManager
from kctl.broker.log.unified_log import UnifiedLog
from kctl.errors import StorageError, UsageError
from kctl.model import TopicPartition
from kctl.runtime.real.disk import RealDisk
from kctl.simulation.disk import SimDisk
from kctl.storage import checkpoint
from tests.support.log_world import BASE_MS, CLUSTER_ID, TP, LogWorld, append, values_of
from tests.support.virtual_runtime import virtual_runtime


def tp(number):
    return TopicPartition("topic", number)


def open_as(runtime, path, *, broker_id=0, cluster_id=CLUSTER_ID):
    manager = LogManager(
        runtime, [str(path)], LogConfig(), broker_id=broker_id, cluster_id=cluster_id
    )
    manager.start()
    return manager


def test_directory_of_another_cluster_or_broker_is_rejected_with_a_hint(make_world, runtime):
    world = make_world()
    world.close()
    for wrong in ({"cluster_id": "other"}, {"broker_id": 5}):
        with pytest.raises(UsageError, match=r"belongs to (cluster AAAA|broker 0)") as caught:
            open_as(runtime, world.log_dirs[0], **wrong)
        assert caught.value.hint
    # The rejection released the lock and changed nothing.
    open_as(runtime, world.log_dirs[0])


def test_directory_in_use_is_refused(make_world, runtime):
    world = make_world()
    with pytest.raises(StorageError, match=r"\.lock is locked by another process"):
        open_as(runtime, world.log_dirs[0])


def test_logs_spread_over_directories(make_world):
    world = make_world(log_dirs=3)
    for number in range(6):
        world.log(tp(number))
    counts = [len(list(Path(path).glob("topic-*"))) for path in world.log_dirs]
    assert counts == [2, 2, 2]
    assert {log.log_directory for log in world.manager.all_logs()} == set(world.log_dirs)


def test_partition_in_two_directories_takes_the_second_offline(make_world):
    """Each has records that the other lacks: an operator must decide."""
    world = make_world(log_dirs=2)
    append(world.log(tp(0)), b"ours", epoch=1)
    append(world.log(tp(1)), b"theirs", epoch=2)
    append(world.log(tp(1)), b"theirs", epoch=3)
    world.close()
    second = Path(world.log_dirs[1])
    (second / "topic-1").rename(second / "topic-0")
    world.start()
    assert world.manager.offline_log_dirs == [world.log_dirs[1]]
    assert any("two log directories" in warning for warning in world.warnings)


def test_clean_shutdown_writes_the_marker_last_and_a_start_removes_it_first(make_world):
    world = make_world()
    append(world.log(), b"a")
    marker = Path(world.log_dirs[0]) / ".kafka_cleanshutdown"
    assert not marker.exists()
    world.close()
    assert marker.exists()
    world.start()
    assert not marker.exists()


def test_checkpoints_are_written_every_minute_and_high_watermarks_more_often(make_world):
    world = make_world()
    root = Path(world.log_dirs[0])
    log = world.log()
    append(log, b"a", b"b")
    log.flush()
    append(log, b"c")
    world.runtime.scheduler.advance(5_000)
    assert (root / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 3\n"
    assert (root / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
    world.runtime.scheduler.advance(55_000)
    assert (root / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
    assert (root / "log-start-offset-checkpoint").read_text() == "0\n0\n"


def test_recovery_always_looks_at_the_active_segment(make_world):
    """All records are durable, but not the indexes, and the segment may be rolled next."""
    world = make_world()
    append(world.log(), b"a", b"b")
    world.log().flush()
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    path = Path(world.log_dirs[0]) / "recovery-point-offset-checkpoint"
    assert path.read_text() == "0\n1\nt 0 1\n"
    world.close()
    assert path.read_text() == "0\n1\nt 0 2\n"


def test_high_watermark_survives_a_crash(make_world):
    world = make_world()
    append(world.log(), b"a", b"b")
    world.runtime.scheduler.advance(5_000)
    assert world.restart().high_watermark == 2


def test_unreadable_checkpoints_cost_time_not_data(make_world):
    world = make_world()
    append(world.log(), b"a")
    world.close()
    for path in Path(world.log_dirs[0]).glob("*-checkpoint"):
        path.write_bytes(b"")
    world.start()
    assert values_of(world.log()) == [(0, b"a")]
    assert len([warning for warning in world.warnings if "is empty" in warning]) == 4


def test_flush_interval_makes_records_durable(make_world):
    world = make_world(flush_ms=3_000)
    log = world.log()
    append(log, b"a")
    world.runtime.scheduler.advance(2_000)
    assert log.recovery_point == 0
    world.runtime.scheduler.advance(2_000)
    assert log.recovery_point == 1


def test_rolled_segment_is_made_durable_in_the_background(make_world):
    world = make_world(segment_bytes=200)
    log = world.log()
    append(log, bytes(80))
    append(log, bytes(80))
    assert len(log.segments) == 2
    world.runtime.scheduler.settle()
    assert log.recovery_point >= 1


class CountingDisk(RealDisk):
    """A real disk that records which files were made durable, and fails on request."""

    __slots__ = ("before_fsync", "fail", "fsynced")

    def __init__(self):
        self.before_fsync = None
        self.fsynced = []
        self.fail = ""

    def open(self, path, *, create=False, read_only=False):
        return CountedFile(self, super().open(path, create=create, read_only=read_only))


class CountedFile:
    def __init__(self, disk, file):
        self._disk = disk
        self._file = file
        self.path = file.path

    def __getattr__(self, name):
        return getattr(self._file, name)

    def append(self, parts):
        if self._disk.fail and self._disk.fail in self.path:
            raise StorageError(f"{self.path}: Input/output error")
        return self._file.append(parts)

    def fsync(self):
        self._disk.fsynced.append(self.path)
        if self._disk.before_fsync:
            self._disk.before_fsync()
        if self._disk.fail and self._disk.fail in self.path:
            raise StorageError(f"{self.path}: Input/output error")
        self._file.fsync()


@pytest.fixture
def runtime(runtime):
    return dataclasses.replace(runtime, disk=CountingDisk())


def test_concurrent_flush_requests_share_a_flush(make_world):
    """Group commit: ten producers, one fsync per log, and another round for the late one."""
    world = make_world()
    disk, log = world.runtime.disk, world.log()
    append(log, b"a")
    waiting = [world.manager.flush_soon(log) for _ in range(10)]
    world.runtime.scheduler.settle()
    assert len([path for path in disk.fsynced if path.endswith(".log")]) == 1
    first_round = len(disk.fsynced)
    assert [future.result() for future in waiting] == [None] * 10
    assert log.recovery_point == 1
    append(log, b"b")
    latecomer = world.manager.flush_soon(log)
    world.runtime.scheduler.settle()
    assert latecomer.done
    assert len(disk.fsynced) == first_round + 1, "the new log's other files need it only once"
    assert log.recovery_point == 2


def test_failed_fsync_takes_the_directory_offline_and_is_never_retried(make_world):
    world = make_world(log_dirs=2)
    good, bad = world.log(tp(0)), world.log(tp(1))
    heard = []
    world.manager.failure_channel.on_failure(lambda path, reason: heard.append((path, reason)))
    append(bad, b"a")
    world.runtime.disk.fail = bad.log_directory

    future = world.manager.flush_soon(bad)
    world.runtime.scheduler.settle()

    with pytest.raises(StorageError, match="Input/output error"):
        future.result()
    assert world.manager.offline_log_dirs == [bad.log_directory]
    assert world.manager.live_log_dirs == [good.log_directory]
    assert [path for path, _ in heard] == [bad.log_directory]
    assert world.manager.get_log(tp(1)) is None
    world.runtime.scheduler.advance(120_000)
    world.close()
    assert not (Path(bad.log_directory) / ".kafka_cleanshutdown").exists()
    assert (Path(good.log_directory) / ".kafka_cleanshutdown").exists()
    tries = [path for path in world.runtime.disk.fsynced if path.startswith(bad.log_directory)]
    assert len(tries) == 1


def test_new_logs_are_created_in_the_remaining_directories(make_world):
    world = make_world(log_dirs=2)
    world.manager.handle_log_dir_failure(world.log_dirs[0])
    assert world.log(tp(0)).log_directory == world.log_dirs[1]
    world.manager.handle_log_dir_failure(world.log_dirs[1])
    with pytest.raises(StorageError, match="no log directory is left"):
        world.log(tp(1))


def test_the_files_of_a_failed_directory_are_closed_in_turns(make_world, monkeypatch):
    monkeypatch.setattr(log_manager, "LOGS_CLOSED_PER_TURN", 5)
    world = make_world(log_dirs=2)
    logs = [world.log(tp(number)) for number in range(40)]
    lost = [log for log in logs if log.log_directory == world.log_dirs[0]]
    per_turn = [0]
    turn = world.runtime.scheduler.turn
    abandon = UnifiedLog.abandon

    def counted_turn():
        per_turn.append(0)
        return turn()

    def counted(log):
        per_turn[-1] += 1
        abandon(log)

    monkeypatch.setattr(world.runtime.scheduler, "turn", counted_turn)
    monkeypatch.setattr(UnifiedLog, "abandon", counted)
    world.manager.handle_log_dir_failure(world.log_dirs[0])
    assert all(log.is_closed for log in lost)
    world.runtime.scheduler.settle()
    assert (sum(per_turn), max(per_turn)) == (len(lost), 5)


def test_many_logs_are_closed_some_at_a_time(make_world, monkeypatch):
    monkeypatch.setattr(log_manager, "LOGS_CLOSED_PER_TURN", 5)
    world = make_world()
    for number in range(12):
        world.log(tp(number))
    flush_together = log_manager.flush_together
    together = []

    def counted(scheduler, logs, prepare):
        together.append(len(logs))
        return flush_together(scheduler, logs, prepare)

    monkeypatch.setattr(log_manager, "flush_together", counted)
    world.close()
    assert together == [5, 5, 2]


def test_a_topics_changed_configs_are_applied_without_a_look_at_other_logs(make_world, monkeypatch):
    world = make_world()
    mine = [world.log(TopicPartition("mine", number)) for number in range(3)]
    for number in range(5):
        world.log(tp(number))
    world.manager.delete_log(TopicPartition("mine", 1))
    refreshed = []

    def refreshing(logs):
        refreshed.extend(logs)
        yield from ()

    class Unlisted(dict):
        def items(self):
            raise AssertionError("all logs are looked at")

        values = items

    monkeypatch.setattr(world.manager, "_refreshing", refreshing)
    monkeypatch.setattr(world.manager, "_logs", Unlisted(world.manager._logs))
    world.manager.refresh_configs("mine")
    monkeypatch.undo()
    assert refreshed == [mine[0], mine[2]]


def test_directory_that_cannot_be_used_at_the_start_is_offline(runtime, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    manager = LogManager(
        runtime, [str(tmp_path / "file/x"), str(tmp_path / "good")], LogConfig(),
        broker_id=0, cluster_id=CLUSTER_ID,
    )  # fmt: skip
    manager.start()
    assert manager.live_log_dirs == [str(tmp_path / "good")]
    with pytest.raises(StorageError, match="none of the log directories can be used"):
        open_as(runtime, tmp_path / "file/y")


def test_deleted_log_is_closed_at_once_and_its_files_are_removed_after_the_delay(
    make_world, tmp_path
):
    world = make_world(file_delete_delay_ms=1000)
    log = world.log()
    append(log, b"old")
    log.flush()
    world.manager.checkpoint()
    world.manager.delete_log(TP)

    assert world.manager.get_log(TP) is None
    (leaving,) = tmp_path.rglob("t-0.*-delete")
    fresh = world.log()
    assert fresh.log_end_offset == 0
    append(fresh, b"new")
    world.runtime.scheduler.advance(1001)
    assert not leaving.exists()
    # The new log does not have the old one's recovery point.
    assert values_of(world.restart()) == [(0, b"new")]


def test_log_deleted_while_it_is_flushed_takes_nothing_offline(make_world):
    world = make_world()
    disk, log = world.runtime.disk, world.log()
    append(log, b"a")
    disk.before_fsync = lambda: world.manager.delete_log(TP)
    future = world.manager.flush_soon(log)
    world.runtime.scheduler.settle()
    assert [path for path in disk.fsynced if path.endswith("t-0/00000000000000000000.log")]
    assert future.result() is None
    assert world.manager.offline_log_dirs == []
    append(world.log(), b"next of its name")


def test_deletion_that_a_crash_interrupted_is_completed(make_world, tmp_path):
    world = make_world()
    append(world.log(), b"old")
    world.manager.delete_log(TP)
    world.crash()
    assert list(tmp_path.rglob("*-delete"))
    world.start()
    world.runtime.scheduler.advance(60_001)
    assert not list(tmp_path.rglob("*-delete"))
    assert world.manager.get_log(TP) is None


def test_unknown_files_in_a_log_directory_are_kept(make_world):
    world = make_world()
    world.close()
    stranger = Path(world.log_dirs[0]) / "lost+found"
    stranger.mkdir()
    (Path(world.log_dirs[0]) / "notes-1").write_text("not a directory")
    world.start()
    assert world.manager.all_logs() == []
    assert stranger.exists()


def test_settings_of_a_topic_change_for_its_logs(make_world):
    world = make_world()
    log = world.log()
    world.manager.update_config("t", LogConfig(min_insync_replicas=2, segment_bytes=100))
    assert log.config.min_insync_replicas == 2
    append(log, bytes(10))
    append(log, bytes(10))
    assert len(log.segments) == 2


def test_new_defaults_reach_many_logs_over_many_turns(make_world, monkeypatch):
    monkeypatch.setattr(log_manager, "CONFIGS_PER_TURN", 5)
    world = make_world()
    logs = [world.log(tp(number)) for number in range(20)]
    computed = []

    def config(topic):
        computed.append(topic)
        return LogConfig(min_insync_replicas=2)

    monkeypatch.setattr(world.manager, "_config_of", config)
    world.manager.refresh_configs(None)
    counts = [log.config.min_insync_replicas for log in logs]
    assert (counts.count(2), computed) == (5, ["topic"])
    world.runtime.scheduler.settle()
    assert [log.config.min_insync_replicas for log in logs] == [2] * 20
    # Each turn computes them again: they may have changed.
    assert computed == ["topic"] * 4


def test_retention_runs_periodically(make_world):
    world = make_world(segment_bytes=200, retention_ms=60_000)
    log = world.log()
    now_ms = world.runtime.clock.wall_ms()
    for _ in range(5):
        append(log, bytes(80), first_ms=now_ms)
    world.runtime.scheduler.advance(299_999)
    assert log.log_start_offset == 0
    world.runtime.scheduler.advance(1)
    assert log.log_start_offset == 5


def test_disk_that_fails_after_a_checkpoint_takes_the_directory_offline():
    """Found by simulation: a failure to remove old snapshots was not handled."""
    runtime = dataclasses.replace(virtual_runtime(), disk=SimDisk())
    world = LogWorld(runtime, PurePosixPath("/"), LogConfig(segment_bytes=200))
    log = world.log()
    for number in range(9):
        append(log, b"v", producer_id=1, producer_epoch=0, base_sequence=number)
    log.flush()
    snapshots = [path for path in runtime.disk.contents() if path.endswith(".snapshot")]
    runtime.disk.fail.update(dict.fromkeys(snapshots, "Input/output error"))
    runtime.scheduler.advance(60_001)
    assert world.manager.offline_log_dirs == [log.log_directory]


def test_the_checkpoints_of_many_logs_are_made_over_many_turns(make_world, monkeypatch):
    monkeypatch.setattr(checkpoints, "LOGS_PER_TURN", 5)
    monkeypatch.setattr(checkpoint, "LINES_PER_TURN", 5)
    world = make_world()
    for number in range(20):
        append(world.log(tp(number)), b"a")
    world.runtime.scheduler.settle()
    visited = []
    claim, saved = UnifiedLog.claim_recovery_point, UnifiedLog.recovery_point_saved
    monkeypatch.setattr(
        UnifiedLog, "claim_recovery_point", lambda log: visited.append(log) or claim(log)
    )
    monkeypatch.setattr(
        UnifiedLog,
        "recovery_point_saved",
        lambda log, truncations: visited.append(log) or saved(log, truncations),
    )
    world.manager.checkpoint()
    per_turn = [len(visited)]
    while world.runtime.scheduler.turn():
        per_turn.append(len(visited) - sum(per_turn))
    assert (max(per_turn), sum(per_turn)) == (5, 40)


def test_checkpoints_of_many_logs_are_written_in_the_order_in_which_they_began(
    make_world, monkeypatch
):
    monkeypatch.setattr(checkpoints, "LOGS_PER_TURN", 5)
    world = make_world()
    for number in range(20):
        append(world.log(tp(number)), b"a")
    world.manager.checkpoint()
    append(world.log(tp(0)), b"b")
    world.manager._checkpoints.write_high_watermarks()
    world.runtime.scheduler.settle()
    path = Path(world.log_dirs[0]) / "replication-offset-checkpoint"
    assert path.read_text().splitlines()[2] == "topic 0 2"


def test_a_truncation_is_announced_if_the_checkpoint_had_passed_its_log(make_world, monkeypatch):
    monkeypatch.setattr(checkpoints, "LOGS_PER_TURN", 5)
    world = make_world()
    for number in range(20):
        append(world.log(tp(number)), b"a", b"b")
        world.log(tp(number)).flush()
    world.manager.checkpoint()
    log = world.log(tp(0))
    log.truncate_to(0)
    world.runtime.scheduler.settle()
    assert list(Path(log.directory).glob("*.truncation"))
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    assert not list(Path(log.directory).glob("*.truncation"))


def test_a_stop_waits_for_checkpoints_that_take_turns(make_world, monkeypatch):
    monkeypatch.setattr(checkpoints, "LOGS_PER_TURN", 5)
    world = make_world()
    for number in range(20):
        append(world.log(tp(number)), b"a")
    world.manager.checkpoint()
    world.close()
    world.start()
    assert world.log(tp(19)).high_watermark == 1


def test_periodic_work_visits_many_logs_over_many_turns(make_world, monkeypatch):
    monkeypatch.setattr(log_manager, "LOGS_PER_TURN", 5)
    world = make_world()
    for number in range(20):
        world.log(tp(number))
    visited = []
    monkeypatch.setattr(UnifiedLog, "delete_old_segments", lambda log, _: visited.append(log) or 0)
    for _ in world.manager.delete_old_segments():
        assert len(visited) == 5
        visited.clear()
    assert len(visited) == 5


def test_producers_expire_in_turns_of_a_bounded_number_of_producers(make_world, monkeypatch):
    monkeypatch.setattr(log_manager, "PRODUCERS_PER_STEP", 5)
    world = make_world()
    for number in range(6):
        for producer_id in range(2):
            append(world.log(tp(number)), b"v", producer_id=producer_id, producer_epoch=0,
                   base_sequence=0)  # fmt: skip
    logs = world.manager.all_logs()
    monkeypatch.setattr(world.manager._clock, "wall_ms", lambda: BASE_MS + 8 * 24 * 3_600_000)
    left = [sum(len(log.producers) for log in logs) for _ in world.manager._expire_producers()]
    # Two logs of two producers each are a turn's work.
    assert left == [8, 4]
    assert not any(log.producers for log in logs)
