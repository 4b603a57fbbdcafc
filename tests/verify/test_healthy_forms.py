"""What only other Kafka versions write is valid; similar forms that none writes are damage."""

import shutil
import struct

import pytest

from kctl.runtime.real.disk import RealDisk
from kctl.storage.file_records import FileRecords
from kctl.storage.producer_snapshot import decode_snapshot, encode_snapshot
from kctl.verify.rules import Rule
from kctl.verify.segment_walk import Window, walk
from kctl.verify.verification import plan, verify_log_directory, verify_unit
from tests.support.damage import FORMATS, logs

DISK = RealDisk()


@pytest.fixture
def partition(golden_logs, tmp_path):
    """Return a copy of a partition of Apache Kafka 2.7.2, with the files of its log directory."""

    def copy(name):
        for file in golden_logs.joinpath("logs-clean").iterdir():
            if file.is_file():
                shutil.copy(file, tmp_path)
        return shutil.copytree(golden_logs / "logs-clean" / name, tmp_path / name)

    return copy


def rules(directory):
    """Return the rules broken in a log directory, including notes."""
    wanted = plan(DISK, [str(directory)], with_records=True)
    verified = [verify_unit(DISK, unit) for unit in wanted.units]
    found = [*wanted.findings, *(it for partition in verified for it in partition.findings)]
    found += verify_log_directory(DISK, str(directory), verified)
    return [finding.rule for finding in found]


def batches(log):
    """Return the valid batches of a .log."""
    records = FileRecords.open(DISK, str(log))
    items = list(walk(records, 0))
    records.close()
    return [batch for item in items if isinstance(item, Window) for batch in item.batches]


def edit_entries(path, layout, change):
    """Replace each entry of an index by what `change` makes of it."""
    entries = struct.iter_unpack(layout, path.read_bytes())
    path.write_bytes(b"".join(struct.pack(layout, *change(*entry)) for entry in entries))


@pytest.mark.parametrize("name", ["v2", "v2 gzip", "v1", "v0"])
def test_index_entries_that_name_the_first_offset_are_those_of_kafka_before_2_0(partition, name):
    directory = partition(FORMATS[name])
    changed = 0
    for log in logs(directory):
        base = int(log.stem)
        first = {batch.position: batch.base_offset - base for batch in batches(log)}
        before = log.with_suffix(".index").read_bytes()
        edit_entries(
            log.with_suffix(".index"), ">ii", lambda _, position, first=first: (
                max(first[position], 1), position
            ),
        )  # fmt: skip
        changed += before != log.with_suffix(".index").read_bytes()
    assert changed
    assert rules(directory.parent) == []


def test_an_index_entry_between_the_first_and_the_last_offset_is_damage(partition):
    directory = partition(FORMATS["v2"])
    log = next(it for it in logs(directory) if it.with_suffix(".index").stat().st_size)
    ends = {it.position: it.last_offset - int(log.stem) for it in batches(log)}
    edit_entries(log.with_suffix(".index"), ">ii", lambda _, at: (ends[at] - 1, at))
    assert Rule.INDEX_ENTRY in rules(directory.parent)


def test_kafka_before_0_10_wrote_no_time_indexes(partition):
    directory = partition(FORMATS["v0"])
    for path in directory.glob("*.timeindex"):
        path.unlink()
    assert rules(directory.parent) == []


@pytest.mark.parametrize("name", ["v0", "v1", "v2"])
def test_a_time_index_that_others_have_is_missing(partition, name):
    directory = partition(FORMATS[name])
    logs(directory)[0].with_suffix(".timeindex").unlink()
    assert rules(directory.parent) == [Rule.TIME_INDEX_MISSING]


def edit_snapshots(directory, change):
    """Change each producer of each snapshot; return the number of changes."""
    changed = 0
    for path in sorted(directory.glob("*.snapshot")):
        entries = decode_snapshot(path.read_bytes(), str(path))
        edited = [change(entry) for entry in entries]
        changed += sum(before != after for before, after in zip(entries, edited, strict=True))
        path.write_bytes(encode_snapshot(edited))
    return changed


def markers(directory):
    """Of each control batch: its offset by producer, the last of each."""
    return [it for log in logs(directory) for it in batches(log) if it.is_control]


