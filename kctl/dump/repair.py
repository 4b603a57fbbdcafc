"""Does what a repair plan says, so that a crash at any moment loses nothing.

Order: take the log directory's lock, which a broker holds while it runs; copy whatever will change
to the backup and make that durable; take away the marker of a clean shutdown and the partition's
recovery point, so that a broker looks for itself from here on; write new segments beside the old
ones, fsync them, rename them; build anew what is made from batches; fsync the directory. Done
again after a crash it mends what is left.

Kafka 2.7: kafka.log.LogManager (`lockLogDirs`), kafka.log.Log.replaceSegments
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kctl.dump.rebuild import Wanted, rebuild
from kctl.dump.repair_plan import RepairPlan
from kctl.dump.segment_edit import edited
from kctl.errors import UsageError
from kctl.runtime.disk import Disk, DiskLock
from kctl.storage import layout
from kctl.storage.checkpoint import decode_offsets, encode_offsets
from kctl.storage.file_records import FileRecords

REPAIR_SUFFIX = ".repair"
_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done."""

    # None: there was nothing to keep.
    backup: str | None
    files: int


def apply_plans(disk: Disk, plans: Iterable[RepairPlan], backup: str) -> Repaired:
    """Do `plans`, keeping in `backup` what they change. StorageError, and nothing is changed, if
    a broker holds the lock."""
    wanted = [plan for plan in plans if plan.steps()]
    locks: list[DiskLock] = []
    try:
        locks.extend(
            disk.lock(f"{directory}/{layout.LOCK_FILE}")
            for directory in sorted({plan.log_directory for plan in wanted})
            if _is_log_directory(disk, directory)
        )
        files = sum(_apply(disk, plan, backup) for plan in wanted)
    finally:
        for lock in locks:
            lock.release()
    return Repaired(backup if files else None, files)


def _is_log_directory(disk: Disk, directory: str) -> bool:
    return any(
        disk.exists(f"{directory}/{name}") for name in (layout.LOCK_FILE, layout.META_PROPERTIES)
    )


def _apply(disk: Disk, plan: RepairPlan, backup: str) -> int:
    changed = _changed_files(disk, plan)
    _back_up(disk, plan, changed, backup)
    if plan.changes_records:
        marker = f"{plan.log_directory}/{layout.CLEAN_SHUTDOWN_FILE}"
        if disk.exists(marker):
            disk.remove(marker)
            disk.fsync_directory(plan.log_directory)
    for path in plan.dropped_lines:
        _drop_line(disk, plan, path)
    _write_segments(disk, plan)
    for path in plan.moved_aside:
        disk.remove(path)
    disk.fsync_directory(plan.directory)
    if plan.indexes or plan.snapshots or plan.epochs:
        rebuild(disk, plan.directory, Wanted(plan.indexes, plan.snapshots, plan.epochs))
    disk.fsync_directory(plan.directory)
    return len(changed)


def _changed_files(disk: Disk, plan: RepairPlan) -> list[str]:
    """Every file that is there and will be another, or gone."""
    bases = set(plan.indexes)
    for path in [*plan.edits, *plan.renames]:
        parsed = layout.parse_file_name(path.rpartition("/")[2])
        bases |= {parsed[0]} if parsed is not None else set()
    found = {*plan.edits, *plan.renames, *plan.moved_aside, *plan.dropped_lines}
    found |= {
        f"{plan.directory}/{layout.file_name(base, suffix)}"
        for base in bases
        for suffix in layout.INDEX_SUFFIXES
    }
    if plan.snapshots:
        found |= {
            f"{plan.directory}/{name}"
            for name in disk.list(plan.directory)
            if name.endswith(layout.SNAPSHOT_SUFFIX)
        }
    if plan.epochs:
        found.add(f"{plan.directory}/{layout.LEADER_EPOCH_CHECKPOINT}")
    return sorted(path for path in found if disk.exists(path))


def _back_up(disk: Disk, plan: RepairPlan, paths: Iterable[str], backup: str) -> None:
    """Copies, durable before anything is changed; what an earlier run kept is never replaced."""
    for path in paths:
        relative = path[len(plan.log_directory) :].lstrip("/")
        copy = f"{backup}/{relative}"
        if disk.exists(copy):
            raise UsageError(f"{copy} is there already", hint="name another --backup directory")
        disk.make_directory(copy.rpartition("/")[0])
        source = disk.open(path, read_only=True)
        target = disk.open(copy, create=True)
        position = 0
        while data := source.pread(_COPY_BYTES, position):
            target.append([data])
            position += len(data)
        target.fsync()
        source.close()
        target.close()
        disk.fsync_directory(copy.rpartition("/")[0])


def _write_segments(disk: Disk, plan: RepairPlan) -> None:
    """All of them beside first, then their names: a renamed segment may take another's."""
    ready: list[tuple[str, str]] = []
    for path in sorted({*plan.edits, *plan.renames}):
        base = plan.renames.get(path)
        final = path
        if base is not None:
            final = f"{plan.directory}/{layout.file_name(base, layout.LOG_SUFFIX)}"
        beside = final + REPAIR_SUFFIX
        disk.remove(beside)
        records = FileRecords.open(disk, path)
        target = disk.open(beside, create=True)
        for piece in edited(records, plan.edits.get(path, [])):
            target.append([piece])
        target.fsync()
        target.close()
        records.close()
        ready.append((beside, final))
    disk.fsync_directory(plan.directory)
    finals = {final for _, final in ready}
    for beside, final in ready:
        disk.rename(beside, final)
    for path in plan.renames:
        if path not in finals:
            disk.remove(path)
            for suffix in layout.INDEX_SUFFIXES:
                disk.remove(path.removesuffix(layout.LOG_SUFFIX) + suffix)


def _drop_line(disk: Disk, plan: RepairPlan, path: str) -> None:
    offsets = decode_offsets(disk.read_file(path), path)
    if plan.topic_partition is not None:
        offsets.pop(plan.topic_partition, None)
    disk.write_file(path, encode_offsets(offsets))
