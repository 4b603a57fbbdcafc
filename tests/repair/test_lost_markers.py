"""A lost transaction marker is restored where another file knows the end of the transaction, and
reported with what it hides where none does."""

import shutil

import pytest

from kctl.records.control import read_marker
from kctl.records.memory_records import batches
from kctl.repair.repair_plan import RepairRequest, plan_repair
from kctl.runtime.real.disk import RealDisk
from tests.support.damage import logs
from tests.support.forensics import GONE, findings, repair

DISK = RealDisk()


def view(directory):
    """Return the state of each transactional record by offset, as read_committed readers see it."""
    states, still_open = {}, {}
    for path in logs(directory):
        for batch in batches(path.read_bytes()):
            if not batch.is_transactional:
                continue
            if not batch.is_control:
                offsets = [record.offset for record in batch.records()]
                still_open.setdefault(batch.producer_id, []).extend(offsets)
                continue
            for record in batch.records():
                ended = still_open.pop(batch.producer_id, [])
                states |= dict.fromkeys(ended, read_marker(record).is_commit)
    return states | {it: None for offsets in still_open.values() for it in offsets}


def markers(directory):
    """Return path, position and size of each marker that ends a transaction, in log order."""
    found, has_records = [], set()
    for path in logs(directory):
        for batch in batches(path.read_bytes()):
            if batch.is_control and batch.producer_id in has_records:
                found.append((path, batch.position, batch.size))
                has_records.discard(batch.producer_id)
            elif batch.is_transactional and not batch.is_control:
                has_records.add(batch.producer_id)
    return found


def damaged(path, position, size):
    data = bytearray(path.read_bytes())
    data[position + size - 2] ^= 0x40
    path.write_bytes(data)


def deleted(path, position, size):
    data = bytearray(path.read_bytes())
    del data[position : position + size]
    path.write_bytes(data)


def chosen(found, count):
    """So many of them, the first and the last among them."""
    step = max(1, len(found) // count)
    return [*found[::step], found[-1]]


@pytest.mark.parametrize("count", [2, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lose", [damaged, deleted])
@pytest.mark.parametrize("name", ["tx-0", "tx-1"])
def test_readers_of_committed_data_get_the_same(partition, tmp_path, name, lose, count):
    directory = partition(name)
    pristine, expected = shutil.copytree(directory, tmp_path / name), view(directory)
    restored = 0
    for path, position, size in chosen(markers(directory), count):
        lose(path, position, size)
        plan = plan_repair(DISK, str(directory), RepairRequest())
        restored += any(it.action == "restore" for it in plan.steps())
        assert lose is deleted or any("was a marker" in it for it in plan.notes)
        repair(directory, tmp_path / "backup")
        assert view(directory) == expected, (path.name, position)
        assert {it.rule for it in findings(directory.parent)} <= GONE
        shutil.rmtree(directory)
        shutil.rmtree(tmp_path / "backup")
        shutil.copytree(pristine, directory)
    assert restored


def without_evidence(directory):
    for path in [*directory.glob("*.snapshot"), *directory.glob("*.txnindex")]:
        path.unlink()


def test_the_transaction_state_knows_the_end(partition, golden_logs, tmp_path):
    directory = partition("tx-0")
    expected = view(directory)
    for path in (golden_logs / "logs-clean").glob("__transaction_state-*"):
        shutil.copytree(path, directory.parent / path.name)
    without_evidence(directory)
    damaged(*markers(directory)[-1])
    steps = plan_repair(DISK, str(directory), RepairRequest()).steps()
    assert any("__transaction_state" in it.detail for it in steps if it.action == "restore")
    repair(directory, tmp_path / "backup")
    assert view(directory) == expected


def test_what_a_lost_marker_hides_is_said(partition):
    directory = partition("tx-0")
    without_evidence(directory)
    damaged(*markers(directory)[-1])
    plan = plan_repair(DISK, str(directory), RepairRequest())
    assert not any(it.action == "restore" for it in plan.steps())
    assert any("is lost, and no file shows whether it was committed" in it for it in plan.notes)