def test_snapshots_of_kafka_0_11_count_a_marker_as_a_batch(partition):
    directory = partition(FORMATS["v2 transactions"])
    ends = {}

    def as_in_0_11(entry):
        found = [it for it in ends.get(entry.producer_id, ()) if it > entry.last_offset]
        if not found or entry.current_txn_first_offset >= 0:
            return entry
        return entry._replace(last_offset=max(found), offset_delta=0)

    for marker in markers(directory):
        ends.setdefault(marker.producer_id, []).append(marker.last_offset)
    last = max(directory.glob("*.snapshot"))
    for path in set(directory.glob("*.snapshot")) - {last}:
        path.unlink()
    assert edit_snapshots(directory, as_in_0_11)
    assert rules(directory.parent) == []
    assert edit_snapshots(directory, lambda it: it._replace(last_offset=it.last_offset - 1))
    assert Rule.SNAPSHOT_STATE in rules(directory.parent)


def test_snapshots_of_kafka_1_1_leave_the_timestamp_of_markers_out(partition):
    directory = partition(FORMATS["v2 transactions"])
    last = max(directory.glob("*.snapshot"))
    for path in set(directory.glob("*.snapshot")) - {last}:
        path.unlink()
    times = {}
    for log in logs(directory):
        for batch in batches(log):
            if batch.producer_id >= 0 and not batch.is_control:
                times[batch.producer_id] = batch.max_timestamp
    assert edit_snapshots(directory, lambda it: it._replace(timestamp=times[it.producer_id]))
    assert rules(directory.parent) == []
    assert edit_snapshots(directory, lambda it: it._replace(timestamp=it.timestamp + 1))
    assert set(rules(directory.parent)) == {Rule.SNAPSHOT_STATE}


def test_a_checkpoint_that_begins_when_the_format_is_raised_again_is_whole(partition):
    directory = partition(FORMATS["mixed"])
    path = directory / "leader-epoch-checkpoint"
    old = [it for log in logs(directory) for it in batches(log) if it.magic < 2]
    new = [it for log in logs(directory) for it in batches(log) if it.magic == 2]
    after = next(it for it in new if it.base_offset > old[0].last_offset)
    path.write_text(f"0\n1\n{after.leader_epoch} {after.base_offset}\n")
    assert set(rules(directory.parent)) <= {Rule.EPOCH_CHECKPOINT_LATE}


def test_a_checkpoint_that_begins_late_is_a_note_where_a_broker_may_have_written_it(partition):
    directory = partition(FORMATS["v2"])
    path = directory / "leader-epoch-checkpoint"
    epoch, start = path.read_text().splitlines()[2].split()
    second = batches(logs(directory)[0])[1]
    path.write_text(f"0\n1\n{epoch} {second.base_offset}\n")
    assert rules(directory.parent) == [Rule.EPOCH_CHECKPOINT_LATE]
    path.write_text(f"0\n1\n{epoch} {second.base_offset - 1}\n")
    assert rules(directory.parent) == [Rule.EPOCH_CHECKPOINT_ORDER]
    # After kill -9 the log start offset on disk may be old.
    (directory.parent / ".kafka_cleanshutdown").unlink()
    assert rules(directory.parent) == [Rule.EPOCH_CHECKPOINT_LATE]
    assert start == "0"


def test_a_time_index_without_the_last_entry_is_that_of_a_recovered_segment(partition):
    directory = partition(FORMATS["v2"])
    log = logs(directory)[0]
    path, index = log.with_suffix(".timeindex"), log.with_suffix(".index")
    indexed = index.read_bytes()
    index.write_bytes(indexed[:-8])
    path.write_bytes(path.read_bytes()[:-12])
    assert rules(directory.parent) == [Rule.TIME_INDEX_OPEN]
    index.write_bytes(indexed)
    path.write_bytes(b"")
    assert rules(directory.parent) == [Rule.TIME_INDEX_SHORT]


def test_meta_properties_of_kraft_are_read(partition):
    directory = partition(FORMATS["v2"])
    path = directory.parent / "meta.properties"
    path.write_text("#\nnode.id=3\nversion=1\ncluster.id=abc\ndirectory.id=xyz\n")
    assert rules(directory.parent) == []
    path.write_text("#\nbroker.id=3\nversion=1\ncluster.id=abc\n")
    assert rules(directory.parent) == [Rule.META_PROPERTIES]


def test_a_partition_without_any_log_is_damage(partition):
    directory = partition(FORMATS["v2"])
    for path in directory.iterdir():
        if path.suffix != ".timeindex":
            path.unlink()
    left = len(list(directory.iterdir()))
    assert rules(directory.parent).count(Rule.MISSING_SEGMENT) == left
