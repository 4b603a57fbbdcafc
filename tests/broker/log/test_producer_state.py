"""Idempotent producers and transactions: duplicates, gaps, epochs, snapshots, expiry."""

import dataclasses
import sys

import pytest

from kctl.broker.log.log_manager import LogManagerOptions
from kctl.broker.log.log_segment import HEADERS_PER_STEP
from kctl.broker.log.packed_producers import CHANGED_MAX
from kctl.broker.log.producer_replay import UNITS_PER_BATCH, UNITS_PER_STEP
from kctl.broker.log.producer_state import ProducerBatch
from kctl.broker.log.producer_state_manager import PRODUCERS_PER_STEP, ProducerStateManager
from kctl.broker.log.unified_log import AppendOrigin
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.record_batch import SEQUENCE_MAX
from kctl.storage.producer_snapshot import (
    ENTRY_BYTES,
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_entries,
)
from kctl.work import at_once, while_wanted
from tests.support.log_world import BASE_MS, append, end_transaction, values_of

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def world(make_world, runtime):
    # Producers expire by their records' times, which are therefore of today.
    runtime.clock.now_ms = BASE_MS - runtime.clock.WALL_AHEAD_MS
    return make_world(segment_bytes=1000)


@pytest.fixture
def log(world):
    return world.log()


def send(log, sequence, *values, producer_id=7, producer_epoch=0, **options):
    return append(
        log, *(values or (b"v",)), producer_id=producer_id, producer_epoch=producer_epoch,
        base_sequence=sequence, **options,
    )  # fmt: skip


def refusal(code):
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def test_batch_sent_again_gets_its_old_offsets_and_is_not_appended(log):
    first = send(log, 0, b"a", b"b")
    send(log, 2, b"c")

    again = send(log, 0, b"a", b"b")

    assert again.is_duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert log.log_end_offset == 3


def test_the_last_five_batches_are_recognized_and_the_sixth_is_a_gap(log):
    for sequence in range(6):
        send(log, sequence)
    for sequence in range(1, 6):
        assert send(log, sequence).first_offset == sequence
    with refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(log, 0)


def test_gap_in_the_sequence_is_refused(log):
    send(log, 0)
    with refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(log, 2)
    assert send(log, 1).first_offset == 1


def test_an_unknown_producer_may_begin_at_any_sequence(log):
    """KIP-360: its records may have been deleted."""
    assert send(log, 500).first_offset == 0
    with refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(log, 502)


def test_sequences_wrap(log):
    send(log, SEQUENCE_MAX - 1, b"a", b"b")
    assert send(log, 0, b"c").first_offset == 2
    assert send(log, SEQUENCE_MAX - 1, b"a", b"b").is_duplicate


def test_batch_across_the_wrap(log):
    send(log, SEQUENCE_MAX, b"a", b"b", b"c")
    assert send(log, SEQUENCE_MAX, b"a", b"b", b"c").is_duplicate
    assert send(log, 2, b"d").first_offset == 3


def test_older_epoch_is_fenced_newer_one_begins_at_zero(log):
    send(log, 0, producer_epoch=1)
    with refusal(ErrorCode.INVALID_PRODUCER_EPOCH):
        send(log, 1, producer_epoch=0)
    with refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(log, 1, producer_epoch=2)
    send(log, 0, producer_epoch=2)
    # The old epoch's batch is not a duplicate: its producer is fenced.
    with refusal(ErrorCode.INVALID_PRODUCER_EPOCH):
        send(log, 0, producer_epoch=1)


def test_an_open_transaction_rejects_plain_batches(log):
    send(log, 0, is_transactional=True)
    with refusal(ErrorCode.INVALID_TXN_STATE):
        send(log, 1)
    end_transaction(log, 7, commit=True)
    send(log, 1)


