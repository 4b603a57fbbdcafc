"""Every file that Apache Kafka 2.7.2 left in its log directory is read as Kafka reads it, and
writing the same facts gives the same bytes."""

import re

from kctl.model import TopicPartition
from kctl.runtime.real.disk import RealDisk
from kctl.storage import checkpoint, layout
from kctl.storage.file_records import FileRecords
from kctl.storage.meta_properties import MetaProperties, decode_meta_properties
from kctl.storage.offset_index import OffsetIndex
from kctl.storage.producer_snapshot import decode_snapshot, encode_snapshot
from kctl.storage.segment_files import SegmentFiles, segment_base_offsets
from kctl.storage.time_index import TimeIndex
from kctl.storage.transaction_index import TransactionIndex
from tests.support.golden_logs import dump_of


def files(root, suffix):
    found = sorted(root.glob(f"*/*{suffix}"))
    assert found
    return found


def dump_lines(path):
    text = path.parents[2] / path.parts[-3].replace("logs", "dump") / path.parts[-2]
    return (text / f"{path.name}.txt").read_text().splitlines()


def numbers(line):
    return [int(number) for number in re.findall(r": (?:Some\()?(-?\d+)", line)]


def base_offset(path):
    return layout.parse_file_name(path.name)[0]


def test_offset_indexes_read_as_dumped_and_write_the_same_bytes(clean_logs, tmp_path):
    disk = RealDisk()
    seen = 0
    for path in files(clean_logs, ".index"):
        index = OffsetIndex(disk, str(path), base_offset(path))
        dumped = [tuple(numbers(line)) for line in dump_lines(path) if line.startswith("offset:")]
        # Of an empty index Kafka's dump prints one made-up line.
        assert [tuple(entry) for entry in index.entries()] == (
            dumped if path.stat().st_size else []
        )
        copy = OffsetIndex(disk, str(tmp_path / "copy"), base_offset(path), stored_bytes=0)
        copy.reset()
        for entry in index.entries():
            copy.append(*entry)
        copy.save()
        assert (tmp_path / "copy").read_bytes() == path.read_bytes()
        seen += len(dumped)
    assert seen > 100


def test_time_indexes_read_as_dumped_and_write_the_same_bytes(clean_logs, tmp_path):
    disk = RealDisk()
    for path in files(clean_logs, ".timeindex"):
        index = TimeIndex(disk, str(path), base_offset(path))
        dumped = [tuple(numbers(line)) for line in dump_lines(path) if "timestamp" in line]
        assert [tuple(entry) for entry in index.entries()] == (
            dumped if path.stat().st_size else []
        )
        copy = TimeIndex(disk, str(tmp_path / "copy"), base_offset(path), stored_bytes=0)
        copy.reset()
        for entry in index.entries():
            copy.maybe_append(*entry)
        copy.save()
        assert (tmp_path / "copy").read_bytes() == path.read_bytes()


def test_transaction_indexes_read_as_dumped_and_write_the_same_bytes(clean_logs, tmp_path):
    disk = RealDisk()
    for path in files(clean_logs, ".txnindex"):
        index = TransactionIndex(disk, str(path), base_offset(path))
        dumped = [tuple(numbers(line)[1:]) for line in dump_lines(path) if "version" in line]
        assert [tuple(entry) for entry in index.entries()] == dumped
        copy = TransactionIndex(disk, str(tmp_path / path.name), base_offset(path), exists=False)
        copy.reset()
        for entry in index.entries():
            copy.append(entry)
        assert not dumped or (tmp_path / path.name).read_bytes() == path.read_bytes()
        disk.remove(str(tmp_path / path.name))


def test_producer_snapshots_read_as_dumped_and_write_the_same_bytes(clean_logs):
    seen = 0
    for path in files(clean_logs, ".snapshot"):
        entries = decode_snapshot(path.read_bytes(), str(path))
        dumped = [
            line for line in dump_lines(path) if line.startswith("producerId") and "{" not in line
        ]
        assert len(entries) == len(dumped)
        for entry, line in zip(entries, dumped, strict=True):
            assert f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} " in line
            assert f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} " in line
            assert f"timestamp: {entry.timestamp}" in line
            txn = entry.current_txn_first_offset
            assert f"currentTxnFirstOffset: {'None' if txn < 0 else f'Some({txn})'} " in line
        assert encode_snapshot(entries) == path.read_bytes()
        seen += len(entries)
    assert seen > 10


