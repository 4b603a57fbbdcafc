"""What tests of verification and repair share: the findings of a log directory, its readable
records, a complete repair."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kctl.errors import CorruptDataError
from kctl.records.memory_records import batch_at
from kctl.repair.repair import apply_plans
from kctl.repair.repair_plan import RepairRequest, plan_repair
from kctl.runtime.real.disk import RealDisk
from kctl.storage.file_records import FileRecords
from kctl.verify.rules import Rule, Severity
from kctl.verify.segment_walk import Window, walk
from kctl.verify.verification import plan, verify_log_directory, verify_unit
from tests.support.damage import logs

DISK = RealDisk()
# Repair cannot bring back what is missing, and verification continues to report it.
GONE = {Rule.MISSING_SEGMENT, Rule.MISSING_OFFSETS}


def findings(path, *, with_records=True):
    """Return the damage that verification reports for a log directory."""
    wanted = plan(DISK, [str(path)], with_records=with_records)
    verified = [verify_unit(DISK, unit) for unit in wanted.units]
    found = [finding for partition in verified for finding in partition.findings]
    for directory in wanted.log_directories:
        found += verify_log_directory(DISK, directory, verified)
    return [finding for finding in found if finding.severity is Severity.DAMAGE]


def readable_records(directory, *, with_markers=True):
    """Count timestamp, key and value of each record in a valid batch; its offset may be wrong."""
    found = Counter()
    for path in logs(directory):
        records = FileRecords.open(DISK, str(path))
        for item in walk(records, 0):
            if isinstance(item, Window):
                for batch in item.batches:
                    if batch.is_control and not with_markers:
                        continue
                    found.update(_contents(batch_at(item.buffer, batch.position - item.position)))
    return found


def _contents(batch):
    try:
        return [(record.timestamp, record.key, record.value) for record in batch.records()]
    except CorruptDataError:
        return []


def repair(directory, backup):
    """Repair a partition as `kctl repair-log --apply` does, until nothing is left to do."""
    for number in range(4):
        wanted = plan_repair(DISK, str(directory), RepairRequest())
        if not wanted.steps():
            return
        apply_plans(DISK, [wanted], f"{backup}/{number}")
    raise AssertionError(f"repair does not end: {wanted.steps()}")


def partition_copier(clean_logs: Path, root: Path) -> Callable[[str], Path]:
    """Return a function that copies the named golden partition, and the files beside it, to `root`
    and returns the copy's path."""

    def copy(name: str) -> Path:
        root.mkdir()
        for file in clean_logs.iterdir():
            if file.is_file():
                shutil.copy(file, root)
        return shutil.copytree(clean_logs / name, root / name)

    return copy
