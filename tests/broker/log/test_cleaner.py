"""Compaction: the records that are kept, batches that are copied unchanged, and concurrent
reads."""

import dataclasses

import pytest

from kctl.broker.log.checkpoints import REWRITE_DELAY_MS
from kctl.broker.log.cleaner_manager import (
    CleanerManager,
    CleaningMove,
    CleaningState,
    cleanable_part,
)
from kctl.broker.log.log_cleaner import CleanerSettings
from kctl.broker.log.unified_log import FetchIsolation
from kctl.model import TopicPartition
from kctl.records.batch_filter import delete_horizon_ms
from kctl.records.builder import RecordBatchBuilder
from kctl.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.record_batch import LOG_APPEND_TIME, RecordBatch
from kctl.storage.layout import CLEANER_OFFSET_CHECKPOINT
from kctl.work import at_once
from tests.support.cleaning import (
    COMPACTED,
    DAY_MS,
    all_batches,
    clean,
    committed,
    compacted,
    pass_time,
    put,
    records_of,
)
from tests.support.log_world import BASE_MS, TP, append, bytes_of, end_transaction

# # --- kept records ----------------------------------------------------------------------------


def test_only_the_last_record_of_each_key_is_kept_at_its_offset():
    world = compacted()
    log = world.log()
    for number in range(50):
        put(log, (b"k%d" % (number % 5), b"v%d" % number))
    log.roll()
    clean(world)
    assert [(it.offset, it.key, it.value) for it in records_of(log)] == [
        (number, b"k%d" % (number % 5), b"v%d" % number) for number in range(45, 50)
    ]
    assert log.log_end_offset == 50


def test_the_active_segment_is_never_cleaned():
    world = compacted()
    log = world.log()
    for number in range(10):
        put(log, (b"k", b"v%d" % number))
    assert clean(world) == 0
    assert len(records_of(log)) == 10


def test_a_batch_that_loses_nothing_passes_through_byte_for_byte():
    world = compacted()
    log = world.log()
    put(log, (b"a", b"1"), (b"b", b"1"), compression_type=LZ4)
    put(log, (b"c", b"1"), (b"d", b"1"), compression_type=ZSTD)
    log.roll()
    before = [one.to_bytes() for one in all_batches(log)]
    clean(world)
    assert [one.to_bytes() for one in all_batches(log)] == before


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_the_kept_records_of_a_batch_keep_codec_offsets_sequences_headers_and_times(codec):
    world = compacted()
    log = world.log()
    put(
        log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"),
        compression_type=codec, producer_id=3, producer_epoch=1, base_sequence=0,
    )  # fmt: skip
    before = all_batches(log)[0]
    kept_before = next(it for it in before.records() if it.key == b"b")
    put(log, (b"a", b"2"), (b"c", b"2"))
    log.roll()
    clean(world)
    after = all_batches(log)[0]
    assert list(after.records()) == [kept_before]
    after.ensure_valid()
    for field in (
        "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence",
        "last_sequence", "partition_leader_epoch", "compression_type", "timestamp_type",
    ):  # fmt: skip
        assert getattr(after, field) == getattr(before, field), field
    assert after.max_timestamp == kept_before.timestamp


def test_log_append_time_stays_the_records_time():
    world = compacted(message_timestamp_type="LogAppendTime")
    log = world.log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"))
    log.roll()
    clean(world)
    assert all_batches(log)[0].timestamp_type == LOG_APPEND_TIME
    assert [it.timestamp for it in records_of(log)] == [BASE_MS, BASE_MS]


def test_records_without_a_key_are_removed():
    world = compacted(cleanup_policy=("delete",))
    log = world.log()
    put(log, (None, b"1"), (b"a", b"1"))
    world.manager.update_config(TP.topic, COMPACTED)
    log.roll()
    clean(world)
    assert [it.key for it in records_of(log)] == [b"a"]


# --- tombstones ------------------------------------------------------------------------------


