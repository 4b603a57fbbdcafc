"""Readers of committed records see whole transactions, whatever the source of aborted ones."""

import struct

import pytest

from kctl.records.builder import build_batch
from kctl.records.columnar import decode_columns, everything
from kctl.records.columnar_batches import scan_batches
from kctl.records.control import (
    ControlRecordType,
    EndTransactionMarker,
    marker_batch,
    read_marker,
)
from kctl.records.memory_records import batches
from kctl.records.record import Record
from kctl.records.transactions import AbortedRange, CommittedReader, TransactionScan
from tests.support.golden import golden_files, golden_segments

TRANSACTIONAL = ("tx-0", "tx-1", "txc-0")


def written(offset, producer_id, count=2):
    return build_batch(
        [Record(offset + n, 1, b"k", b"v") for n in range(count)],
        producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True,
    )  # fmt: skip


def ended(offset, producer_id, *, is_commit):
    kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
    return marker_batch(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id, producer_epoch=0, timestamp=2, base_offset=offset,
    )  # fmt: skip


def scanned(log):
    scan = TransactionScan()
    for step in scan_batches(log):
        scan.add(step.batches, memoryview(log))
    return scan


def indexed(topic_partition):
    """What the .txnindex files of Apache Kafka say."""
    files = golden_files("logs/clean.tar.xz")
    prefix = f"logs-clean/{topic_partition}/"
    return [
        AbortedRange(producer_id, first, last)
        for name in sorted(files)
        if name.startswith(prefix) and name.endswith(".txnindex")
        for _, producer_id, first, last, _ in struct.iter_unpack(">hqqqq", files[name])
    ]


def committed_offsets(log):
    """The offsets of records that no later marker aborts, up to the first open transaction."""
    open_batches, kept = {}, []
    for batch in batches(log):
        if batch.is_control:
            pending = open_batches.pop(batch.producer_id, [])
            if read_marker(next(batch.records())).is_commit:
                kept += pending
        elif batch.is_transactional:
            open_batches.setdefault(batch.producer_id, []).extend(
                record.offset for record in batch.records()
            )
        else:
            kept += [record.offset for record in batch.records()]
    stable = min((offsets[0] for offsets in open_batches.values()), default=kept[-1] + 1)
    return sorted(offset for offset in kept if offset < stable)


@pytest.mark.parametrize("topic_partition", TRANSACTIONAL)
def test_markers_agree_with_the_transaction_index_of_apache_kafka(topic_partition):
    log = b"".join(golden_segments(topic_partition))
    by_last = sorted(scanned(log).aborted, key=lambda aborted: aborted.last_offset)
    assert [each for each in indexed(topic_partition) if each in by_last] == by_last
    assert by_last or topic_partition == "txc-0"


@pytest.mark.parametrize("topic_partition", TRANSACTIONAL)
@pytest.mark.parametrize("knows_last", [True, False])
def test_committed_records_of_apache_kafkas_log_are_read(topic_partition, knows_last):
    log = b"".join(golden_segments(topic_partition))
    aborted = indexed(topic_partition)
    if not knows_last:
        aborted = [AbortedRange(each.producer_id, each.first_offset) for each in aborted]
    keep = CommittedReader(aborted, scanned(log).first_unstable_offset)
    assert decode_columns(log, keep=keep).offsets.tolist() == committed_offsets(log)


def test_producer_commits_after_an_aborted_transaction():
    log = bytes(
        written(0, 7) + ended(2, 7, is_commit=False) + written(3, 7) + ended(5, 7, is_commit=True)
    )
    assert scanned(log).aborted == [AbortedRange(7, 0, 2)]
    for aborted in (AbortedRange(7, 0, 2), AbortedRange(7, 0)):
        assert decode_columns(log, keep=CommittedReader([aborted])).offsets.tolist() == [3, 4]


def test_damaged_marker_hides_nothing_where_the_last_offset_is_known():
    marker = bytearray(ended(2, 7, is_commit=False))
    marker[-1] ^= 1
    log = bytes(written(0, 7) + marker + written(3, 7) + ended(5, 7, is_commit=True))
    columns = decode_columns(log, keep=CommittedReader([AbortedRange(7, 0, 2)]))
    assert columns.offsets.tolist() == [3, 4]
    assert len(columns.damages) == 1


def test_open_transaction_ends_what_is_stable():
    plain = build_batch([Record(4, 1, b"k", b"v")])
    log = bytes(written(0, 7) + ended(2, 7, is_commit=True) + plain + written(5, 8))
    assert scanned(log).first_unstable_offset == 5
    assert decode_columns(log, keep=CommittedReader([], 5)).offsets.tolist() == [0, 1, 4]


def test_uncommitted_reader_sees_all_but_markers():
    log = bytes(written(0, 7) + ended(2, 7, is_commit=False))
    assert decode_columns(log).offsets.tolist() == [0, 1]
    assert decode_columns(log, keep=everything).offsets.tolist() == [0, 1, 2]
