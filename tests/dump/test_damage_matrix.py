"""Every kind of damage on every format is found and named right; repair mends it, loses no record
that could be read, and leaves a directory that verification finds nothing wrong with."""

import shutil
from collections import Counter

import pytest

from kctl.dump.repair import apply_plans
from kctl.dump.repair_plan import RepairRequest, plan_repair
from kctl.dump.segment_walk import Window, walk
from kctl.dump.verify import plan, verify_log_directory, verify_unit
from kctl.dump.verify_rules import Rule, Severity
from kctl.errors import CorruptDataError
from kctl.records.memory_records import batch_at
from kctl.runtime.real.disk import RealDisk
from kctl.storage.file_records import FileRecords
from tests.support.damage import FORMATS, kinds_for, logs

DISK = RealDisk()
# These always, the others with -m slow: what they have in common is most of it.
ALWAYS = ("v2", "v1 gzip")
CELLS = [
    pytest.param(
        name, kind, id=f"{name}-{kind.name}", marks=() if name in ALWAYS else pytest.mark.slow
    )
    for name in FORMATS
    for kind in kinds_for(name)
]
# What is gone stays gone, and is still said.
GONE = {Rule.MISSING_SEGMENT, Rule.MISSING_OFFSETS}


def findings(path, *, with_records=True):
    """What verification says of a log directory."""
    wanted = plan(DISK, [str(path)], with_records=with_records)
    verified = [verify_unit(DISK, unit) for unit in wanted.units]
    found = [finding for partition in verified for finding in partition.findings]
    for directory in wanted.log_directories:
        found += verify_log_directory(DISK, directory, verified)
    return [finding for finding in found if finding.severity is Severity.DAMAGE]


def readable_records(directory):
    """Every record in a batch that is whole, by what it says; its offset may be what is wrong."""
    found = Counter()
    for path in logs(directory):
        records = FileRecords.open(DISK, str(path))
        for item in walk(records, 0):
            if isinstance(item, Window):
                for batch in item.batches:
                    found.update(_contents(batch_at(item.buffer, batch.position - item.position)))
    return found


def _contents(batch):
    try:
        return [(record.timestamp, record.key, record.value) for record in batch.records()]
    except CorruptDataError:
        return []


def repair(directory, backup):
    """What `kctl repair-log --apply` does."""
    for number in range(4):
        wanted = plan_repair(DISK, str(directory), RepairRequest())
        if not wanted.steps():
            return
        apply_plans(DISK, [wanted], f"{backup}/{number}")
    raise AssertionError(f"repair comes to no end: {wanted.steps()}")


@pytest.fixture
def partition(golden_logs, tmp_path):
    def copy(name):
        root = tmp_path / "logs"
        root.mkdir()
        for file in golden_logs.joinpath("logs-clean").iterdir():
            if file.is_file():
                shutil.copy(file, root)
        shutil.copytree(golden_logs / "logs-clean" / name, root / name)
        return root / name

    return copy


@pytest.mark.parametrize(("format_name", "kind"), CELLS)
def test_damage_is_found_and_mended(partition, tmp_path, format_name, kind):
    directory = partition(FORMATS[format_name])
    if not kind.needs(directory):
        pytest.skip("this log has nothing that could be damaged so")
    before = readable_records(directory)
    kind.apply(directory)
    found = findings(directory.parent)
    assert found, "the damage was not found"
    assert found[0].rule in kind.rules, found

    readable = readable_records(directory)
    repair(directory, tmp_path / "backup")
    after = readable_records(directory)
    assert not set(readable) - set(after), "readable records were lost"
    assert not set(after) - set(before), "records came from nowhere"
    assert sum(after.values()) <= sum(before.values())
    left = findings(directory.parent)
    assert {finding.rule for finding in left} <= GONE, left
