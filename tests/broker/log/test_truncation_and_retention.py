"""Records that a log removes: at its end for a new leader, at its start by age, size and
DeleteRecords."""

from pathlib import Path

import pytest

from kctl.broker.log import truncation
from kctl.broker.log.unified_log import FetchIsolation
from kctl.records.compression import GZIP
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.storage.layout import file_name
from tests.support.log_world import BASE_MS, TP, append, batch, bytes_of, values_of

HOUR_MS = 3_600_000


def fill(log, count=40, size=50, epoch=0):
    for number in range(count):
        append(log, bytes([65 + number % 26]) * size, first_ms=BASE_MS + number, epoch=epoch)


@pytest.fixture
def world(make_world):
    return make_world(segment_bytes=600, index_interval_bytes=150)


def test_truncation_in_the_middle_and_the_log_continues_there(world):
    log = world.log()
    fill(log)
    log.truncate_to(17)
    assert (log.log_end_offset, log.high_watermark) == (17, 17)
    assert len(values_of(log)) == 17
    assert append(log, b"new").first_offset == 17
    again = world.restart()
    assert values_of(again)[16:] == [(16, b"Q" * 50), (17, b"new")]


def test_truncation_inside_a_batch_drops_the_whole_batch(world):
    log = world.log()
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    log.truncate_to(2)
    assert values_of(log) == [(0, b"a")]
    # In Apache Kafka 2.7.2 it ends at 2, and offset 1 is never filled.
    assert log.log_end_offset == 1


def append_wrapper(log, magic, base_offset, count, first_inside=None):
    """Append, as a follower, a compressed message of v0 or v1 with `count` messages."""
    first = base_offset if first_inside is None else first_inside
    builder = MessageSetBuilder(magic=magic, base_offset=first, compression_type=GZIP)
    for number in range(first, base_offset + count):
        builder.append(timestamp=BASE_MS, key=b"k", value=b"%d" % number)
    log.append_as_follower(bytes(builder.build()))
    log.update_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("offset", "end"), [(3, 3), (4, 3), (7, 3), (8, 8), (9, 8)])
def test_truncation_inside_a_compressed_message_drops_the_whole_message(world, magic, offset, end):
    log = world.log()
    for first, count in ((0, 3), (3, 5), (8, 4)):
        append_wrapper(log, magic, first, count)
    log.truncate_to(offset)
    assert values_of(log) == [(number, b"%d" % number) for number in range(end)]
    assert log.log_end_offset == end
    assert world.restart().log_end_offset == end


def test_truncation_inside_the_first_compressed_message_after_deleted_records(world):
    log = world.log()
    log.truncate_fully_and_start_at(12)
    append_wrapper(log, 1, 12, 8, first_inside=10)
    log.truncate_to(15)
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)
    assert values_of(log) == []


def test_truncation_beyond_the_end_only_forgets_epochs_that_begin_there(world):
    log = world.log()
    fill(log, 3)
    log.maybe_assign_epoch_start_offset(5, 3)
    assert not log.truncate_to(3)
    assert log.latest_epoch == 0
    assert log.log_end_offset == 3


def test_truncation_below_the_first_segment_starts_over(world):
    log = world.log()
    fill(log)
    log.maybe_increment_log_start_offset(30)
    log.delete_old_segments(0)
    first = log.segments[0].base_offset
    assert first > 20
    log.truncate_to(20)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (20, 20, 20)
    assert append(log, b"x").first_offset == 20


def test_full_truncation_drops_everything(world, tmp_path):
    log = world.log()
    fill(log)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (1000, 1000, 0)
    assert log.latest_epoch == -1
    append(log, b"x", epoch=7)
    again = world.restart()
    assert values_of(again) == [(1000, b"x")]
    assert again.end_offset_for_epoch(7) == (7, 1001)


def test_recovery_point_falls_with_the_log(world):
    log = world.log()
    fill(log)
    log.flush()
    assert log.recovery_point == 40
    log.truncate_to(10)
    assert log.recovery_point == 10


def announcements(log):
    return sorted(path.name for path in Path(log.directory).glob("*.truncation"))


