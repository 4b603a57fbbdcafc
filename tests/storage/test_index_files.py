"""Offset, time and transaction index: look-ups, truncation, what is saved when."""

import pytest

from kctl.errors import CorruptDataError
from kctl.runtime.real.disk import RealDisk
from kctl.storage.index_file import SAVE_EVERY
from kctl.storage.offset_index import OffsetIndex, OffsetPosition
from kctl.storage.time_index import TimeIndex, TimestampOffset
from kctl.storage.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    encode_entries,
)
from tests.support.turn_work import counted_calls


@pytest.fixture
def offset_index(tmp_path):
    index = OffsetIndex(RealDisk(), str(tmp_path / "100.index"), 100)
    for offset, position in ((110, 4100), (120, 8300), (130, 12500)):
        index.append(offset, position)
    return index


def test_lookup_finds_the_last_entry_at_or_below(offset_index):
    assert offset_index.lookup(100) == OffsetPosition(100, 0)
    assert offset_index.lookup(109) == OffsetPosition(100, 0)
    assert offset_index.lookup(110) == OffsetPosition(110, 4100)
    assert offset_index.lookup(129) == OffsetPosition(120, 8300)
    assert offset_index.lookup(10**9) == OffsetPosition(130, 12500)


def test_upper_bound_is_the_first_entry_at_or_behind_a_position(offset_index):
    assert offset_index.upper_bound_offset(0) == 110
    assert offset_index.upper_bound_offset(8300) == 120
    assert offset_index.upper_bound_offset(8301) == 130
    assert offset_index.upper_bound_offset(12501) is None


def test_offsets_only_rise(offset_index):
    with pytest.raises(CorruptDataError, match="no larger than the last entry 130"):
        offset_index.append(130, 20000)


def test_truncation_drops_entries_at_and_above_in_the_file_too(offset_index, tmp_path):
    offset_index.save()
    offset_index.truncate_to(120)
    assert list(offset_index.entries()) == [(110, 4100)]
    assert (tmp_path / "100.index").stat().st_size == 8
    offset_index.append(115, 5000)
    offset_index.save()
    again = OffsetIndex(RealDisk(), offset_index.path, 100)
    assert list(again.entries()) == [(110, 4100), (115, 5000)]


def test_truncation_below_all_entries_empties_the_index(offset_index):
    offset_index.truncate_to(100)
    assert offset_index.last() == OffsetPosition(100, 0)
    assert len(offset_index) == 0


def test_entries_are_saved_in_runs_and_at_release(tmp_path):
    index = OffsetIndex(RealDisk(), str(tmp_path / "0.index"), 0)
    for number in range(1, SAVE_EVERY):
        index.append(number, number * 100)
    assert not (tmp_path / "0.index").exists()
    index.append(SAVE_EVERY, SAVE_EVERY * 100)
    assert (tmp_path / "0.index").stat().st_size == SAVE_EVERY * 8
    index.append(5000, 600_000)
    index.release()
    assert not index.is_loaded
    assert index.last() == OffsetPosition(5000, 600_000)
    assert index.lookup(7) == OffsetPosition(7, 700)
    assert len(index) == SAVE_EVERY + 1


def test_index_is_full_at_its_size(tmp_path):
    index = OffsetIndex(RealDisk(), str(tmp_path / "a"), 0, bytes_max=20)
    index.append(1, 1)
    assert not index.is_full
    index.append(2, 2)
    assert index.is_full
    # The time index keeps one slot for the entry that closing adds.
    times = TimeIndex(RealDisk(), str(tmp_path / "b"), 0, bytes_max=24)
    assert not times.is_full
    times.maybe_append(5, 1)
    assert times.is_full


def test_padding_and_a_cut_entry_are_taken_off_when_loading_and_gone_after_a_save(tmp_path):
    path = tmp_path / "0.index"
    path.write_bytes(b"\0\0\0\5\0\0\1\0" + b"\0" * 803)
    index = OffsetIndex(RealDisk(), str(path), 0)
    assert index.last() == OffsetPosition(5, 256)
    assert len(index) == 1
    index.append(9, 512)
    index.save()
    assert path.read_bytes() == b"\0\0\0\5\0\0\1\0\0\0\0\x09\0\0\2\0"


def test_index_that_is_not_in_order_is_corrupt(tmp_path):
    path = tmp_path / "0.index"
    path.write_bytes(b"\0\0\0\5\0\0\1\0\0\0\0\4\0\0\2\0")
    with pytest.raises(CorruptDataError, match="not in order"):
        OffsetIndex(RealDisk(), str(path), 0).lookup(0)
    path.write_bytes(b"\0\0\0\0\0\0\1\0\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\5")
    with pytest.raises(CorruptDataError, match="not in order"):
        TimeIndex(RealDisk(), str(path), 0).lookup(0)


def test_time_index_takes_only_younger_timestamps(tmp_path):
    index = TimeIndex(RealDisk(), str(tmp_path / "10.timeindex"), 10)
    index.maybe_append(-1, 10)
    index.maybe_append(1000, 12)
    index.maybe_append(1000, 13)
    index.maybe_append(900, 14)
    index.maybe_append(2000, 15)
    assert list(index.entries()) == [(1000, 12), (2000, 15)]
    assert index.lookup(999) == TimestampOffset(-1, 10)
    assert index.lookup(1999) == TimestampOffset(1000, 12)
    index.truncate_to(15)
    assert index.last() == TimestampOffset(1000, 12)


@pytest.fixture
def transaction_index(tmp_path):
    index = TransactionIndex(RealDisk(), str(tmp_path / "0.txnindex"), 0)
    for entry in ((1, 0, 10, 11), (2, 5, 20, 16), (3, 16, 30, 31)):
        index.append(AbortedTransaction(*entry))
    return index


def test_collect_finds_overlapping_transactions_and_knows_when_to_stop(transaction_index):
    found = []
    assert transaction_index.collect(0, 10, found)
    assert [entry.producer_id for entry in found] == [1]
    found = []
    assert transaction_index.collect(11, 31, found)
    assert [entry.producer_id for entry in found] == [2, 3]
    found = []
    assert not transaction_index.collect(25, 100, found)
    assert [entry.producer_id for entry in found] == [3]


def test_a_reader_at_the_end_does_not_look_at_all_aborted_transactions(tmp_path):
    """A client decides how many transactions it aborts, and every reader of the segment asks."""
    count = 20_000
    path = tmp_path / "0.txnindex"
    entries = [AbortedTransaction(n, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(count)]
    path.write_bytes(encode_entries(entries))
    index = TransactionIndex(RealDisk(), str(path), 0)
    found = []
    with counted_calls() as count_of:
        index.collect(2 * count - 4, 2 * count, found)
    assert found == entries[-2:]
    assert count_of.calls < 500
    index.truncate_to(2 * count - 1)
    assert index.entries() == entries[:-1]


def test_transaction_index_truncates_and_is_read_again(transaction_index):
    transaction_index.truncate_to(20)
    again = TransactionIndex(RealDisk(), transaction_index.path, 0)
    assert again.entries() == [(1, 0, 10, 11)]
    with pytest.raises(CorruptDataError, match="not beyond"):
        again.append(AbortedTransaction(9, 0, 10, 11))


def test_cut_transaction_index_is_corrupt(transaction_index, tmp_path):
    path = tmp_path / "0.txnindex"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptDataError, match="not a number of entries"):
        TransactionIndex(RealDisk(), str(path), 0).entries()