def test_a_tombstone_is_removed_by_the_first_cleaning_after_delete_retention():
    world = compacted(delete_retention_ms=DAY_MS)
    log = world.log()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None))
    log.roll()
    clean(world)
    assert [(it.key, it.value) for it in records_of(log)] == [(b"b", b"1"), (b"a", None)]
    pass_time(world, DAY_MS - 10)
    put(log, (b"c", b"1"))
    log.roll()
    clean(world)
    assert b"a" in [it.key for it in records_of(log)]
    world.runtime.scheduler.advance(10)
    put(log, (b"c", b"2"))
    log.roll()
    clean(world)
    assert [(it.key, it.value) for it in records_of(log)] == [(b"b", b"1"), (b"c", b"2")]


def test_merging_does_not_reset_the_age_of_tombstones():
    """KAFKA-8522: cleaned repeatedly, they are still removed a day after the first time."""
    world = compacted(delete_retention_ms=DAY_MS)
    log = world.log()
    put(log, (b"a", None))
    for hour in range(26):
        put(log, (b"b", b"%d" % hour))
        log.roll()
        clean(world)
        pass_time(world, 3_600_000)
    assert [it.key for it in records_of(log)] == [b"b"]


def test_the_delete_horizon_changes_no_records_time():
    world = compacted()
    log = world.log()
    put(log, (b"a", None), (b"b", b"1"), compression_type=GZIP)
    log.roll()
    before = records_of(log)
    clean(world)
    assert records_of(log) == before
    horizon_ms = world.runtime.clock.wall_ms() + DAY_MS
    assert delete_horizon_ms(all_batches(log)[0]) == horizon_ms


# --- producers and transactions --------------------------------------------------------------


def test_a_producers_last_batch_is_kept_empty_and_duplicates_are_still_detected():
    world = compacted()
    log = world.log()
    options = {"producer_id": 7, "producer_epoch": 0}
    put(log, (b"a", b"1"), base_sequence=0, **options)
    put(log, (b"a", b"2"), base_sequence=1, **options)
    put(log, (b"a", b"3"))
    log.roll()
    clean(world)
    assert [(one.base_offset, one.count) for one in all_batches(log)] == [(1, 0), (2, 1)]
    put(log, (b"z", b"1"))
    # The snapshots are lost, so the batches alone must suffice.
    for name in world.runtime.disk.list(f"{log.directory}"):
        if name.endswith(".snapshot"):
            world.runtime.disk.remove(f"{log.directory}/{name}")
    log = world.restart()
    end = log.log_end_offset
    put(log, (b"a", b"2"), base_sequence=1, **options)
    assert log.log_end_offset == end


def test_aborted_records_are_removed_first_and_their_marker_a_day_later():
    world = compacted(delete_retention_ms=DAY_MS)
    log = world.log()
    put(log, (b"a", b"good"))
    put(
        log, (b"a", b"bad"),
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    end_transaction(log, 7, commit=False)
    log.update_high_watermark(log.log_end_offset)
    # The producer is active with another batch, so the first need not be kept for it.
    put(log, (b"x", b"1"), producer_id=7, producer_epoch=0, base_sequence=1)
    log.roll()
    kinds = []
    for _ in range(4):
        clean(world)
        kinds.append([one.base_offset for one in all_batches(log) if one.is_control])
        assert [it.value for it in committed(log)][:1] == [b"good"]
        pass_time(world, DAY_MS)
        put(log, (b"y", b"1"))
        log.roll()
    # The data is removed, the marker is found unneeded, its retention ends.
    assert kinds == [[2], [2], [], []]
    assert b"bad" not in [it.value for it in records_of(log)]


def test_a_commit_marker_stays_while_its_data_does():
    world = compacted(delete_retention_ms=0)
    log = world.log()
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 7, commit=True)
    for number in range(5):
        put(log, (b"y", b"%d" % number))
        log.roll()
        clean(world)
        pass_time(world, DAY_MS)
    assert [one.base_offset for one in all_batches(log) if one.is_control] == [1]
    assert world.restart().last_stable_offset == log.log_end_offset


def test_an_open_transaction_and_everything_after_it_is_not_cleaned():
    """KAFKA-13194."""
    world = compacted()
    log = world.log()
    put(log, (b"a", b"0"))
    log.roll()
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    put(log, (b"a", b"2"))
    log.roll()
    clean(world)
    assert [it.value for it in records_of(log)] == [b"0", b"1", b"2"]
    assert log.local.cleaned_offset == 1
    end_transaction(log, 7, commit=True)
    log.update_high_watermark(log.log_end_offset)
    clean(world)
    assert [it.value for it in records_of(log)] == [b"2"]


