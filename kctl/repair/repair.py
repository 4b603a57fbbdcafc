"""Apply a repair plan so that a crash at any moment loses nothing.

Order:

1. Take the lock of the log directory, which a broker holds while it runs.
2. Copy what will change to the backup, and make the copies durable.
3. Remove the marker of a clean shutdown and the partition's recovery point, so that a broker
   recovers the log itself.
4. Write new segments beside the old ones and fsync them.
5. Write the journal, which lists renames and removals; execute these; remove the journal.
6. Rebuild what is derived from batches.

A batch can move from one segment to another, so after a crash between two renames neither the old
nor the new log is whole: the next run completes the journal first.

Kafka 2.7: kafka.log.LogManager (`lockLogDirs`), kafka.log.Log.replaceSegments
"""

import json
from collections.abc import Iterable

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.repair.log_layout import SET_ASIDE
from kctl.repair.rebuild import Wanted, rebuild
from kctl.repair.repair_plan import JOURNAL_FILE, RepairPlan
from kctl.repair.segment_edit import Piece, contents
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.checkpoint import decode_offsets, encode_offsets
from kctl.storage.log_directory_locks import check_outside, locked_log_directories
from kctl.storage.segments07 import has_old_files

__all__ = ["Repaired", "apply_plans"]

REPAIR_SUFFIX = ".repair"
_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair."""

    # The directory with the copies; None if no file changed.
    backup: str | None
    files: int


def apply_plans(disk: Disk, plans: Iterable[RepairPlan], backup: str) -> Repaired:
    """Apply `plans` and copy every file that changes to `backup` first.

    Raise StorageError, before any change, if a broker holds the lock of a log directory that
    contains the files, links resolved; raise UsageError if `backup` is inside one.
    """
    wanted = [plan for plan in plans if plan.steps()]
    check_outside(disk, backup, "The backup")
    _check_outside_old_logs(disk, wanted, backup)
    with locked_log_directories(disk, [plan.directory for plan in wanted]):
        files = sum(_apply(disk, plan, backup) for plan in wanted)
    return Repaired(backup if files else None, files)


def _check_outside_old_logs(disk: Disk, plans: Iterable[RepairPlan], backup: str) -> None:
    """Raise UsageError if `backup` is where Kafka 0.7, which marks its log directory with no file,
    takes every directory for a partition."""
    place = disk.real_path(backup)
    for plan in plans:
        if has_old_files(disk, plan.directory):
            directory = disk.real_path(plan.log_directory)
            if place == directory or place.startswith(f"{directory}/"):
                raise UsageError(
                    f"The backup cannot be in the log directory {directory}", hint="name another"
                )


def _apply(disk: Disk, plan: RepairPlan, backup: str) -> int:
    if plan.is_resumed:
        _complete(disk, plan.directory)
        rebuild(disk, plan.directory, Wanted())
        return 0
    changed = _changed_files(disk, plan)
    _keep(disk, plan, changed, backup)
    if plan.changes_records:
        marker = f"{plan.log_directory}/{layout.CLEAN_SHUTDOWN_FILE}"
        if disk.exists(marker):
            disk.remove(marker)
            disk.fsync_directory(plan.log_directory)
    for path in plan.dropped_lines:
        _drop_line(disk, plan, path)
    _replace_segments(disk, plan)
    disk.fsync_directory(plan.directory)
    if plan.indexes or plan.snapshots or plan.epochs:
        rebuild(disk, plan.directory, Wanted(plan.indexes, plan.snapshots, plan.epochs))
    disk.fsync_directory(plan.directory)
    return len(changed)


def _changed_files(disk: Disk, plan: RepairPlan) -> list[str]:
    """Return the existing files that the plan changes or removes."""
    bases = set(plan.indexes)
    found = {*plan.segments, *plan.moved_aside, *plan.dropped_lines}
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


def _keep(disk: Disk, plan: RepairPlan, paths: Iterable[str], backup: str) -> None:
    """Copy what the plan changes and sets aside. If that fails, remove what was copied: half a
    backup would only fill a disk that is full already."""
    is_new = not disk.exists(backup)
    made: list[str] = []
    try:
        _back_up(disk, plan, paths, backup, made)
        _set_aside(disk, plan, backup, made)
    except BaseException:
        for path in made:
            disk.remove(path)
        if is_new and disk.exists(backup):
            disk.remove_tree(backup)
        raise


def _back_up(
    disk: Disk, plan: RepairPlan, paths: Iterable[str], backup: str, made: list[str]
) -> None:
    """Copy `paths` and make the copies durable; copies of an earlier run are never replaced. The
    path of each copy is added to `made` before it is created."""
    for path in paths:
        relative = path[len(plan.log_directory) :].lstrip("/")
        copy = f"{backup}/{relative}"
        if disk.exists(copy):
            raise UsageError(f"{copy} exists already", hint="name another --backup directory")
        disk.make_directory(copy.rpartition("/")[0])
        made.append(copy)
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


def _set_aside(disk: Disk, plan: RepairPlan, backup: str, made: list[str]) -> None:
    """Write every batch without a place to a file that `kctl dump-log` can read."""
    name = plan.directory.rpartition("/")[2]
    for number, (offset, extent) in enumerate(plan.set_aside):
        directory = f"{backup}/{name}/{SET_ASIDE}/{number}"
        disk.make_directory(directory)
        path = f"{directory}/{layout.file_name(max(0, offset), layout.LOG_SUFFIX)}"
        made.append(path)
        _write(disk, path, [extent])
        disk.fsync_directory(directory)


def _write(disk: Disk, path: str, pieces: Iterable[Piece]) -> None:
    disk.remove(path)
    target = disk.open(path, create=True)
    for data in contents(disk, pieces):
        target.append([data])
    target.fsync()
    target.close()


def _replace_segments(disk: Disk, plan: RepairPlan) -> None:
    """Write all new segments beside the old ones before any takes its name, as they consist of
    parts of each other."""
    for path, pieces in plan.segments.items():
        _write(disk, path + REPAIR_SUFFIX, pieces)
    disk.fsync_directory(plan.directory)
    renamed = [path.rpartition("/")[2] for path in plan.segments]
    removed = [path.rpartition("/")[2] for path in plan.moved_aside]
    if not renamed and not removed:
        return
    journal = json.dumps({"renamed": renamed, "removed": removed}).encode()
    disk.write_file(f"{plan.directory}/{JOURNAL_FILE}", journal)
    disk.fsync_directory(plan.directory)
    _complete(disk, plan.directory)


def _complete(disk: Disk, directory: str) -> None:
    """Carry out the journal, as far as it is not done yet."""
    path = f"{directory}/{JOURNAL_FILE}"
    journal = json.loads(disk.read_file(path))
    for name in journal["renamed"]:
        if disk.exists(f"{directory}/{name}{REPAIR_SUFFIX}"):
            disk.rename(f"{directory}/{name}{REPAIR_SUFFIX}", f"{directory}/{name}")
    for name in journal["removed"]:
        disk.remove(f"{directory}/{name}")
    disk.fsync_directory(directory)
    disk.remove(path)
    disk.fsync_directory(directory)


def _drop_line(disk: Disk, plan: RepairPlan, path: str) -> None:
    offsets = decode_offsets(disk.read_file(path), path)
    if plan.topic_partition is not None:
        offsets.pop(plan.topic_partition, None)
    disk.write_file(path, encode_offsets(offsets))
