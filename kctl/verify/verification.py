"""Verifies a file, a partition's directory or a log directory.

`plan` divides the work into units, one per partition, which share nothing: the caller may run
`verify_unit` on them in sequence or in several processes. `verify_log_directory` comes last: it
compares the checkpoints of the log directory with the ends of its logs.

Kafka 2.7: kafka.log.LogManager (`loadLogs`), kafka.tools.DumpLogSegments
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from kctl.errors import CorruptDataError, StorageError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.checkpoint import decode_offsets
from kctl.storage.log_directory import log_directory_hint
from kctl.storage.meta_properties import read_any_meta_properties
from kctl.storage.segment_files import segment_base_offsets
from kctl.storage.segments07 import has_old_files, is_old_partition
from kctl.verify.findings import Findings
from kctl.verify.partition_checks import VerifiedPartition, verify_partition
from kctl.verify.rules import Finding, Rule
from kctl.verify.segment_checks import VerifyOptions

__all__ = ["VerifyPlan", "VerifyUnit", "plan", "verify_log_directory", "verify_unit"]

_OFFSET_CHECKPOINTS = {
    layout.RECOVERY_POINT_CHECKPOINT: Rule.RECOVERY_POINT_BOUNDS,
    layout.HIGH_WATERMARK_CHECKPOINT: Rule.HIGH_WATERMARK_BOUNDS,
    layout.LOG_START_OFFSET_CHECKPOINT: Rule.LOG_START_BOUNDS,
    layout.CLEANER_OFFSET_CHECKPOINT: Rule.CLEANER_OFFSET_BOUNDS,
}


@dataclass(frozen=True, slots=True)
class VerifyUnit:
    """The verification of one partition's directory, or of `only_file` in it."""

    directory: str
    options: VerifyOptions
    size: int
    only_file: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """The units to verify, and the log directories whose checkpoints are checked last."""

    units: list[VerifyUnit]
    log_directories: list[str]
    # Findings of the planning itself.
    findings: list[Finding]

    @property
    def size(self) -> int:
        """Return the total size of the segments in bytes."""
        return sum(unit.size for unit in self.units)


def plan(disk: Disk, paths: Iterable[str], *, with_records: bool) -> VerifyPlan:
    """Return the units for `paths`; raise UsageError for a path that is not a file or directory of
    Kafka. `with_records` decodes every record, which takes longer."""
    found = VerifyPlan([], [], [])
    for path in paths:
        _plan_path(disk, path.rstrip("/") or "/", found, with_records=with_records)
    return found


def _plan_path(disk: Disk, path: str, found: VerifyPlan, *, with_records: bool) -> None:
    if not disk.exists(path):
        raise UsageError(f"{path}: no such file or directory")
    if not disk.is_directory(path):
        parent, _, name = path.rpartition("/")
        is_known = layout.parse_file_name(name) is not None or name.endswith(layout.OLD_LOG_SUFFIX)
        if not is_known and name != layout.LEADER_EPOCH_CHECKPOINT:
            raise UsageError(
                f"{path}: not a file that can be verified",
                hint="name a segment's file, a partition's directory or a log directory",
            )
        unit = _unit(disk, parent or ".", with_records=with_records)
        found.units.append(VerifyUnit(unit.directory, unit.options, unit.size, path))
    elif is_partition_directory(disk, path):
        found.units.append(_unit(disk, path, with_records=with_records))
    else:
        _plan_log_directory(disk, path, found, with_records=with_records)


def is_partition_directory(disk: Disk, path: str) -> bool:
    """Return whether `path` has a partition's name or contains segments."""
    if layout.parse_directory_name(path.rpartition("/")[2]) is not None:
        return True
    if has_old_files(disk, path):
        return True
    return any(
        parsed is not None and parsed[1] == layout.LOG_SUFFIX
        for parsed in map(layout.parse_file_name, disk.list(path))
    )


def partition_directories(disk: Disk, paths: Iterable[str]) -> list[str]:
    """Return the partitions' directories at or below `paths`, without those to be deleted.

    Raise UsageError for a path that is neither a log directory nor a partition's directory.
    """
    found: list[str] = []
    for given in paths:
        path = given.rstrip("/") or "/"
        if not disk.is_directory(path):
            raise UsageError(
                f"{path}: no such directory", hint="name a partition's or a log directory"
            )
        if is_partition_directory(disk, path):
            found.append(path)
            continue
        inside = _live_partitions_in(disk, path)
        if not inside:
            raise UsageError(
                f"{path}: neither a log directory nor a partition's directory",
                hint=log_directory_hint(disk, path),
            )
        found += inside
    return found


def _live_partitions_in(disk: Disk, path: str) -> list[str]:
    found = []
    for name in disk.list(path):
        directory = f"{path}/{name}"
        parsed = layout.parse_directory_name(name)
        if not disk.is_directory(directory) or (parsed is not None and parsed.is_delete):
            continue
        has_segments = parsed is not None and segment_base_offsets(disk, directory)
        if has_segments or is_old_partition(disk, directory):
            found.append(directory)
    return found