def test_a_record_with_the_key_of_a_marker_removes_no_marker():
    """KAFKA-14055."""
    world = compacted(delete_retention_ms=0)
    log = world.log()
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, 7, commit=True)
    put(log, (b"\0\0\0\1", b"v"))
    log.roll()
    clean(world)
    assert [one.base_offset for one in all_batches(log) if one.is_control] == [1]


def test_the_transaction_index_of_a_cleaned_segment_has_the_kept_transactions():
    world = compacted(delete_retention_ms=0)
    log = world.log()
    for number in range(2):
        put(
            log, (b"a", b"bad"), producer_id=7, producer_epoch=0, base_sequence=number,
            is_transactional=True,
        )  # fmt: skip
        end_transaction(log, 7, commit=False)
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    clean(world)
    first = log.segments[0].transaction_index.entries()
    assert [(it.producer_id, it.last_offset) for it in first] == [(7, 1), (7, 3)]
    put(log, (b"b", b"1"))
    log.roll()
    clean(world)
    # The producer's last batch is kept, empty: so is its marker.
    again = log.segments[0].transaction_index.entries()
    assert [(it.producer_id, it.last_offset) for it in again] == [(7, 3)]


# --- old formats -----------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "version"), [(0, "0.9.0"), (1, "0.10.2")])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_messages_of_old_formats_are_compacted_too(magic, version, codec):
    world = compacted(message_format_version=version)
    log = world.log()
    for number in range(12):
        builder = MessageSetBuilder(magic=magic, compression_type=codec)
        for key in (b"a", b"b%d" % number):
            builder.append(timestamp=BASE_MS, key=key, value=b"%d" % number)
        log.append_as_leader(bytearray(builder.build()), 0, now_ms=BASE_MS)
        log.update_high_watermark(log.log_end_offset)
    log.roll()
    clean(world)
    last = [(2 * number + 1, b"b%d" % number, b"%d" % number) for number in range(11)]
    assert [(it.offset, it.key, it.value) for it in records_of(log)] == [
        *last, (22, b"a", b"11"), (23, b"b11", b"11")
    ]  # fmt: skip
    assert {one.magic for one in all_batches(log)} == {magic}


# # --- schedule ----------------------------------------------------------------------------------


def test_a_log_is_due_by_its_dirty_ratio():
    world = compacted(min_cleanable_dirty_ratio=0.5)
    log = world.log()
    put(log, *((b"k%d" % number, b"v" * 10) for number in range(60)))
    log.roll()
    assert clean(world) == 1
    put(log, (b"x", b"1"))
    log.roll()
    assert clean(world) == 0
    put(log, *((b"k%d" % number, b"v" * 10) for number in range(60)))
    log.roll()
    assert clean(world) == 1


def test_the_dirtiest_log_is_first():
    world = compacted()
    logs = [world.log(TopicPartition("t", number)) for number in range(2)]
    for log in logs:
        put(log, (b"a", b"v" * 100))
        log.roll()
    clean(world)
    put(logs[0], (b"a", b"v"))
    put(logs[1], (b"a", b"v" * 100))
    for log in logs:
        log.roll()
    due = at_once(world.manager.cleaner.manager.filthiest(logs, world.runtime.clock.wall_ms()))
    assert due.log is logs[1]


def test_young_segments_wait_for_min_compaction_lag():
    world = compacted(min_compaction_lag_ms=DAY_MS)
    log = world.log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll()
    assert clean(world) == 0
    pass_time(world, DAY_MS + 10)
    assert clean(world) == 1
    assert len(records_of(log)) == 1


def test_a_batch_older_than_max_compaction_lag_makes_a_log_due():
    world = compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=DAY_MS)
    log = world.log()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll()
    assert clean(world) == 0
    pass_time(world, DAY_MS + 10)
    assert clean(world) == 1


def test_segments_are_rolled_by_max_compaction_lag():
    world = compacted(max_compaction_lag_ms=1000)
    log = world.log()
    append(log, b"1", first_ms=BASE_MS)
    append(log, b"2", first_ms=BASE_MS + 1001)
    assert len(log.segments) == 2