def test_truncation_is_announced_until_a_checkpoint_includes_it(world):
    log = world.log()
    fill(log)
    log.truncate_to(35)
    assert announcements(log) == [], "no checkpoint speaks of what is cut"
    log.flush()
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    log.truncate_to(20)
    (announcement,) = announcements(log)
    world.manager.checkpoint()
    assert announcements(log) == [announcement], "not before the checkpoint is on the disk"
    world.runtime.scheduler.settle()
    assert announcements(log) == []


def test_a_log_does_not_get_the_high_watermark_of_a_deleted_one(world):
    """Simulation: seed 200844 of 22 November 2026; in 2.7.2 it gets it after a crash."""
    append(world.log(), b"a", b"b", b"c")
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    world.manager.delete_log(TP)
    world.log().append_as_leader(batch(b"d", b"e"), 0, now_ms=BASE_MS)
    again = world.restart()
    assert (again.log_end_offset, again.high_watermark) == (2, 0)


def test_truncation_is_announced_while_an_older_checkpoint_is_being_written(world):
    log = world.log()
    fill(log)
    log.flush()
    world.manager.checkpoint()
    log.truncate_to(20)
    (announcement,) = announcements(log)
    world.runtime.scheduler.settle()
    assert announcements(log) == [announcement], "what was written is from before"


def test_torn_record_after_a_truncation_is_not_corruption(world):
    log = world.log()
    fill(log)
    log.flush()
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    log.truncate_to(0)
    append(log, b"torn")
    world.crash()
    path = Path(log.directory) / file_name(0, ".log")
    path.write_bytes(path.read_bytes()[:-3])
    world.start()
    assert not world.manager.damaged
    assert world.log().log_end_offset == 0


def test_checkpoints_of_a_deleted_log_do_not_apply_to_the_next_one_of_its_name(world):
    log = world.log()
    fill(log)
    log.maybe_increment_log_start_offset(30)
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    world.manager.delete_log(TP)
    append(world.log(), b"new")
    log = world.restart()
    assert (log.log_start_offset, values_of(log)) == (0, [(0, b"new")])


def test_flush_in_progress_during_a_truncation_covers_nothing(world):
    log = world.log()
    fill(log)
    job = log.prepare_flush()
    log.truncate_to(10)
    fill(log)
    job.run()
    log.complete_flush(job)
    assert log.recovery_point <= 10


def test_slices_in_flight_survive_deletion(world):
    log = world.log()
    fill(log)
    info = log.read(0, 10**6, isolation=FetchIsolation.LOG_END)
    before = bytes_of(info)
    log.maybe_increment_log_start_offset(39)
    assert log.delete_old_segments(0) > 3
    world.runtime.scheduler.advance(100_000)
    assert bytes_of(info) == before


def test_old_records_are_deleted_by_time_segment_by_segment(make_world):
    world = make_world(segment_bytes=600, retention_ms=HOUR_MS)
    log = world.log()
    fill(log)
    newest_of_first = log.segments[0].max_timestamp

    assert log.delete_old_segments(newest_of_first + HOUR_MS) == 0
    assert log.delete_old_segments(newest_of_first + HOUR_MS + 1) == 1
    assert log.log_start_offset == log.segments[0].base_offset > 0


def test_when_everything_is_too_old_an_empty_segment_remains(make_world):
    world = make_world(retention_ms=HOUR_MS)
    log = world.log()
    fill(log, 5)
    assert log.delete_old_segments(BASE_MS + 10 * HOUR_MS) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (5, 5, 0)
    assert log.delete_old_segments(BASE_MS + 10 * HOUR_MS) == 0
    assert append(log, b"x").first_offset == 5
    again = world.restart(clean=True)
    assert (again.log_start_offset, again.log_end_offset) == (5, 6)


