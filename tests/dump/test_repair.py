"""Repair: the plan changes nothing, what changes is kept, a broker's lock is respected."""

import shutil

import pytest

from kctl.dump.extract import extract
from kctl.dump.filters import RecordFilter
from kctl.dump.rebuild import Wanted, rebuild
from kctl.dump.repair import apply_plans
from kctl.dump.repair_plan import RepairRequest, plan_repair
from kctl.errors import StorageError, UsageError
from kctl.records.compression import ZSTD
from kctl.runtime.real.disk import RealDisk
from tests.dump.test_damage_matrix import findings, partition, readable_records  # noqa: F401
from tests.support.damage import flip, logs

DISK = RealDisk()


def files(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def damaged(partition):  # noqa: F811
    directory = partition("v2-none-0")
    flip(-3)(directory)
    return directory


def test_a_plan_changes_nothing(damaged):
    before = files(damaged.parent)
    assert plan_repair(DISK, str(damaged), RepairRequest()).steps()
    assert files(damaged.parent) == before


def test_what_changes_is_in_the_backup_as_it_was(damaged, tmp_path):
    before = files(damaged.parent)
    apply_plans(DISK, [plan_repair(DISK, str(damaged), RepairRequest())], f"{tmp_path}/backup")
    after, kept = files(damaged.parent), files(tmp_path / "backup")
    assert kept
    assert all(before[name] == data for name, data in kept.items())
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed - {".kafka_cleanshutdown"} <= set(kept)


def test_a_broker_that_holds_the_lock_is_left_alone(damaged, tmp_path):
    before = files(damaged.parent)
    wanted = plan_repair(DISK, str(damaged), RepairRequest())
    lock = DISK.lock(f"{damaged.parent}/.lock")
    with pytest.raises(StorageError, match="locked"):
        apply_plans(DISK, [wanted], f"{tmp_path}/backup")
    lock.release()
    assert files(damaged.parent) == before


def test_offsets_of_what_is_cut_out_stay(damaged, tmp_path):
    apply_plans(DISK, [plan_repair(DISK, str(damaged), RepairRequest())], f"{tmp_path}/backup")
    assert findings(damaged.parent) == []
    second = plan_repair(DISK, str(damaged), RepairRequest())
    assert second.steps() == []


def test_truncation_ends_the_log_at_or_before_the_offset(partition, tmp_path):  # noqa: F811
    directory = partition("v2-none-0")
    request = RepairRequest(truncate_to=100)
    apply_plans(DISK, [plan_repair(DISK, str(directory), request)], f"{tmp_path}/backup")
    assert [path.name for path in logs(directory)] == [f"{base:020d}.log" for base in (0, 40, 80)]
    assert len(list(readable_records(directory).elements())) == 100
    assert findings(directory.parent) == []


def test_truncation_to_nothing_is_refused(partition):  # noqa: F811
    directory = partition("deleted-records-0")
    with pytest.raises(UsageError, match="nothing would be left"):
        plan_repair(DISK, str(directory), RepairRequest(truncate_to=1))


@pytest.mark.parametrize("name", ["v2-none-0", "tx-0", "v1-gzip-0", "upgraded-0", "epochs-0"])
def test_all_that_is_made_from_batches_can_be_made_anew(partition, name):  # noqa: F811
    directory = partition(name)
    for path in directory.iterdir():
        if path.suffix != ".log":
            path.unlink()
    rebuild(DISK, str(directory), Wanted())
    assert findings(directory.parent) == []


def test_extraction_takes_what_is_readable_and_leaves_the_source_alone(damaged, tmp_path):
    before = files(damaged)
    found = extract(DISK, str(damaged), f"{tmp_path}/out/v2-none-0", RecordFilter(), None)
    assert found.damaged_places == 1
    assert readable_records(tmp_path / "out/v2-none-0") == readable_records(damaged)
    assert files(damaged) == before


def test_extraction_filters_and_recompresses(partition, tmp_path):  # noqa: F811
    directory = partition("v2-none-0")
    target = tmp_path / "out/v2-none-0"
    wanted = RecordFilter(start_offset=45, end_offset=95, keys=(b"key-00050", b"key-00061"))
    found = extract(DISK, str(directory), str(target), wanted, ZSTD)
    assert (found.records, found.first_offset, found.last_offset) == (2, 50, 61)
    assert {key for _, key, _ in readable_records(target)} == {b"key-00050", b"key-00061"}


def test_extraction_refuses_a_directory_that_holds_something(damaged, tmp_path):
    shutil.copytree(damaged, tmp_path / "out")
    with pytest.raises(UsageError, match="not empty"):
        extract(DISK, str(damaged), f"{tmp_path}/out", RecordFilter(), None)
