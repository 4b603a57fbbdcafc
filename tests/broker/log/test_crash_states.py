"""A crash at any operation of a log's life loses nothing durable, and nothing torn is served; bugs
planted in the log are found by their effect on some crash state.

`KCTL_CRASH_STATES=100000` checks that many states; see `tests.support.crash_explorer`.
"""

import os

import pytest

from kctl.broker.log import cleaner, future_logs
from kctl.broker.log.cleaned_transactions import CleanedTransactions
from kctl.broker.log.future_logs import FutureLogs
from kctl.broker.log.local_log import FlushJob, LocalLog
from kctl.broker.log.log_loader import LogLoader
from kctl.broker.log.log_manager import LogManager
from kctl.broker.log.log_segment import LogSegment
from kctl.broker.log.unified_log import UnifiedLog
from kctl.protocol.error_codes import ApiError
from kctl.records.record_batch import RecordBatch
from kctl.simulation.disk import NameOrder, SimDisk
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import CLEAN_SHUTDOWN_FILE
from tests.support.crash_compaction import CompactedLife
from tests.support.crash_explorer import CrashFoundError, explore
from tests.support.crash_moves import MovingLife

SLOW_STATES = int(os.environ.get("KCTL_CRASH_STATES", "12000"))
# Number of states within which a planted bug must be found.
STATES_PER_BUG = 6000
# The first life to look at for bugs that need luck to show: a little before one in which they do.
# Any other seed only costs time.
FIRST_SEEDS = {
    "forget_flushes_under_way": 16,
    "forget_the_last_of_producers": 50,
    "leave_old_names": 25,
    "forget_to_cut_the_copy": 4,
}


@pytest.mark.parametrize("order", NameOrder)
def test_a_crash_loses_nothing_durable_and_serves_nothing_torn(order):
    assert explore(order, 200) == 200


@pytest.mark.slow
@pytest.mark.parametrize("order", NameOrder)
def test_many_crashes_lose_nothing_durable_and_serve_nothing_torn(order):
    states = SLOW_STATES // len(NameOrder)
    assert explore(order, states, first_seed=1000) == states


@pytest.mark.parametrize("order", NameOrder)
def test_a_cleaner_killed_at_any_file_operation_leaves_a_log_that_opens(order):
    assert explore(order, 75, life=CompactedLife) == 75


@pytest.mark.slow
@pytest.mark.parametrize("order", NameOrder)
def test_many_kills_of_the_cleaner_leave_logs_that_open(order):
    states = SLOW_STATES // len(NameOrder)
    assert explore(order, states, first_seed=2000, life=CompactedLife) == states


@pytest.mark.parametrize("order", NameOrder)
def test_a_crash_at_any_moment_of_a_move_leaves_one_log_with_everything(order):
    assert explore(order, 50, life=MovingLife) == 50


@pytest.mark.slow
@pytest.mark.parametrize("order", NameOrder)
def test_many_crashes_of_moves_leave_one_log_with_everything(order):
    states = SLOW_STATES // len(NameOrder)
    assert explore(order, states, first_seed=3000, life=MovingLife) == states


def look_for(plant, life=None):
    """Explore until the planted bug shows."""
    first_seed = FIRST_SEEDS.get(plant.__name__, 0)
    explore(NameOrder.BY_DIRECTORY, STATES_PER_BUG, first_seed=first_seed, life=life)


def forget_directories(monkeypatch):
    """Skip fsyncs of the directory for new segments, renames and checkpoints (KAFKA-3968)."""
    monkeypatch.setattr(SimDisk, "fsync_directory", lambda self, path: None)


def leave_the_marker(monkeypatch):
    """Keep the clean-shutdown marker while records are appended (KAFKA-10471)."""
    remove = SimDisk.remove

    def remove_others(self, path):
        if not path.endswith(CLEAN_SHUTDOWN_FILE):
            remove(self, path)

    monkeypatch.setattr(SimDisk, "remove", remove_others)


def acknowledge_early(monkeypatch):
    """Flush without waiting for the disk."""
    monkeypatch.setattr(FlushJob, "run", lambda self: None)


def forget_inactive_segments(monkeypatch):
    """Flush only the active segment."""
    prepare = LocalLog.prepare_flush

    def prepare_active(self, others, end, *, is_closing=False):
        job = prepare(self, others, end, is_closing=is_closing)
        del job.logs[:-1]
        return job

    monkeypatch.setattr(LocalLog, "prepare_flush", prepare_active)


def forget_flushes_under_way(monkeypatch):
    """Let a flush overtake another one whose files it must wait for."""
    prepare = LocalLog.prepare_flush

    def prepare_alone(self, others, end, *, is_closing=False):
        under_way, self._flushes_under_way = self._flushes_under_way, []
        job = prepare(self, others, end, is_closing=is_closing)
        self._flushes_under_way = [*under_way, job]
        return job

    monkeypatch.setattr(LocalLog, "prepare_flush", prepare_alone)


