"""Directories are compared as a whole: planted faults are all found, and nothing else."""

import os
from functools import partial

import pytest

from kctl.errors import NotFoundError
from kctl.mirror.comparison import Comparison
from kctl.mirror.places import DirectoryPlace, Loop
from kctl.mirror.renames import parse_rename
from kctl.mirror.verification import VerifyRequest, plan_verification, verify_partition
from kctl.model import Position, PositionKind
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.trace import NullTrace
from tests.export.log_files import batch_of, write_segment
from tests.mirror.planted import write_planted

# 10,000,000 by hand.
RECORDS = int(os.environ.get("KCTL_MIRROR_RECORDS", "40000"))
FAULTS = 200


def verified(source, target, topics=(), **options):
    """Plan and compare; return the results by partition of the source."""
    request = VerifyRequest(
        DirectoryPlace((str(source),)), DirectoryPlace((str(target),)), topics, **options
    )
    with Loop(partial(make_runtime, NullTrace())) as loop:
        tasks = plan_verification(request, loop)
    return {str(task.source_partition): verify_partition(task) for task in tasks}


def rows(found):
    return [
        (it.kind.value, it.source_offset, it.target_offset, it.count, it.fields)
        for it in found.result.differences.listed
    ]


def test_every_planted_fault_is_found_and_nothing_else(tmp_path):
    planted = {
        partition: write_planted(
            RealDisk(), tmp_path, partition, RECORDS // 2, FAULTS // 2, partition,
            compression_type=codec,
        )
        for partition, codec in ((0, 0), (1, 1))
    }  # fmt: skip
    found = verified(tmp_path / "source", tmp_path / "target")
    hits = 0
    for partition, faults in planted.items():
        result = found[f"t-{partition}"]
        assert sorted(rows(result), key=lambda row: row[1]) == [it.difference for it in faults]
        hits += len(faults)
    assert hits == FAULTS
    # Only the batches with faults were decoded where batches are the same.
    assert found["t-0"].result.equal_raw > RECORDS // 10


@pytest.fixture
def directories(tmp_path):
    """A source whose first segment is gone, and a target that holds all of it."""
    disk = RealDisk()
    batches = [batch_of(offset) for offset in range(0, 200, 10)]
    write_segment(disk, tmp_path / "source/t-0", 100, batches[10:15])
    write_segment(disk, tmp_path / "source/t-0", 150, batches[15:])
    write_segment(disk, tmp_path / "target/t-0", 0, batches)
    return tmp_path / "source", tmp_path / "target"


def test_records_that_one_side_has_deleted_are_no_difference(directories):
    source, target = directories
    found = verified(source, target)["t-0"]
    assert found.is_equal
    assert (found.result.equal, found.deleted_at_source, found.deleted_at_target) == (100, 100, 0)
    found = verified(target, source)["t-0"]
    assert found.is_equal
    assert (found.result.equal, found.deleted_at_source, found.deleted_at_target) == (100, 0, 100)


def test_a_time_limits_both_sides(directories):
    source, target = directories
    since = Position(PositionKind.TIME, 1_600_000_000_000 + 120_500)
    until = Position(PositionKind.TIME, 1_600_000_000_000 + 170_000)
    found = verified(source, target, since=since, until=until)["t-0"]
    assert found.is_equal
    assert found.result.equal == 49
    assert found.deleted_at_source == 0


def test_a_partition_that_the_target_lacks_is_an_obstacle(directories, tmp_path):
    source, target = directories
    write_segment(RealDisk(), source / "t-1", 0, [batch_of(0)])
    write_segment(RealDisk(), source / "u-0", 0, [batch_of(0)])
    found = verified(source, target)
    assert found["t-0"].is_equal
    assert not found["t-1"].is_equal
    assert found["t-1"].obstacle == "the target has no partition t-1"
    assert found["u-0"].obstacle == "the target has no partition u-0"


def test_topics_are_renamed(directories):
    source, target = directories
    (target / "t-0").rename(target / "west.t-0")
    assert verified(source, target, rename=parse_rename("west.{topic}"))["t-0"].is_equal
    with pytest.raises(NotFoundError):
        verified(source, target, ("u",))


def test_a_segment_that_the_target_lacks_is_missing(directories):
    source, target = directories
    disk = RealDisk()
    (target / "t-0/00000000000000000000.log").unlink()
    (target / "t-0/00000000000000000000.index").unlink()
    for base, first, end in ((0, 0, 120), (120, 140, 160), (160, 160, 180)):
        write_segment(disk, target / "t-0", base, [batch_of(at) for at in range(first, end, 10)])
    found = verified(source, target)["t-0"]
    assert rows(found) == [
        ("missing", 120, 140, 20, ()),
        ("missing", 180, 180, 20, ()),
    ]
    assert found.deleted_at_source == 100


def test_last_values_that_are_replaced_while_they_are_read_are_not_judged(tmp_path):
    disk, at = RealDisk(), 1_600_000_000_000

    def write(side, first, *values):
        records = [Record(first + n, at, key, value, ()) for n, (key, value) in enumerate(values)]
        write_segment(disk, tmp_path / side / "t-0", first, [build_batch(records)])

    write("source", 0, (b"a", b"1"), (b"b", b"1"))
    write("target", 0, (b"b", b"1"), (b"a", b"2"))
    source, target = (DirectoryPlace((str(tmp_path / it),)) for it in ("source", "target"))
    request = VerifyRequest(source, target, comparison=Comparison.LAST_VALUES)
    with Loop(partial(make_runtime, NullTrace())) as loop:
        [task] = plan_verification(request, loop)
    written = []

    def progress(_offsets):
        if not written:
            written.append(write("source", 2, (b"a", b"2")))

    found = verify_partition(task, progress)
    assert (found.result.equal, rows(found), found.pending_keys) == (1, [], 1)
