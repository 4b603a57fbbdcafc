"""Every record that was produced to Apache Kafka 2.7.2 is read back from its segments."""

import pytest

from kctl.records.control import ControlRecordType, read_marker
from kctl.records.memory_records import batches
from kctl.records.record_batch import LOG_APPEND_TIME, RecordBatch
from tests.support.golden import expected_record, golden_segments

# topic: how many records it was sent.
WHOLE_TOPICS = {
    "v2-none-0": 340,
    "v2-gzip-0": 300,
    "v2-snappy-0": 300,
    "v2-lz4-0": 300,
    "v2-zstd-0": 300,
    "v2-idempotent-0": 120,
    "v2-broker-zstd-0": 100,
    "v2-broker-uncompressed-0": 100,
    "epochs-0": 145,
    "v1-none-0": 200,
    "v1-gzip-0": 200,
    "v1-snappy-0": 200,
    "v1-lz4-0": 200,
    "v0-none-0": 200,
    "v0-gzip-0": 200,
    "v0-snappy-0": 200,
    "v0-lz4-0": 200,
}


@pytest.mark.parametrize("topic", WHOLE_TOPICS)
def test_topic_reads_back_record_for_record(topic):
    count = 0
    for segment in golden_segments(topic):
        for batch in batches(segment):
            assert batch.is_crc_valid()
            for record in batch.records():
                expected = expected_record(count)
                if batch.magic < 2:
                    expected = expected._replace(headers=())
                if batch.magic == 0:
                    expected = expected._replace(timestamp=-1)
                assert record == expected
                count += 1
            assert batch.base_offset + 1 <= batch.next_offset == count
    assert count == WHOLE_TOPICS[topic]


def test_log_of_three_formats_is_one_sequence():
    magics = []
    offsets = []
    for segment in golden_segments("upgraded-0"):
        for batch in batches(segment):
            magics.append(batch.magic)
            offsets += [record.offset for record in batch.records()]
    assert sorted(set(magics)) == [0, 1, 2]
    assert offsets == list(range(180))


@pytest.mark.parametrize("topic", ["v1-logappendtime-0", "v2-logappendtime-0"])
def test_append_time_of_the_batch_is_that_of_its_records(topic):
    seen = 0
    for segment in golden_segments(topic):
        for batch in batches(segment):
            if batch.timestamp_type == LOG_APPEND_TIME:
                seen += 1
                stamps = {record.timestamp for record in batch.records()}
                assert stamps == {batch.max_timestamp}
                assert batch.max_timestamp > 1_700_000_000_000
    assert seen


def test_transactions_end_with_markers():
    kinds = set()
    for segment in golden_segments("tx-0"):
        for batch in batches(segment):
            assert isinstance(batch, RecordBatch)
            if not batch.is_control:
                if batch.is_transactional:
                    assert batch.last_sequence == batch.base_sequence + batch.count - 1
                continue
            assert batch.is_transactional
            assert batch.has_producer_id
            (record,) = batch.records()
            marker = read_marker(record)
            assert marker.is_commit == (marker.control_type is ControlRecordType.COMMIT)
            kinds.add(marker.control_type.name)
    assert kinds == {"COMMIT", "ABORT"}


def test_compacted_batches_keep_their_ends():
    gaps = 0
    for segment in golden_segments("txc-0"):
        for batch in batches(segment):
            offsets = [record.offset for record in batch.records()]
            assert all(batch.base_offset <= offset <= batch.last_offset for offset in offsets)
            gaps += len(offsets) < batch.last_offset - batch.base_offset + 1
    assert gaps