def test_marker_of_an_old_coordinator_is_rejected(log):
    send(log, 0, is_transactional=True)
    end_transaction(log, 7, commit=True, coordinator_epoch=5)
    send(log, 1, is_transactional=True)
    with refusal(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        end_transaction(log, 7, commit=False, coordinator_epoch=4)


def test_marker_bumps_the_epoch_and_fences(log):
    send(log, 0, is_transactional=True)
    end_transaction(log, 7, commit=False, producer_epoch=1)
    with refusal(ErrorCode.INVALID_PRODUCER_EPOCH):
        send(log, 1, is_transactional=True)
    send(log, 0, producer_epoch=1, is_transactional=True)


def test_marker_without_a_transaction_leaves_no_trace(log, tmp_path):
    end_transaction(log, 7, commit=False)
    log.update_high_watermark(1)
    assert log.last_stable_offset == 1
    assert not list(tmp_path.rglob("*.txnindex"))


def test_sequences_of_coordinators_are_not_checked(log):
    append(
        log, b"a", producer_id=7, producer_epoch=0, base_sequence=-1, is_transactional=True,
        origin=AppendOrigin.COORDINATOR,
    )  # fmt: skip
    assert log.first_unstable_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_duplicates_and_gaps_are_known_after_a_restart(world, log, clean):
    for sequence in range(20):
        send(log, sequence)

    log = world.restart(clean=clean)

    assert send(log, 19).is_duplicate
    with refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(log, 21)
    assert send(log, 20).first_offset == 20


@pytest.mark.parametrize("clean", [True, False])
def test_open_transaction_is_still_open_after_a_restart(world, log, clean):
    append(log, b"plain")
    send(log, 0, is_transactional=True)
    for number in range(30):
        append(log, b"more %d" % number)
    assert len(log.segments) > 1

    log = world.restart(clean=clean)

    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 1
    end_transaction(log, 7, commit=True)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset == 33


def test_snapshots_are_taken_at_rolls_and_at_the_end(world, log, tmp_path):
    for sequence in range(20):
        send(log, sequence, bytes(50))
    bases = [segment.base_offset for segment in log.segments]
    world.close()

    offsets = sorted(int(path.name[:20]) for path in tmp_path.rglob("*.snapshot"))
    # The snapshots that recovery may need: from the segment before the active one on.
    assert offsets == [*bases[-2:], 20]
    path = next(iter(tmp_path.rglob("*20.snapshot")))
    (entry,) = decode_snapshot(path.read_bytes(), str(path))
    assert (entry.producer_id, entry.last_sequence, entry.last_offset) == (7, 19, 19)


def test_damaged_or_missing_snapshots_are_rebuilt_from_the_batches(world, log, tmp_path):
    for sequence in range(20):
        send(log, sequence, bytes(50))
    world.close()
    snapshots = sorted(tmp_path.rglob("*.snapshot"))
    snapshots[-1].write_bytes(b"nonsense")
    snapshots[-2].unlink()

    world.start()
    log = world.log()

    assert send(log, 19, bytes(50)).is_duplicate
    assert any("snapshot" in warning for warning in world.warnings)


def test_producers_expire_after_a_week():
    assert LogManagerOptions().producer_expiration_ms == 7 * DAY_MS


def test_inactive_producers_expire_unless_a_transaction_is_open(make_world, runtime):
    runtime.clock.now_ms = BASE_MS - runtime.clock.WALL_AHEAD_MS
    world = make_world(options={"producer_expiration_ms": DAY_MS // 24})
    log = world.log()
    send(log, 0, producer_id=1)
    send(log, 0, producer_id=2, is_transactional=True)
    world.runtime.scheduler.advance(DAY_MS // 24 - 1000)
    assert sorted(log.producers) == [1, 2]
    world.runtime.scheduler.advance(600_000)
    assert list(log.producers) == [2]
    send(log, 77, producer_id=1)


def test_truncation_forgets_what_came_later(world, log):
    for sequence in range(20):
        send(log, sequence, bytes(50))
    send(log, 0, producer_id=8, is_transactional=True)

    log.truncate_to(10)

    assert log.first_unstable_offset is None
    assert send(log, 9, bytes(50)).is_duplicate
    with refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(log, 11)
    assert send(log, 10).first_offset == 10


def test_a_truncation_is_prepared_in_steps_and_changes_nothing_before_it(world, monkeypatch):
    """The batches since the last snapshot, up to a segment of them, are examined first."""
    log = world.log()
    log.config = dataclasses.replace(log.config, segment_bytes=10**6)
    for number in range(3000):
        send(log, number // 3, producer_id=number % 3)
    examined = []
    update = ProducerStateManager.update
    monkeypatch.setattr(
        ProducerStateManager, "update", lambda *it: examined.append(it) or update(*it)
    )
    expected = {id_: state.last_sequence for id_, state in log.producers.items()}

    steps = []

    def is_unchanged():
        steps.append(len(examined))
        examined.clear()
        now = {id_: state.last_sequence for id_, state in log.producers.items()}
        return (log.log_end_offset, now) == (3000, expected)

    prepared = at_once(while_wanted(log.prepare_truncation(2990), is_unchanged))
    assert prepared is not None
    assert len(steps) > 4
    assert max(steps) <= UNITS_PER_STEP // UNITS_PER_BATCH
    examined.clear()

    assert log.truncate_to(2990, prepared)
    assert not examined
    after = {id_: state.last_sequence for id_, state in log.producers.items()}
    assert after == {0: 996, 1: 996, 2: 995}
    assert send(log, 996, producer_id=2).first_offset == 2990


def test_an_outdated_preparation_of_a_truncation_is_not_used(world, log):
    for sequence in range(20):
        send(log, sequence, bytes(50))
    prepared = at_once(log.prepare_truncation(10))
    log.truncate_to(5)
    for sequence in range(7):
        send(log, sequence, bytes(50), producer_id=8)

    log.truncate_to(10, prepared)

    assert log.producers[7].last_sequence == 4
    assert send(log, 5, bytes(50), producer_id=8).first_offset == 10


def test_a_segment_that_is_replaced_while_a_truncation_is_prepared_is_not_read(world, log):
    """The cleaner removes its files; a read would fail, and take the log directory offline."""
    log.config = dataclasses.replace(log.config, segment_bytes=10**6)
    for sequence in range(3000):
        send(log, sequence)
    log.roll()
    send(log, 3000)
    log = world.restart(clean=True)
    preparation = log.prepare_truncation(2990)
    next(preparation)
    log.local.delete_segments(log.segments[:1])
    prepared = at_once(preparation)
    assert (prepared.segment, prepared.max_timestamp) == (None, None)


def test_the_largest_timestamp_of_a_truncated_log_is_found_in_steps(world):
    """Batches of equal timestamps have one entry in the time index."""
    log = world.log()
    log.config = dataclasses.replace(log.config, segment_bytes=10**6)
    for _ in range(2 * HEADERS_PER_STEP):
        append(log, b"v", first_ms=BASE_MS)
    append(log, b"later", first_ms=BASE_MS + 5)
    append(log, b"latest", first_ms=BASE_MS + 9)

    preparation = log.prepare_truncation(log.log_end_offset - 1)
    steps = sum(1 for _ in preparation)
    log.truncate_to(log.log_end_offset - 1, at_once(log.prepare_truncation(log.log_end_offset - 1)))

    assert steps == 2
    assert log.segments[-1].max_timestamp == BASE_MS + 5


def test_truncation_takes_back_the_end_of_a_transaction(world, log):
    send(log, 0, is_transactional=True)
    end_transaction(log, 7, commit=False)
    append(log, b"plain")
    assert log.last_stable_offset == 3

    log.truncate_to(1)

    assert log.first_unstable_offset == 0
    end_transaction(log, 7, commit=True)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2
    assert values_of(log) == [(0, b"v")]


def test_truncation_does_not_open_what_has_ended(log):
    send(log, 0, is_transactional=True)
    end_transaction(log, 7, commit=True)
    append(log, b"stays")
    append(log, b"goes")

    log.truncate_to(3)

    assert log.last_stable_offset == log.high_watermark == 3


def test_retention_keeps_the_producers_of_deleted_records(world, log):
    for sequence in range(20):
        send(log, sequence, bytes(50))
    log.maybe_increment_log_start_offset(19)
    assert log.delete_old_segments(0) > 0
    log = world.restart(clean=True)
    with refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        send(log, 25)


def calls_of(function):
    """Return how many Python functions `function` calls."""
    calls = []
    sys.setprofile(lambda _frame, event, _: calls.append(event) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(calls)


def batch_of(producer_id, offset, timestamp=BASE_MS):
    return ProducerBatch(
        producer_id, producer_epoch=0, base_sequence=0, last_sequence=0, first_offset=offset,
        last_offset=offset, timestamp=timestamp, is_transactional=False,
    )  # fmt: skip


def with_producers(log, count):
    producers = log._producers
    for number in range(count):
        producers.update(batch_of(number, number))
    producers.map_end_offset = count
    return producers


def saved(world, log, offset):
    path = f"{log.directory}/{offset:020d}.snapshot"
    return decode_snapshot(world.runtime.disk.read_file(path), path)


def test_a_roll_packs_only_the_producers_that_changed_lately(world, log):
    """A log rolls in one turn of the loop, whatever number of producers it has."""
    count = 4 * CHANGED_MAX
    producers = with_producers(log, count)
    producers.update(batch_of(7, count))
    producers.update(batch_of(count, count + 1))
    producers.map_end_offset = count + 2

    assert calls_of(producers.take_snapshot) < CHANGED_MAX + 100

    entries = saved(world, log, count + 2)
    assert entries == [
        ProducerSnapshotEntry(number, 0, 0, offset, 0, BASE_MS, -1, -1)
        for number, offset in enumerate([*range(7), count, *range(8, count), count + 1])
    ]


def test_expired_producers_leave_the_next_snapshot(world, log):
    producers = with_producers(log, 2 * CHANGED_MAX)
    for number in range(0, 2 * CHANGED_MAX, 2):
        producers.update(batch_of(number, 2 * CHANGED_MAX + number, BASE_MS + DAY_MS))
    at_once(producers.remove_expired(BASE_MS + 7 * DAY_MS))
    producers.update(batch_of(1, 5 * CHANGED_MAX))
    producers.map_end_offset = 5 * CHANGED_MAX + 1
    producers.take_snapshot()
    entries = saved(world, log, 5 * CHANGED_MAX + 1)
    assert sorted(entry.producer_id for entry in entries) == sorted(producers.producers)
    for entry in entries:
        state = producers.producers[entry.producer_id]
        assert entry.last_offset == state.batches[-1].last_offset


def test_a_snapshot_of_many_producers_is_decoded_step_by_step(log):
    count = 6 * PRODUCERS_PER_STEP
    producers = with_producers(log, count)
    producers.take_snapshot()
    work = producers.loaded_until(0, count, BASE_MS)
    steps = [calls_of(lambda: next(work, None)) for _ in range(8)]
    assert next(work, None) is None
    # Decoded first and then loaded step by step, the first step would make a third of all calls.
    assert max(steps) < sum(steps) / 4


def test_producers_expire_in_steps_and_may_go_or_return_meanwhile(log):
    count = 3 * PRODUCERS_PER_STEP
    producers = with_producers(log, count)
    gone, returned = count - 1, count - 2
    work = producers.remove_expired(BASE_MS + 8 * DAY_MS)
    next(work)
    assert len(producers.producers) == 2 * PRODUCERS_PER_STEP
    producers.packed_producers.remove(producers.producers.pop(gone))
    producers.update(batch_of(returned, 5 * count, BASE_MS + 8 * DAY_MS))
    next(work)
    assert len(producers.producers) == PRODUCERS_PER_STEP - 1
    assert at_once(work) == PRODUCERS_PER_STEP
    assert list(producers.producers) == [returned]


def test_a_snapshot_is_written_without_a_copy_of_its_entries():
    entries = bytearray(ENTRY_BYTES)
    head, body = encode_entries(entries)
    assert body is entries
    (entry,) = decode_snapshot(head + body, "a snapshot")
    assert entry == (0,) * 8