def test_nothing_above_the_high_watermark_is_deleted(make_world):
    log = make_world(segment_bytes=600, retention_ms=0).log()
    for number in range(20):
        log.append_as_leader(batch(bytes(50), first_ms=BASE_MS), 0, now_ms=number)
    assert log.delete_old_segments(BASE_MS + HOUR_MS) == 0
    log.update_high_watermark(log.segments[1].base_offset)
    assert log.delete_old_segments(BASE_MS + HOUR_MS) == 1


def test_size_limit_keeps_at_least_that_much(make_world):
    log = make_world(segment_bytes=600, retention_bytes=1500, retention_ms=-1).log()
    fill(log)
    log.delete_old_segments(BASE_MS + 10**12)
    assert 1500 <= log.size < 1500 + 600
    assert log.delete_old_segments(BASE_MS + 10**12) == 0


def test_no_limits_keep_everything(make_world):
    log = make_world(segment_bytes=600, retention_ms=-1).log()
    fill(log)
    assert log.delete_old_segments(BASE_MS + 10**12) == 0


def test_compacted_topics_lose_nothing_to_age(make_world):
    log = make_world(segment_bytes=600, cleanup_policy=("compact",), retention_ms=0).log()
    fill(log)
    assert log.delete_old_segments(BASE_MS + 10**12) == 0
    log.maybe_increment_log_start_offset(39)
    assert log.delete_old_segments(BASE_MS) > 0, "but what DeleteRecords gave up goes"


def test_deleted_segments_are_renamed_at_once_and_removed_later(make_world, tmp_path):
    world = make_world(segment_bytes=600, file_delete_delay_ms=60_000)
    log = world.log()
    fill(log)
    log.maybe_increment_log_start_offset(39)
    log.delete_old_segments(0)

    gone = list(tmp_path.rglob("*.deleted"))
    assert len([path for path in gone if path.name.endswith(".log.deleted")]) >= 3
    world.runtime.scheduler.advance(59_999)
    assert all(path.exists() for path in gone)
    world.runtime.scheduler.advance(2)
    assert not any(path.exists() for path in gone)


def test_log_start_offset_survives_a_restart(world):
    log = world.log()
    fill(log)
    log.maybe_increment_log_start_offset(17)
    world.manager.checkpoint()
    world.runtime.scheduler.settle()
    assert world.restart().log_start_offset == 17


def test_end_offsets_of_epochs(world):
    log = world.log()
    fill(log, 5, epoch=1)
    fill(log, 5, epoch=3)
    fill(log, 5, epoch=4)
    assert log.end_offset_for_epoch(0) == (0, 0)
    assert log.end_offset_for_epoch(1) == (1, 5)
    assert log.end_offset_for_epoch(2) == (1, 5)
    assert log.end_offset_for_epoch(3) == (3, 10)
    assert log.end_offset_for_epoch(4) == (4, 15)
    assert log.end_offset_for_epoch(5) is None
    assert log.end_offset_for_epoch(-1) is None
    log.maybe_increment_log_start_offset(7)
    assert log.end_offset_for_epoch(1) == (1, 7), "what is below is gone"
    log.truncate_to(8)
    assert log.end_offset_for_epoch(3) == (3, 8)
    assert log.end_offset_for_epoch(4) is None


def test_a_new_epoch_removes_the_epochs_that_it_contradicts(world):
    log = world.log()
    fill(log, 5, epoch=1)
    log.maybe_assign_epoch_start_offset(2, 5)
    log.maybe_assign_epoch_start_offset(6, 5)
    assert log.end_offset_for_epoch(2) == (1, 5)
    log.maybe_assign_epoch_start_offset(6, 9)
    assert log.end_offset_for_epoch(5) == (1, 5), "an epoch begins once"


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_a_truncation_replays_batches_only_where_there_are_producers(
    world, monkeypatch, producer_id
):
    log = world.log()
    for number in range(10):
        options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        append(log, b"v", **(options if producer_id >= 0 else {}))
    replayed, replay = [], truncation.replay_in_steps
    monkeypatch.setattr(
        truncation, "replay_in_steps", lambda *it: replayed.append(it) or replay(*it)
    )
    log.truncate_to(5)
    assert bool(replayed) == (producer_id >= 0)
    assert log._producers.map_end_offset == 5
