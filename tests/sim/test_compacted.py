"""A replica may lack what the log cleaner removes of a compacted topic, and nothing else."""

import pytest

from kctl.records.builder import RecordBatchBuilder
from kctl.records.control import ControlRecordType, EndTransactionMarker, marker_batch
from kctl.records.record_batch import RecordBatch
from kctl.simulation.compacted import CompactedRecords

PRODUCER = 7


def batch(base_offset, *pairs, is_transactional=False):
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=PRODUCER if is_transactional else -1,
        is_transactional=is_transactional,
    )
    for key, value in pairs:
        builder.append(timestamp=1_000, key=key, value=value)
    return RecordBatch(builder.build())


def marker(offset, kind):
    return RecordBatch(
        marker_batch(
            EndTransactionMarker(kind, 0),
            producer_id=PRODUCER,
            producer_epoch=0,
            timestamp=1_000,
            base_offset=offset,
        )
    )


def committed(*batches):
    records = CompactedRecords()
    for it in batches:
        records.note(it)
    return records


def difference(records, *found, end_offset=10):
    return records.difference(found, 0, end_offset)


FIRST = batch(0, (b"a", b"1"), (b"b", b"1"))
LATER = batch(2, (b"a", b"2"))
ONLY_B = RecordBatchBuilder(base_offset=0)
ONLY_B.append(timestamp=1_000, key=b"b", value=b"1", offset=1)
CLEANED = RecordBatch(ONLY_B.build())


def test_a_record_may_be_missing_once_a_later_one_has_its_key():
    records = committed(FIRST, LATER)
    assert difference(records, FIRST, LATER) is None
    assert difference(records, CLEANED, LATER) is None


def test_the_latest_record_of_each_key_stays():
    records = committed(FIRST, LATER)
    assert "does not have Record(offset=2" in difference(records, FIRST)
    assert "does not have Record(offset=1" in difference(records, LATER)
    assert difference(records, FIRST, end_offset=2) is None


def test_what_a_replica_has_must_be_what_was_committed_there():
    records = committed(FIRST, LATER)
    assert "has Record(offset=2" in difference(records, CLEANED, batch(2, (b"a", b"3")))
    assert "None is committed" in difference(records, FIRST, LATER, batch(3, (b"c", b"1")))


@pytest.mark.parametrize(
    ("kind", "lost"), [(ControlRecordType.COMMIT, 3), (ControlRecordType.ABORT, 0)]
)
def test_only_a_committed_transaction_replaces_records_and_only_an_aborted_one_may_go(kind, lost):
    first, second = batch(0, (b"a", b"1")), batch(3, (b"a", b"2"), is_transactional=True)
    end = marker(4, kind)
    records = committed(first, second, end)
    without = {0: (second, end), 3: (first, end)}
    assert f"does not have Record(offset={lost}" in difference(records, *without.pop(lost))
    for found in without.values():
        assert difference(records, *found) is None


def test_a_marker_stays():
    second, end = batch(0, (b"a", b"1"), is_transactional=True), marker(1, ControlRecordType.COMMIT)
    later = batch(2, (b"a", b"2"))
    records = committed(second, end, later)
    assert "does not have Record(offset=1" in difference(records, later)
    assert difference(records, end, later) is None


def test_an_open_transaction_replaces_nothing():
    first, second = batch(0, (b"a", b"1")), batch(1, (b"a", b"2"), is_transactional=True)
    assert "does not have Record(offset=0" in difference(committed(first, second), second)
