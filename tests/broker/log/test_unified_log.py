"""Appending to and reading from one log."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise

import pytest

from kctl.broker.log import log_config
from kctl.broker.log.log_config import LogConfig
from kctl.broker.log.unified_log import FetchIsolation
from kctl.errors import StorageError
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.builder import RecordBatchBuilder, assemble
from kctl.records.compression import GZIP, ZSTD
from kctl.records.compression_stream import CHUNK_BYTES, StreamCompressor
from kctl.records.memory_records import batches
from kctl.records.varint import write_varint
from kctl.work import at_once
from tests.support.log_world import BASE_MS, append, batch, bytes_of, end_transaction, values_of

LOG_END = FetchIsolation.LOG_END


def refusal(code):
    return pytest.raises(ApiError, check=lambda error: error.code == code)


MIB = 1024 * 1024


def test_appended_batches_get_offsets_epoch_and_one_place_in_the_file(make_world):
    log = make_world().log()

    first = log.append_as_leader(batch(b"a", b"b"), 3, now_ms=BASE_MS)
    second = log.append_as_leader(batch(b"c"), 3, now_ms=BASE_MS)

    assert (first.first_offset, first.last_offset) == (0, 1)
    assert (second.first_offset, second.last_offset) == (2, 2)
    assert first.log_append_time_ms == -1
    assert (first.max_timestamp, first.offset_of_max_timestamp) == (BASE_MS + 1, 1)
    written = list(batches(bytes_of(log.read(0, 10**6, isolation=LOG_END))))
    assert [b.base_offset for b in written] == [0, 2]
    assert {b.partition_leader_epoch for b in written} == {3}
    assert all(b.is_crc_valid() for b in written)
    assert log.latest_epoch == 3


def test_log_append_time_is_returned_to_the_producer(make_world):
    log = make_world(message_timestamp_type="LogAppendTime").log()
    info = log.append_as_leader(batch(b"a"), 0, now_ms=777)
    assert info.log_append_time_ms == info.max_timestamp == 777


def test_too_large_a_batch_is_refused_and_leaves_no_trace(make_world):
    log = make_world(max_message_bytes=100).log()
    with refusal(ErrorCode.MESSAGE_TOO_LARGE):
        append(log, bytes(200))
    log.config = LogConfig()
    with refusal(ErrorCode.CORRUPT_MESSAGE):
        broken = batch(b"a")
        broken[-1] ^= 1
        log.append_as_leader(broken, 0, now_ms=0)
    assert log.log_end_offset == log.size == 0


def test_batch_beyond_a_segment_is_refused(make_world):
    log = make_world(segment_bytes=100).log()
    with refusal(ErrorCode.RECORD_LIST_TOO_LARGE):
        append(log, bytes(200))


def test_reads_start_at_the_batch_that_holds_the_offset(make_world):
    log = make_world().log()
    append(log, b"a", b"b", b"c")
    append(log, b"d")

    info = log.read(1, 10, isolation=LOG_END)

    assert next(batches(bytes_of(info))).base_offset == 0
    assert info.fetch_offset == 1
    assert info.position == (1, 0, 0)


def test_at_least_one_batch_however_small_the_limit_by_default(make_world):
    log = make_world().log()
    append(log, bytes(100))
    append(log, bytes(100))

    assert [b.base_offset for b in batches(bytes_of(log.read(0, 1, isolation=LOG_END)))] == [0]
    info = log.read(0, 1, isolation=LOG_END, min_one_message=False)
    assert len(info.records) == 1
    assert info.first_entry_incomplete


def test_reads_stop_at_the_high_watermark(make_world):
    log = make_world().log()
    log.append_as_leader(batch(b"a"), 0, now_ms=0)
    log.append_as_leader(batch(b"b"), 0, now_ms=0)
    log.update_high_watermark(1)

    info = log.read(0, 10**6, isolation=FetchIsolation.HIGH_WATERMARK)

    assert [b.base_offset for b in batches(bytes_of(info))] == [0]
    assert log.high_watermark_metadata == (1, 0, len(info.records))
    assert log.read(1, 10**6, isolation=FetchIsolation.HIGH_WATERMARK).records is None
    assert len(list(batches(bytes_of(log.read(0, 10**6, isolation=LOG_END))))) == 2


def test_offsets_outside_the_log_are_out_of_range(make_world):
    log = make_world().log()
    append(log, b"a", b"b")
    log.maybe_increment_log_start_offset(1)
    for offset in (-1, 0, 3):
        with refusal(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.read(offset, 10, isolation=LOG_END)
    assert log.read(2, 10, isolation=LOG_END).records is None


def test_reading_continues_through_all_segments(make_world, tmp_path):
    log = make_world(segment_bytes=300, index_interval_bytes=100).log()
    for number in range(40):
        append(log, b"%03d" % number)

    assert len(log.segments) > 8
    assert values_of(log) == [(number, b"%03d" % number) for number in range(40)]
    # From any offset, including those before the remembered tail.
    for number in range(40):
        assert values_of(log, number)[0] == (number, b"%03d" % number)


def test_tail_and_index_find_the_same_places(make_world):
    world = make_world(index_interval_bytes=1000)
    log = world.log()
    for number in range(3000):
        append(log, b"%d" % number)
    by_tail = [log.read(n, 100, isolation=LOG_END).position for n in range(0, 3000, 37)]
    again = world.restart(clean=True)
    by_index = [again.read(n, 100, isolation=LOG_END).position for n in range(0, 3000, 37)]
    assert by_index == by_tail


def test_reader_gets_past_offsets_that_compaction_removed(make_world):
    """A follower's log has the gaps of its leader's."""
    log = make_world().log()
    for offset in (0, 10, 20):
        one = batch(b"%d" % offset, b"x")
        one[0:8] = offset.to_bytes(8, "big")
        log.append_as_follower(one)
    assert [o for o, _ in values_of(log, 5)] == [10, 11, 20, 21]
    assert log.read(2, 1, isolation=LOG_END).position.relative_position > 0
    assert log.log_end_offset == 22


def test_rolls_by_time_of_the_records(make_world):
    log = make_world(segment_ms=1000).log()
    append(log, b"a", first_ms=BASE_MS)
    append(log, b"b", first_ms=BASE_MS + 1000)
    assert len(log.segments) == 1
    append(log, b"c", first_ms=BASE_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_rolls_by_the_clock_where_records_have_no_time(make_world):
    world = make_world(segment_ms=1000)
    log = world.log()
    created_ms = world.runtime.clock.wall_ms()
    append(log, b"a", first_ms=-1, now_ms=created_ms)
    append(log, b"b", first_ms=-1, now_ms=created_ms + 1000)
    assert len(log.segments) == 1
    append(log, b"c", first_ms=-1, now_ms=created_ms + 1001)
    assert len(log.segments) == 2


def test_rolls_when_an_index_is_full(make_world):
    log = make_world(segment_index_bytes=36, index_interval_bytes=0).log()
    for number in range(8):
        append(log, b"a", first_ms=BASE_MS + number)
    # Three slots in the time index, one of them kept for the entry that closing adds.
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]


def test_rolls_at_every_batch_where_indexes_have_no_room(make_world):
    log = make_world(segment_index_bytes=12).log()
    for number in range(3):
        append(log, b"a", first_ms=BASE_MS + number)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_read_of_zero_bytes_is_not_incomplete(make_world):
    log = make_world().log()
    append(log, b"a")
    how = {"isolation": FetchIsolation.TXN_COMMITTED, "min_one_message": False}
    nothing = log.read(0, 0, **how)
    assert (nothing.first_entry_incomplete, list(nothing.aborted_transactions)) == (False, [])
    assert log.read(0, 1, **how).first_entry_incomplete


def test_a_follower_begins_with_the_batch_in_whose_middle_the_leaders_log_starts(make_world):
    """DeleteRecords may end inside a batch; a replica that is created after that gets whole
    batches."""
    world = make_world()
    leader, follower = world.log(), world.log(TopicPartition("copy", 0))
    append(leader, b"a", b"b", b"c", b"d")
    leader.maybe_increment_log_start_offset(2)
    follower.truncate_fully_and_start_at(2)
    follower.append_as_follower(bytes_of(leader.read(2, 10**6, isolation=LOG_END)))
    follower.update_high_watermark(4)
    follower.maybe_increment_log_start_offset(2)
    assert values_of(follower) == values_of(leader) == [(2, b"c"), (3, b"d")]


def test_follower_keeps_what_the_leader_wrote(make_world):
    world = make_world()
    leader, follower = world.log(), world.log(TopicPartition("copy", 0))
    append(leader, b"a", b"b", epoch=1)
    append(leader, b"c", epoch=4)
    data = bytes_of(leader.read(0, 10**6, isolation=LOG_END))

    # Truncated in the middle of the last batch, which is fetched again.
    info = follower.append_as_follower(data[:-3])
    assert (info.first_offset, info.last_offset) == (0, 1)
    follower.append_as_follower(data[next(batches(data)).size :])

    assert follower.log_end_offset == 3
    assert bytes_of(follower.read(0, 10**6, isolation=LOG_END)) == data
    assert follower.end_offset_for_epoch(1) == (1, 2)
    assert follower.latest_epoch == 4


def test_a_log_whose_format_has_no_epochs_has_none(make_world):
    """Neither those of older records, nor of batches that its leader wrote before, nor those that
    it loads (Kafka 2.7: Log.initializeLeaderEpochCache)."""
    world = make_world()
    log = world.log()
    append(log, b"a", epoch=3)
    newer = log.config
    log.config = replace(newer, message_format_version="0.10.2")
    assert log.latest_epoch == -1
    later = batch(b"b")
    later[0:8], later[12:16] = (1).to_bytes(8, "big"), (3).to_bytes(4, "big")
    log.append_as_follower(later)
    assert log.latest_epoch == -1
    assert log.end_offset_for_epoch(3) is None
    log.config = newer
    append(log, b"c", epoch=4)
    assert log.end_offset_for_epoch(4) == (4, 3)
    world.config = replace(newer, message_format_version="0.10.2")
    assert world.restart(clean=True).latest_epoch == -1


def test_follower_rejects_known_and_damaged_batches(make_world):
    log = make_world().log()
    log.append_as_follower(batch(b"a"))
    with refusal(ErrorCode.UNKNOWN_SERVER_ERROR):
        log.append_as_follower(batch(b"a"))
    broken = batch(b"b")
    broken[7] = 1
    broken[-1] ^= 1
    with refusal(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_follower(broken)
    assert log.log_end_offset == 1


def test_offsets_by_timestamp(make_world):
    log = make_world(segment_bytes=400, index_interval_bytes=100).log()
    for number in range(20):
        append(log, b"a", b"b", first_ms=BASE_MS + 10 * number, epoch=2)

    assert at_once(log.fetch_offset_by_timestamp(-1)) == (-1, 40, 2)
    assert at_once(log.fetch_offset_by_timestamp(-2)) == (-1, 0, 2)
    assert at_once(log.fetch_offset_by_timestamp(0)) == (BASE_MS, 0, 2)
    assert at_once(log.fetch_offset_by_timestamp(BASE_MS + 71)) == (BASE_MS + 71, 15, 2)
    assert at_once(log.fetch_offset_by_timestamp(BASE_MS + 72)) == (BASE_MS + 80, 16, 2)
    assert at_once(log.fetch_offset_by_timestamp(BASE_MS + 192)) is None
    log.maybe_increment_log_start_offset(15)
    assert at_once(log.fetch_offset_by_timestamp(0)) == (BASE_MS + 71, 15, 2)
    assert at_once(log.fetch_offset_by_timestamp(-2)) == (-1, 15, 2)


def test_old_formats_have_no_search_by_time(make_world):
    log = make_world(message_format_version="0.9.0").log()
    with refusal(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
        at_once(log.fetch_offset_by_timestamp(5))


def test_preallocated_segment_releases_unused_space(make_world, tmp_path):
    world = make_world(preallocate=True, segment_bytes=4096)
    log = world.log()
    path = tmp_path / "logs/d0/t-0/00000000000000000000.log"
    append(log, b"a")
    assert path.stat().st_size == 4096
    size = log.size
    assert values_of(log) == [(0, b"a")]

    again = world.restart(clean=True)

    assert path.stat().st_size == size
    append(again, b"b")
    assert values_of(again) == [(0, b"a"), (1, b"b")]


def test_read_committed_ends_before_the_first_open_transaction(make_world):
    log = make_world().log()
    append(log, b"plain")
    append(log, b"t1", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, b"t2", producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert log.last_stable_offset == 1
    end_transaction(log, 1, commit=True)
    assert log.last_stable_offset == 1, "its marker is not replicated yet"
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2

    committed = values_of(log, isolation=FetchIsolation.TXN_COMMITTED)
    assert committed == [(0, b"plain"), (1, b"t1")]

    end_transaction(log, 2, commit=False)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 5
    info = log.read(0, 10**6, isolation=FetchIsolation.TXN_COMMITTED)
    assert info.aborted_transactions == [(2, 2, 4, 5)]
    assert log.read(0, 10**6, isolation=LOG_END).aborted_transactions is None


def test_aborted_transaction_over_many_segments_is_found_from_each(make_world):
    log = make_world(segment_bytes=300).log()
    producer = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    for sequence in range(12):
        append(log, bytes(50), base_sequence=sequence, **producer)
    end_transaction(log, 9, commit=False)
    log.update_high_watermark(log.log_end_offset)

    assert len(log.segments) > 5
    for offset in range(12):
        info = log.read(offset, 10, isolation=FetchIsolation.TXN_COMMITTED)
        assert info.aborted_transactions == [(9, 0, 12, 13)]
    assert log.read(12, 10, isolation=FetchIsolation.TXN_COMMITTED).aborted_transactions


def test_first_unstable_offset_is_not_below_the_log_start(make_world):
    log = make_world().log()
    append(log, b"t", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, b"a")
    log.maybe_increment_log_start_offset(1)
    assert log.first_unstable_offset == log.last_stable_offset == 1


def test_log_start_offset_does_not_pass_the_high_watermark(make_world):
    log = make_world().log()
    log.append_as_leader(batch(b"a", b"b"), 0, now_ms=0)
    with refusal(ErrorCode.OFFSET_OUT_OF_RANGE):
        log.maybe_increment_log_start_offset(1)
    log.update_high_watermark(2)
    assert log.maybe_increment_log_start_offset(1)
    assert not log.maybe_increment_log_start_offset(1)


def test_high_watermark_stays_within_the_log(make_world):
    log = make_world().log()
    append(log, b"a")
    assert log.update_high_watermark(99) == 1
    assert log.update_high_watermark(-5) == 0
    assert log.maybe_increment_high_watermark(1)
    assert not log.maybe_increment_high_watermark(0)
    assert log.high_watermark == 1


def test_flush_messages_makes_appends_durable_before_they_return(make_world):
    log = make_world(flush_messages=2).log()
    append(log, b"a")
    assert log.recovery_point == 0
    append(log, b"b")
    assert log.recovery_point == 2


def test_failed_append_leaves_the_log_as_it_was(make_world):
    log = make_world().log()
    append(log, b"a")
    file = log.segments[0].records.file

    class FullDisk:
        path = file.path

        def size(self):
            return file.size()

        def append(self, parts):
            raise StorageError("No space left on device")

    log.segments[0].records.file = FullDisk()
    with pytest.raises(StorageError):
        append(log, b"b")
    log.segments[0].records.file = file
    assert log.log_end_offset == 1
    append(log, b"c")
    assert values_of(log) == [(0, b"a"), (1, b"c")]


def test_open_files_are_bounded_and_slices_outlive_them(make_world):
    world = make_world(segment_bytes=200, options={"open_segments_max": 3})
    log = world.log()
    for number in range(30):
        append(log, b"%02d" % number)
    first = log.read(0, 100, isolation=LOG_END)

    assert len(values_of(log)) == 30

    assert len(world.manager._factory.open_segments) <= 3
    assert next(batches(bytes_of(first))).base_offset == 0


def inflating_batch(count, value_bytes):
    """Return a zstd batch of a few bytes whose `count` records hold `value_bytes` zeros each."""
    whole = RecordBatchBuilder(compression_type=ZSTD)
    whole.append(timestamp=BASE_MS, key=None, value=b"")
    record = bytearray(b"\0\0\0\1")
    write_varint(record, value_bytes)
    packer = StreamCompressor(ZSTD)
    for _ in range(count):
        size = bytearray()
        write_varint(size, len(record) + value_bytes + 1)
        packer.write(size + record)
        for start in range(0, value_bytes, MIB):
            packer.write(bytes(min(MIB, value_bytes - start)))
        packer.write(b"\0")
    attributes, last = whole.attributes, count - 1
    return assemble(
        packer.finish(), 0, -1, attributes, last, BASE_MS, BASE_MS + 1, -1, -1, -1, count
    )


def test_a_search_by_time_reads_a_batch_of_any_size_in_bounded_steps(make_world):
    """200 MiB in 6 kB: it was accepted, and then every search failed."""
    log = make_world().log()
    log.append_as_follower(inflating_batch(2, 100 * MIB))
    tracemalloc.start()
    steps = list(log.fetch_offset_by_timestamp(BASE_MS + 1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(steps) >= 100 * MIB // CHUNK_BYTES
    assert peak < 2 * MIB
    assert at_once(log.fetch_offset_by_timestamp(BASE_MS)) == (BASE_MS, 0, -1)


def test_a_search_by_time_looks_at_so_many_records_in_a_step(make_world):
    log = make_world().log()
    builder = RecordBatchBuilder(compression_type=GZIP)
    for number in range(5_000):
        builder.append(timestamp=BASE_MS + number, key=None, value=None)
    log.append_as_follower(builder.build())
    work = log.fetch_offset_by_timestamp(BASE_MS + 4_999)
    assert len(list(work)) >= 4
    assert at_once(log.fetch_offset_by_timestamp(BASE_MS + 4_999)) == (BASE_MS + 4_999, 4_999, -1)


@pytest.mark.parametrize("is_recovered", [False, True])
def test_a_search_reads_a_bounded_part_of_a_segment(make_world, monkeypatch, is_recovered):
    """With an index.interval.bytes of 1 GiB a search read all the batches of a segment."""
    monkeypatch.setattr(log_config, "INDEX_ENTRY_BYTES_MAX", 1_000)
    world = make_world(index_interval_bytes=1 << 30)
    log = world.log()
    for number in range(100):
        append(log, b"%d" % number)
    if is_recovered:
        log = world.restart(clean=False)
    (segment,) = log.segments
    positions = [entry.position for entry in segment.offset_index.entries()]
    assert len(positions) > 5
    assert max(after - before for before, after in pairwise([0, *positions])) < 1_200