def test_the_dirty_part_begins_at_a_log_start_beyond_the_cleaned_offset():
    """KAFKA-9133."""
    world = compacted()
    log = world.log()
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    log.maybe_increment_log_start_offset(31)
    found = cleanable_part(log, BASE_MS)
    assert found.first_dirty_offset == 31
    assert clean(world) == 1


def test_a_cleaned_log_is_not_due_again():
    """KAFKA-8764, KAFKA-9826: missing offsets at the end cause no endless loop."""
    world = compacted()
    log = world.log()
    put(log, (b"a", b"1"))
    follower_gap = RecordBatchBuilder(base_offset=70)
    follower_gap.append(timestamp=BASE_MS, key=b"b", value=b"1")
    log.append_as_follower(bytes(follower_gap.build()))
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    assert clean(world) == 1
    assert clean(world) == 0


def test_the_next_cleaning_continues_after_a_full_map():
    world = compacted(cleaner=CleanerSettings(dedupe_buffer_bytes=24, load_factor=0.01))
    log = world.log()
    for number in range(60):
        put(log, (b"k%d" % (number % 30), b"v%d" % number))
    log.roll()
    assert clean(world) > 1
    assert [it.value for it in records_of(log)] == [b"v%d" % number for number in range(30, 60)]


# --- aborted, damaged, deleted ---------------------------------------------------------------


def half_way(world, log):
    """Return a cleaning in progress, and a function that continues it."""
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    scheduler = world.runtime.scheduler
    task = scheduler.spawn(world.manager.cleaner.clean_one())
    for _ in range(7):
        callback, arguments = scheduler._ready.popleft()
        callback(*arguments)
    assert world.manager.cleaner.is_cleaning(log)
    return lambda: (scheduler.settle(), task.result())


@pytest.mark.parametrize("how", ["truncate", "policy", "delete", "retention"])
def test_cleaning_is_aborted_when_the_log_has_changed(how):
    """KAFKA-12840 and similar changes."""
    world = compacted()
    log = world.log()
    continue_cleaning = half_way(world, log)
    if how == "truncate":
        log.truncate_to(40)
    elif how == "policy":
        world.manager.update_config(TP.topic, dataclasses.replace(COMPACTED, cleanup_policy=()))
    elif how == "delete":
        world.manager.delete_log(TP)
    else:
        log.maybe_increment_log_start_offset(59)
        log.delete_old_segments(0)
    left = [it.offset for it in records_of(log)] if how != "delete" else []
    continue_cleaning()
    assert [it.offset for it in records_of(log)] == left if how != "delete" else True
    assert world.manager.cleaner.manager.state(TP) is CleaningState.IDLE
    names = [path for path in world.runtime.disk.contents() if "cleaned" in path]
    assert names == []


def test_retention_waits_for_the_cleaner():
    world = compacted(cleanup_policy=("compact", "delete"), retention_ms=1)
    log = world.log()
    continue_cleaning = half_way(world, log)
    assert at_once(world.manager.delete_old_segments()) == 0
    continue_cleaning()
    assert at_once(world.manager.delete_old_segments()) > 0


def test_readers_keep_the_old_files():
    world = compacted()
    log = world.log()
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    reading = log.read(0, 1500, isolation=FetchIsolation.LOG_END)
    before = bytes_of(reading)
    clean(world)
    world.runtime.scheduler.advance(60_000)
    assert len(records_of(log)) < 60
    assert bytes_of(reading) == before


def test_a_damaged_batch_makes_the_partition_uncleanable_with_one_line():
    world = compacted()
    log = world.log()
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    path = log.segments[1].records.path
    file = world.runtime.disk.open(path)
    file.pwrite(b"\xff", 70)
    assert clean(world) == 1
    assert clean(world) == 0
    (line,) = world.warnings
    assert path in line
    assert world.manager.cleaner.manager.state(TP) is CleaningState.UNCLEANABLE
    log.truncate_to(0)
    put(log, (b"k", b"1"))
    log.roll()
    assert clean(world) == 1


