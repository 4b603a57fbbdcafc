"""Verifies what a path names: a file, a partition's directory, or a whole log directory.

`plan` divides the work into units, one a partition, which share nothing: the caller may run
`verify_unit` on them one after the other or in processes of its own. What concerns the log
directory as a whole, its checkpoints against the ends of its logs, comes last.

Kafka 2.7: kafka.log.LogManager (`loadLogs`), kafka.tools.DumpLogSegments
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kctl.dump.dump import log_directory_hint
from kctl.dump.findings import Findings
from kctl.dump.verify_partition import VerifiedPartition, verify_partition
from kctl.dump.verify_rules import Finding, Rule
from kctl.dump.verify_segment import VerifyOptions
from kctl.errors import CorruptDataError, UsageError
from kctl.model import TopicPartition
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.checkpoint import decode_offsets
from kctl.storage.meta_properties import decode_meta_properties
from kctl.storage.segment_files import segment_base_offsets

_OFFSET_CHECKPOINTS = {
    layout.RECOVERY_POINT_CHECKPOINT: Rule.RECOVERY_POINT_BOUNDS,
    layout.HIGH_WATERMARK_CHECKPOINT: Rule.HIGH_WATERMARK_BOUNDS,
    layout.LOG_START_OFFSET_CHECKPOINT: Rule.LOG_START_BOUNDS,
    layout.CLEANER_OFFSET_CHECKPOINT: Rule.CLEANER_OFFSET_BOUNDS,
}


@dataclass(frozen=True, slots=True)
class VerifyUnit:
    """One partition's directory; of `only_file`, if set, and what belongs to it alone."""

    directory: str
    options: VerifyOptions
    size: int
    only_file: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """What there is to do, and the log directories whose checkpoints are checked at the end."""

    units: list[VerifyUnit]
    log_directories: list[str]
    # What the plan itself came upon.
    findings: list[Finding]

    @property
    def size(self) -> int:
        """Bytes of segments."""
        return sum(unit.size for unit in self.units)


def plan(disk: Disk, paths: Iterable[str], *, with_records: bool) -> VerifyPlan:
    """The work that `paths` mean; UsageError if one is none of Kafka's files or directories."""
    found = VerifyPlan([], [], [])
    for path in paths:
        _plan_path(disk, path.rstrip("/") or "/", found, with_records=with_records)
    return found


def _plan_path(disk: Disk, path: str, found: VerifyPlan, *, with_records: bool) -> None:
    if not disk.exists(path):
        raise UsageError(f"{path}: no such file or directory")
    if not disk.is_directory(path):
        parent, _, name = path.rpartition("/")
        if layout.parse_file_name(name) is None and name != layout.LEADER_EPOCH_CHECKPOINT:
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
    """By its name, or by the segments in it."""
    if layout.parse_directory_name(path.rpartition("/")[2]) is not None:
        return True
    return any(
        parsed is not None and parsed[1] == layout.LOG_SUFFIX
        for parsed in map(layout.parse_file_name, disk.list(path))
    )


def _plan_log_directory(disk: Disk, path: str, found: VerifyPlan, *, with_records: bool) -> None:
    names = disk.list(path)
    is_one = layout.META_PROPERTIES in names or any(name in _OFFSET_CHECKPOINTS for name in names)
    for name in names:
        parsed = layout.parse_directory_name(name)
        directory = f"{path}/{name}"
        if parsed is None or not disk.is_directory(directory):
            continue
        # Other directories have names with numbers, too.
        is_one = is_one or bool(segment_base_offsets(disk, directory))
        if parsed.is_delete:
            message = "a partition on its way out; not verified"
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
        disk.size(f"{directory}/{file}")
        for file in disk.list(directory)
        if file.endswith(layout.LOG_SUFFIX)
    )
    return VerifyUnit(directory, options, size)


def _read(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The checkpoint, or nothing: `verify_log_directory` says what is wrong with it."""
    try:
        return decode_offsets(disk.read_file(path), path) if disk.exists(path) else {}
    except CorruptDataError:
        return {}


def verify_unit(
    disk: Disk, unit: VerifyUnit, progress: Callable[[int], object] = bool
) -> VerifiedPartition:
    """Do one unit's work; `progress` is told of bytes as they are done."""
    found = verify_partition(disk, unit.directory, unit.options, progress)
    if unit.only_file is None:
        return found
    base = unit.only_file.rpartition(".")[0]
    mine = [it for it in found.findings if it.path in (unit.only_file, f"{base}.log")]
    if not unit.only_file.endswith(layout.LOG_SUFFIX):
        mine = [it for it in mine if it.path == unit.only_file]
    return replace(found, findings=mine)


def verify_log_directory(
    disk: Disk, directory: str, partitions: Iterable[VerifiedPartition]
) -> list[Finding]:
    """Hold meta.properties and the checkpoints against the partitions that were verified."""
    findings = Findings()
    path = f"{directory}/{layout.META_PROPERTIES}"
    if disk.exists(path):
        try:
            decode_meta_properties(disk.read_file(path), path)
        except CorruptDataError as error:
            findings.add(Finding(path, Rule.META_PROPERTIES, _words(path, error)))
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
        findings.add(Finding(path, Rule.CHECKPOINT_CORRUPT, _words(path, error)))
        return
    for tp, offset in offsets.items():
        verified = ends.get(tp)
        if verified is None:
            continue  # Gone since, or still in another log directory.
        if not 0 <= offset <= verified.end_offset:
            message = f"{tp} is at {offset}, its log ends at {verified.end_offset}"
            findings.add(Finding(path, rule, message, None, offset))


def _words(path: str, error: Exception) -> str:
    return str(error).removeprefix(path).lstrip(": ")