def _plan_log_directory(disk: Disk, path: str, found: VerifyPlan, *, with_records: bool) -> None:
    names = disk.list(path)
    is_one = layout.META_PROPERTIES in names or any(name in _OFFSET_CHECKPOINTS for name in names)
    for name in names:
        parsed = layout.parse_directory_name(name)
        directory = f"{path}/{name}"
        if not disk.is_directory(directory):
            continue
        is_old = is_old_partition(disk, directory)
        if parsed is None and not is_old:
            continue
        # Other directories have names with numbers, too.
        is_one = is_one or is_old or bool(segment_base_offsets(disk, directory))
        if parsed is not None and parsed.is_delete:
            message = "a partition to be deleted; not verified"
            found.findings.append(Finding(directory, Rule.LEFTOVER_FILE, message))
        else:
            found.units.append(_unit(disk, directory, with_records=with_records))
    if not is_one:
        raise UsageError(
            f"{path}: neither a log directory nor a partition's directory",
            hint=log_directory_hint(disk, path),
        )
    found.log_directories.append(path)


def _unit(disk: Disk, directory: str, *, with_records: bool) -> VerifyUnit:
    parent = directory.rpartition("/")[0] or "."
    name = layout.parse_directory_name(directory.rpartition("/")[2])
    tp = name.topic_partition if name is not None else TopicPartition("", -1)
    is_passing = name is not None and (name.is_delete or name.is_future)
    options = VerifyOptions(
        with_records=with_records,
        is_clean=disk.exists(f"{parent}/{layout.CLEAN_SHUTDOWN_FILE}") and not is_passing,
        is_compacted=tp in _read(disk, f"{parent}/{layout.CLEANER_OFFSET_CHECKPOINT}"),
        log_start_offset=_read(disk, f"{parent}/{layout.LOG_START_OFFSET_CHECKPOINT}").get(tp, 0),
    )
    size = sum(
        _size(disk, f"{directory}/{file}")
        for file in disk.list(directory)
        if file.endswith((layout.LOG_SUFFIX, layout.OLD_LOG_SUFFIX))
    )
    return VerifyUnit(directory, options, size)


def _size(disk: Disk, path: str) -> int:
    """Return the size of a file, 0 if it has none: `verify_unit` reports a link to nowhere."""
    try:
        return disk.size(path)
    except StorageError:
        return 0


def _read(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the checkpoint, empty if it is damaged, which `verify_log_directory` reports."""
    try:
        return decode_offsets(disk.read_file(path), path) if disk.exists(path) else {}
    except CorruptDataError:
        return {}


def verify_unit(
    disk: Disk, unit: VerifyUnit, progress: Callable[[int], object] = bool
) -> VerifiedPartition:
    """Verify one unit; `progress` receives the number of bytes read in each step."""
    found = verify_partition(disk, unit.directory, unit.options, progress)
    if unit.only_file is None:
        return found
    base = unit.only_file.rpartition(".")[0]
    mine = [it for it in found.findings if it.path in (unit.only_file, f"{base}.log")]
    if not unit.only_file.endswith((layout.LOG_SUFFIX, layout.OLD_LOG_SUFFIX)):
        mine = [it for it in mine if it.path == unit.only_file]
    return replace(found, findings=mine)


def verify_log_directory(
    disk: Disk, directory: str, partitions: Iterable[VerifiedPartition]
) -> list[Finding]:
    """Compare meta.properties and the checkpoints with the verified partitions."""
    findings = Findings()
    path = f"{directory}/{layout.META_PROPERTIES}"
    if disk.exists(path):
        try:
            read_any_meta_properties(disk.read_file(path), path)
        except CorruptDataError as error:
            findings.add(Finding(path, Rule.META_PROPERTIES, _message(path, error)))
    ends = {}
    for verified in partitions:
        parent, _, name = verified.directory.rpartition("/")
        parsed = layout.parse_directory_name(name)
        if parent == directory and parsed is not None and not parsed.is_future:
            ends[parsed.topic_partition] = verified
    for name, rule in _OFFSET_CHECKPOINTS.items():
        path = f"{directory}/{name}"
        if disk.exists(path):
            _check_offsets(disk, path, rule, ends, findings)
    return findings.all()


def _check_offsets(
    disk: Disk,
    path: str,
    rule: Rule,
    ends: dict[TopicPartition, VerifiedPartition],
    findings: Findings,
) -> None:
    data = disk.read_file(path)
    try:
        offsets = decode_offsets(data, path) if data else {}
    except CorruptDataError as error:
        findings.add(Finding(path, Rule.CHECKPOINT_CORRUPT, _message(path, error)))
        return
    for tp, offset in offsets.items():
        verified = ends.get(tp)
        if verified is None:
            continue  # Deleted since, or still in another log directory.
        if not 0 <= offset <= verified.end_offset:
            message = f"{tp} is at {offset}, its log ends at {verified.end_offset}"
            findings.add(Finding(path, rule, message, None, offset))


def _message(path: str, error: Exception) -> str:
    return str(error).removeprefix(path).lstrip(": ")