def test_a_disk_that_fails_takes_the_directory_offline():
    world = compacted()
    log = world.log()
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    world.runtime.disk.fail["/d0/t-0/00000000000000000000.log.cleaned"] = "I/O error"
    clean(world)
    assert world.manager.offline_log_dirs == ["/d0"]


def test_a_state_allows_only_its_moves():
    world = compacted()
    log = world.log()
    manager = CleanerManager()
    with pytest.raises(ValueError, match="t-0 is idle: it cannot finish"):
        manager.move(log, CleaningMove.FINISH)
    assert manager.state(TP) is CleaningState.IDLE
    assert manager.move(log, CleaningMove.BEGIN) is CleaningState.CLEANING


# --- the checkpoint --------------------------------------------------------------------------


def test_the_cleaned_offset_survives_a_restart_and_is_forgotten_with_the_topic():
    world = compacted()
    log = world.log()
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    clean(world)
    cleaned = log.local.cleaned_offset
    assert cleaned == log.segments[-1].base_offset
    log = world.restart(clean=True)
    assert log.local.cleaned_offset == cleaned
    assert clean(world) == 0
    log.truncate_to(3)
    assert log.local.cleaned_offset <= 3
    world.manager.delete_log(TP)
    world.runtime.scheduler.advance(REWRITE_DELAY_MS)
    text = world.runtime.disk.read_file(f"/d0/{CLEANER_OFFSET_CHECKPOINT}")
    assert text == b"0\n0\n"


def test_a_broker_cleans_automatically_and_stops_cleanly():
    world = compacted(cleaner=CleanerSettings())
    log = world.log()
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    world.runtime.scheduler.advance(15_000)
    assert len(records_of(log)) < 60
    cleaner = world.manager.cleaner
    world.close()
    assert cleaner.manager.state(TP) is CleaningState.IDLE
    world.runtime.scheduler.advance(60_000)
    assert not world.warnings


def test_no_cleaner_runs_where_the_settings_forbid_it():
    world = compacted()
    log = world.log()
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    world.runtime.scheduler.advance(60_000)
    assert len(records_of(log)) == 60


def test_the_cleaner_respects_its_rate():
    slow = CleanerSettings(bytes_per_second=1000, io_buffer_bytes=500)
    world = compacted(cleaner=slow)
    log = world.log()
    for number in range(60):
        put(log, (b"k", b"v%d" % number))
    dirty = sum(segment.size for segment in log.segments[:-1])
    task = world.runtime.scheduler.spawn(world.manager.cleaner.clean_one())
    world.runtime.scheduler.advance(dirty // 2)
    assert not task.done
    world.runtime.scheduler.advance(2 * dirty)
    assert task.done


def test_an_emptied_batch_of_every_kind_is_still_a_batch():
    world = compacted()
    log = world.log()
    put(log, (b"a", b"1"), producer_id=5, producer_epoch=2, base_sequence=9, compression_type=GZIP)
    put(log, (b"a", b"2"))
    log.roll()
    clean(world)
    empty = all_batches(log)[0]
    assert isinstance(empty, RecordBatch)
    assert (empty.count, empty.producer_id, empty.last_sequence) == (0, 5, 9)
    assert empty.is_crc_valid()


def test_the_figures_of_the_last_cleaning_are_kept():
    world = compacted()
    log = world.log()
    cleaner = world.manager.cleaner
    for number in range(50):
        put(log, (b"k%d" % (number % 5), b"v%d" % number))
    log.roll()
    assert cleaner.last.recopy_percent == 0
    before = sum(segment.size for segment in log.segments)
    pass_time(world, 70)
    assert cleaner.looked_ms_ago() >= 70
    clean(world)

    after = sum(segment.size for segment in log.segments)
    assert (cleaner.last.bytes_before, cleaner.last.bytes_after) == (before, after)
    assert cleaner.last.recopy_percent == 100 * after / before
    assert cleaner.manager.dirtiest_ratio == 0, "nothing was dirty when it last looked"
    assert cleaner.looked_ms_ago() < 70
    assert cleaner.manager.uncleanable(["/empty"]) == {"/empty": 0}
    put(log, (b"k1", b"later"))
    log.roll()
    at_once(cleaner.manager.filthiest([log], BASE_MS))
    assert 0 < cleaner.manager.dirtiest_ratio < 1
    assert not cleaner.is_dead