def forget_indexes(monkeypatch):
    """Write indexes without fsync before the recovery point passes them."""
    save = LogSegment.index_files_to_flush
    monkeypatch.setattr(LogSegment, "index_files_to_flush", lambda self: save(self) and [])


def claim_too_much(monkeypatch):
    """Write a checkpoint that claims durability up to the log's end."""
    monkeypatch.setattr(LocalLog, "claim_recovery_point", lambda self: self.log_end_offset)


def trust_every_batch(monkeypatch):
    """Recover without checking CRCs."""
    monkeypatch.setattr(RecordBatch, "ensure_valid", lambda self: None)


def trust_what_follows_a_gap(monkeypatch):
    """Keep segments after records that never reached the disk."""
    monkeypatch.setattr(LogLoader, "_is_gap", lambda *_: False)


def truncate_unannounced(monkeypatch):
    """Truncate, leaving a recovery point beyond the log's end on disk."""

    def count(self, recovery_point):
        self.truncations += 1

    monkeypatch.setattr(LocalLog, "_announce_truncation", count)


def truncate_in_memory(monkeypatch):
    """Truncate without making it durable: removed records reappear."""
    monkeypatch.setattr(FileRecords, "flush", lambda self: None)


@pytest.mark.parametrize(
    "plant",
    [
        forget_directories, leave_the_marker, acknowledge_early, forget_inactive_segments,
        forget_flushes_under_way, forget_indexes, claim_too_much, trust_every_batch,
        trust_what_follows_a_gap, truncate_unannounced, truncate_in_memory,
    ],
)  # fmt: skip
def test_planted_bug_is_found(monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(CrashFoundError):
        look_for(plant)


def clean_without_a_swap(monkeypatch):
    """Remove old segments before the cleaned one can be distinguished from an unfinished one."""

    def replace(self, cleaned, sources, now_ms):
        for segment in sources:
            segment.mark_deleted()
        cleaned.rename_suffix("")
        self.segments.replace(sources, self._open_segment_of(cleaned, now_ms))

    monkeypatch.setattr(LocalLog, "replace_segments", replace)


def start_behind_a_swap(monkeypatch):
    """Ignore a first segment that exists only as a swap when determining the log's start."""
    first_offset = LogLoader._first_offset
    monkeypatch.setattr(LogLoader, "_first_offset", lambda self, _: first_offset(self, []))


def drop_needed_markers(monkeypatch):
    """Remove markers while data of their transactions exists (KAFKA-13727, KAFKA-14055)."""
    monkeypatch.setattr(CleanedTransactions, "end", lambda *_: (True, None))


def forget_the_last_of_producers(monkeypatch):
    """Remove producers' last batches with their records (KAFKA-5315)."""
    monkeypatch.setattr(cleaner, "_is_last_of_producer", lambda *_: False)


def finish_in_memory(monkeypatch):
    """Replace segments by cleaned ones that are not on disk yet."""
    monkeypatch.setattr(FileRecords, "flush", lambda self: None)


@pytest.mark.parametrize(
    "plant",
    [
        clean_without_a_swap, start_behind_a_swap, drop_needed_markers,
        forget_the_last_of_producers, finish_in_memory,
    ],
)  # fmt: skip
def test_bug_planted_in_the_cleaner_is_found(monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises(CrashFoundError):
        look_for(plant, CompactedLife)


def trust_torn_copies(monkeypatch):
    """Accept the copy as found after a crash, with holes that the log does not have."""
    monkeypatch.setattr(future_logs, "cut_to_durable", lambda _: None)


def leave_old_names(monkeypatch):
    """Remove the old log in a way that a power loss reverts."""
    monkeypatch.setattr(LogManager, "_remove_replaced", LogManager._retire)


def arrive_in_memory(monkeypatch):
    """Give a log its new place before this is on disk."""
    monkeypatch.setattr(UnifiedLog, "close", UnifiedLog.abandon)


def forget_to_cut_the_copy(monkeypatch):
    """Do not truncate the copy when the log is truncated."""
    monkeypatch.setattr(FutureLogs, "current_truncated", lambda *_: None)


@pytest.mark.parametrize(
    "plant", [trust_torn_copies, leave_old_names, arrive_in_memory, forget_to_cut_the_copy]
)
def test_bug_planted_in_moves_is_found(monkeypatch, plant):
    plant(monkeypatch)
    with pytest.raises((CrashFoundError, ApiError)):
        look_for(plant, MovingLife)


def test_a_state_that_was_found_is_found_again(monkeypatch):
    trust_every_batch(monkeypatch)
    found = []
    for _ in range(2):
        with pytest.raises(CrashFoundError) as caught:
            explore(NameOrder.JOURNAL, STATES_PER_BUG)
        found.append(str(caught.value))
    assert found[0] == found[1]