def test_checkpoints_read_and_write_the_same_bytes(clean_logs):
    for name in (
        layout.RECOVERY_POINT_CHECKPOINT,
        layout.HIGH_WATERMARK_CHECKPOINT,
        layout.LOG_START_OFFSET_CHECKPOINT,
        layout.CLEANER_OFFSET_CHECKPOINT,
    ):
        path = clean_logs / name
        offsets = checkpoint.read_offsets(RealDisk(), str(path))
        assert checkpoint.encode_offsets(offsets) == path.read_bytes()
    starts = checkpoint.read_offsets(
        RealDisk(), str(clean_logs / layout.LOG_START_OFFSET_CHECKPOINT)
    )
    assert starts == {TopicPartition("deleted-records", 0): 77}


def test_leader_epoch_checkpoints_read_and_write_the_same_bytes(clean_logs):
    for path in files(clean_logs, layout.LEADER_EPOCH_CHECKPOINT):
        entries = checkpoint.decode_epochs(path.read_bytes(), str(path))
        assert checkpoint.encode_epochs(entries) == path.read_bytes()


def test_meta_properties_differ_only_in_the_date(clean_logs):
    data = (clean_logs / "meta.properties").read_bytes()
    meta = decode_meta_properties(data, "meta.properties")

    assert meta == MetaProperties(0, "Q_r5DLx4Q6S6rdMT32SJpA")
    # Sat Nov 21 07:50:41 UTC 2026
    assert meta.encode(1795247441000) == data


def test_every_directory_name_is_understood(clean_logs):
    for path in clean_logs.iterdir():
        if path.is_dir():
            parsed = layout.parse_directory_name(path.name)
            assert layout.directory_name(parsed.topic_partition) == path.name


def test_batch_headers_are_as_dumped(clean_logs, unclean_logs):
    for root in (clean_logs, unclean_logs):
        for path in files(root, ".log"):
            dumped, _ = dump_of(path)
            found = list(FileRecords.open(RealDisk(), str(path)).headers())
            # Kafka's dump decompresses, so it prints each inner message of v0 and v1.
            dumped = {batch.position: batch for batch in dumped}
            for batch in found:
                if batch.magic == 2:
                    expected = dumped[batch.position]
                    assert batch.last_offset == expected.last_offset
                    assert batch.base_offset == expected.base_offset
                    assert batch.size == expected.size
                    assert batch.max_timestamp == expected.max_timestamp
                    assert batch.partition_leader_epoch == expected.leader_epoch
            v2 = {batch.position for batch in dumped.values() if batch.magic == 2}
            assert v2 <= {batch.position for batch in found}


def test_records_of_whole_batches_are_as_dumped(clean_logs):
    seen = 0
    for path in files(clean_logs, ".log"):
        _, dumped = dump_of(path)
        records = FileRecords.open(RealDisk(), str(path))
        found = [
            (
                record.offset,
                -1 if record.key is None else len(record.key),
                -1 if record.value is None else len(record.value),
            )
            for _, batch in records.batches()
            for record in batch.records()
        ]
        # Values may hold line ends, never a line that looks like a record.
        assert found == [(r.offset, r.key_size, r.value_size) for r in dumped]
        seen += len(found)
    assert seen > 3000


def test_segment_files_open_together(clean_logs):
    directory = str(clean_logs / "tx-0")
    offsets = segment_base_offsets(RealDisk(), directory)
    assert offsets[:3] == [0, 12, 57]

    segment = SegmentFiles.open(RealDisk(), directory, 12)

    assert segment.records.size == 3728
    assert len(segment.offset_index) == 5
    assert segment.transaction_index.entries()[0] == (5, 0, 18, 19)
    # A segment without aborted transactions has no .txnindex at all.
    assert SegmentFiles.open(RealDisk(), directory, 0).transaction_index.entries() == []


def test_padding_that_kill_minus_nine_leaves_in_indexes_is_no_entry(unclean_logs):
    disk = RealDisk()
    padded = unclean_logs / "tx-0" / "00000000000000000282.index"
    assert padded.stat().st_size == 10485760
    index = OffsetIndex(disk, str(padded), 282)
    assert index.last() == (282, 0)
    assert list(index.entries()) == []
    times = TimeIndex(disk, str(padded.with_suffix(".timeindex")), 282)
    assert times.last() == times.lookup(10**15) == (1600009019000, 286)
    assert len(times) == 1
    assert padded.stat().st_size == 10485760, "reading changes nothing"
