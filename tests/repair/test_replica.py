"""Batches that a log lost are taken from another replica: a healthy copy of the same partition."""

import shutil
import struct

import pytest

from kctl.errors import UsageError
from kctl.records.memory_records import batches
from kctl.repair.repair import apply_plans
from kctl.repair.repair_plan import RepairRequest, plan_repair, ranges_to_take
from kctl.repair.replica import open_replica
from kctl.runtime.real.disk import RealDisk
from tests.support.damage import flip, logs, middle_batch, middle_segment
from tests.support.forensics import findings, repair

DISK = RealDisk()
KINDS = ["v2-none-0", "v2-gzip-0", "tx-0", "v1-none-0", "v0-none-0"]


@pytest.fixture
def replica(tmp_path):
    """Return a function that copies a partition to the log directory of another broker."""

    def copy(directory):
        other = tmp_path / "other"
        other.mkdir(exist_ok=True)
        for file in directory.parent.iterdir():
            if file.is_file():
                shutil.copy(file, other)
        return shutil.copytree(directory, other / directory.name)

    return copy


def all_batches(directory):
    return [
        (
            batch.base_offset,
            batch.last_offset,
            bytes(path.read_bytes()[batch.position :][: batch.size]),
        )
        for path in logs(directory)
        for batch in batches(path.read_bytes())
    ]


def plan_from(directory, other):
    found = open_replica(DISK, str(directory), str(other))
    return plan_repair(DISK, str(directory), RepairRequest(replica=found))


def cut_tail(directory):
    """Cut the last segment in the middle of a batch."""
    path = max(logs(directory), key=lambda it: it.name)
    data, _, end = middle_batch(path)
    path.write_bytes(data[: end - 5])


def cut_middle_segment(directory):
    path = middle_segment(directory)
    data, start, _ = middle_batch(path)
    path.write_bytes(data[: start + 7])


def zero_middle_batch(directory):
    path = middle_segment(directory)
    data, start, end = middle_batch(path)
    data[start:end] = bytes(end - start)
    path.write_bytes(data)


def several(directory):
    for path in logs(directory):
        data, start, end = middle_batch(path)
        data[(start + end) // 2] ^= 0x10
        path.write_bytes(data)


def missing_segment(directory):
    middle_segment(directory).unlink()


def missing_first_segment(directory):
    logs(directory)[0].unlink()


def missing_last_segment(directory):
    for path in directory.glob(f"{logs(directory)[-1].stem}.*"):
        path.unlink()


DAMAGES = [
    flip(-3), cut_tail, cut_middle_segment, zero_middle_batch, several, missing_segment,
    missing_first_segment, missing_last_segment,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda it: getattr(it, "__name__", "it"))
def test_the_log_is_as_the_replica_again(partition, replica, tmp_path, kind, damage):
    directory = partition(kind)
    if len(logs(directory)) < 2 and "segment" in damage.__name__:
        pytest.skip("a single segment")
    other = replica(directory)
    whole = all_batches(other)
    damage(directory)
    wanted = plan_from(directory, other)
    assert "take" in {step.action for step in wanted.steps()}
    assert not wanted.lost
    apply_plans(DISK, [wanted], f"{tmp_path}/backup")
    repair(directory, tmp_path / "rest")
    assert all_batches(directory) == whole
    assert findings(directory.parent) == []
    # The replica is only read.
    assert all_batches(other) == whole


def test_a_log_that_an_earlier_repair_cut_gets_its_records_back(partition, replica, tmp_path):
    directory = partition("v2-none-0")
    other = replica(directory)
    flip(-3)(directory)
    repair(directory, tmp_path / "first")
    assert all_batches(directory) != all_batches(other)
    wanted = plan_from(directory, other)
    assert any("take their place" in step.detail for step in wanted.steps())
    apply_plans(DISK, [wanted], f"{tmp_path}/second")
    assert all_batches(directory) == all_batches(other)
    assert findings(directory.parent) == []


def test_a_healthy_log_takes_nothing(partition, replica):
    directory = partition("v2-none-0")
    assert plan_from(directory, replica(directory)).steps() == []


def test_what_the_replica_lacks_as_well_is_lost(partition, replica):
    directory = partition("v2-none-0")
    other = replica(directory)
    flip(-3)(directory)
    flip(-3)(other)
    wanted = plan_from(directory, other)
    assert "take" not in {step.action for step in wanted.steps()}
    assert wanted.lost == plan_repair(DISK, str(directory), RepairRequest()).lost != []


def test_divergence_is_refused(partition, replica):
    directory = partition("v2-none-0")
    other = replica(directory)
    flip(-3)(directory)
    # Every batch of the replica is of another leader epoch.
    for path in logs(other):
        data = bytearray(path.read_bytes())
        for batch in list(batches(bytes(data))):
            struct.pack_into(">i", data, batch.position + 12, 77)
        path.write_bytes(data)
    with pytest.raises(UsageError, match=r"diverges from the log at offset \d+: leader epoch 77"):
        plan_from(directory, other)


def test_a_damaged_replica_is_refused(partition, replica):
    directory = partition("v2-none-0")
    other = replica(directory)
    flip(-3)(directory)
    first, second = logs(other)[:2]
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    with pytest.raises(UsageError, match="is damaged itself at offset"):
        plan_from(directory, other)


def test_another_partition_or_cluster_is_refused(partition, replica, tmp_path):
    directory = partition("v2-none-0")
    other = replica(directory)
    meta = other.parent / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
    with pytest.raises(UsageError, match="belongs to another cluster"):
        plan_from(directory, other)
    with pytest.raises(UsageError, match="it is no other replica"):
        plan_from(directory, directory.parent)
    with pytest.raises(UsageError, match="has no replica of v2-none-0"):
        plan_from(directory, tmp_path)


def test_only_missing_offsets_and_their_neighbours_are_asked_for(partition):
    directory = partition("v2-none-0")
    whole = all_batches(directory)
    last = whole[-1][0]
    assert ranges_to_take(DISK, str(directory)) == [(last, None)]
    path = middle_segment(directory)
    _, start, _ = middle_batch(path)
    at = next(
        i for i, it in enumerate(whole)
        if it[2] == path.read_bytes()[start:][: len(it[2])]
    )  # fmt: skip
    flip(-3)(directory)
    assert ranges_to_take(DISK, str(directory)) == [
        (whole[at - 1][0], whole[at + 1][1]), (last, None),
    ]  # fmt: skip


def test_the_plan_says_which_records_are_lost(partition):
    directory = partition("v2-none-0")
    flip(-3)(directory)
    [(first, last)] = plan_repair(DISK, str(directory), RepairRequest()).lost
    assert last is not None
    assert first <= last
