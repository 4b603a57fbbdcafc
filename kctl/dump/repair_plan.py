"""Plans the repair of a partition's directory: what would be changed, and why. Changes nothing.

By default a plan mends whatever verification finds: damaged bytes are cut out, their offsets kept;
wrong offsets and epochs, which no checksum covers, are set right where the neighbours prove them;
everything that is made from batches is made anew. What is not there cannot be mended: missing
segments and offsets stay missing.

Kafka 2.7 has no such tool; kafka.log.LogSegment.recover cuts where this mends
"""

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from kctl.dump.segment_edit import Edit, filler, in_order
from kctl.dump.verify import VerifyUnit, plan, verify_unit
from kctl.dump.verify_partition import VerifiedPartition
from kctl.dump.verify_rules import Finding, Rule
from kctl.errors import CorruptDataError, UsageError
from kctl.model import TopicPartition
from kctl.records.record_batch import INT32, INT64, LOG_OVERHEAD
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.checkpoint import decode_offsets
from kctl.storage.file_records import FileBatch, FileRecords
from kctl.storage.segment_files import segment_base_offsets

_CUT_OUT = (
    Rule.BATCH_CRC, Rule.BATCH_SIZE, Rule.BATCH_MAGIC, Rule.RECORDS, Rule.OFFSET_RANGE,
    Rule.NONSENSE, Rule.ZERO_BLOCK, Rule.ZERO_TAIL, Rule.PREALLOCATED, Rule.TORN_TAIL,
    Rule.DUPLICATE_OFFSETS, Rule.OFFSET_ORDER,
)  # fmt: skip
_INDEX_RULES = ("index-", "timeindex-", "txnindex-")
_CHECKPOINTS = (
    layout.RECOVERY_POINT_CHECKPOINT,
    layout.HIGH_WATERMARK_CHECKPOINT,
    layout.LOG_START_OFFSET_CHECKPOINT,
    layout.CLEANER_OFFSET_CHECKPOINT,
)
_ALL_FINDINGS = 1_000_000


class Step(NamedTuple):
    """One line of the plan."""

    action: str
    path: str
    detail: str


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """What is asked for; with nothing set, whatever verification finds is mended."""

    rebuild_indexes: bool = False
    rebuild_snapshots: bool = False
    rebuild_epochs: bool = False
    drop_recovery_point: bool = False
    # The new end of the log.
    truncate_to: int | None = None
    # Offsets to take out; the end is exclusive.
    cut: tuple[int, int] | None = None

    @property
    def is_automatic(self) -> bool:
        return self == RepairRequest()


@dataclass(slots=True)
class RepairPlan:
    """What is to be done to one partition's directory."""

    directory: str
    topic_partition: TopicPartition | None
    # By path of the .log.
    edits: dict[str, list[Edit]] = field(default_factory=dict)
    # New base offsets of segments that bear a wrong name, by path of the .log.
    renames: dict[str, int] = field(default_factory=dict)
    # Base offsets of segments whose indexes are built anew.
    indexes: set[int] = field(default_factory=set)
    snapshots: bool = False
    epochs: bool = False
    # Checkpoints of the log directory whose line of this partition is dropped.
    dropped_lines: list[str] = field(default_factory=list)
    # Files that go to the backup and are gone here.
    moved_aside: list[str] = field(default_factory=list)

    @property
    def log_directory(self) -> str:
        return self.directory.rpartition("/")[0] or "."

    @property
    def changes_records(self) -> bool:
        """Whether a .log is changed: then a broker must look at the partition itself."""
        return bool(
            self.edits or self.renames or any(it.endswith(".log") for it in self.moved_aside)
        )

    def steps(self) -> list[Step]:
        """The plan in words, in the order in which it is done."""
        steps = [
            Step("rename", path, f"to {layout.file_name(base, layout.LOG_SUFFIX)}")
            for path, base in sorted(self.renames.items())
        ]
        for path, edits in sorted(self.edits.items()):
            steps += [Step("edit", path, edit.reason) for edit in in_order(edits)]
        steps += [Step("move aside", path, "to the backup") for path in sorted(self.moved_aside)]
        for base in sorted(self.indexes):
            path = f"{self.directory}/{layout.file_name(base, layout.INDEX_SUFFIX)}"
            steps.append(Step("rebuild", path, "indexes of the segment, from its batches"))
        if self.snapshots:
            steps.append(Step("rebuild", self.directory, "producer snapshots, from the batches"))
        if self.epochs:
            path = f"{self.directory}/{layout.LEADER_EPOCH_CHECKPOINT}"
            steps.append(Step("rebuild", path, "leader epochs, from the batches"))
        steps += [
            Step("drop line", path, f"of {self.topic_partition}") for path in self.dropped_lines
        ]
        return steps


def plan_repair(disk: Disk, directory: str, request: RepairRequest) -> RepairPlan:
    """The plan for one partition's directory; UsageError if the request makes no sense there."""
    return _Planner(disk, directory.rstrip("/"), request).run()


class _Planner:
    def __init__(self, disk: Disk, directory: str, request: RepairRequest) -> None:
        self._disk = disk
        self._request = request
        name = layout.parse_directory_name(directory.rpartition("/")[2])
        tp = name.topic_partition if name is not None else None
        self._plan = RepairPlan(directory, tp)
        self._directory = directory
        self._bases = segment_base_offsets(disk, directory)
        self._verified: VerifiedPartition | None = None

    def run(self) -> RepairPlan:
        request, found = self._request, self._plan
        if not self._bases and not request.is_automatic:
            raise UsageError(f"{self._directory}: holds no segments")
        if request.is_automatic:
            self._mend()
        if request.truncate_to is not None:
            self._truncate(request.truncate_to)
        if request.cut is not None:
            self._cut(*request.cut)
        if request.rebuild_indexes:
            found.indexes.update(self._bases)
        found.snapshots |= request.rebuild_snapshots
        found.epochs |= request.rebuild_epochs
        if request.drop_recovery_point:
            self._drop_line(layout.RECOVERY_POINT_CHECKPOINT)
        if found.changes_records:
            self._follow_up()
        return found

    def _path(self, base: int, suffix: str = layout.LOG_SUFFIX) -> str:
        return f"{self._directory}/{layout.file_name(base, suffix)}"

    def _follow_up(self) -> None:
        """What is made from batches is made anew once they change."""
        found = self._plan
        for path in [*found.edits, *found.renames]:
            base = found.renames.get(path)
            parsed = layout.parse_file_name(path.rpartition("/")[2])
            found.indexes.add(parsed[0] if base is None and parsed is not None else base or 0)
        found.snapshots = found.epochs = True
        self._drop_line(layout.RECOVERY_POINT_CHECKPOINT)

    def _drop_line(self, name: str, beyond: int | None = None) -> None:
        """Drop the partition's line; only if it is `beyond` that offset, if given."""
        path = f"{self._plan.log_directory}/{name}"
        if not self._disk.exists(path) or path in self._plan.dropped_lines:
            return
        try:
            offsets = decode_offsets(self._disk.read_file(path), path)
        except CorruptDataError:
            return
        tp = self._plan.topic_partition
        if tp in offsets and (beyond is None or not 0 <= offsets[tp] <= beyond):
            self._plan.dropped_lines.append(path)

    # --- whatever verification finds ---------------------------------------------------------

    def _mend(self) -> None:
        unit = plan(self._disk, [self._directory], with_records=True).units[0]
        options = unit.options.with_all_findings(_ALL_FINDINGS)
        self._verified = verify_unit(self._disk, VerifyUnit(unit.directory, options, unit.size))
        for finding in self._verified.findings:
            self._mend_one(finding)
        for name in _CHECKPOINTS:
            self._drop_line(name, beyond=self._verified.end_offset)

    def _mend_one(self, finding: Finding) -> None:
        rule, found = finding.rule, self._plan
        if rule in _CUT_OUT:
            self._cut_out(finding)
        elif rule is Rule.BATCH_OFFSET and finding.should_be is not None:
            self._edit(finding, INT64.pack(finding.should_be), 0)
        elif rule is Rule.BATCH_EPOCH:
            self._set_epochs(finding)
        elif rule is Rule.SEGMENT_NAME:
            self._rename(finding)
        elif rule is Rule.SEGMENT_OVERLAP and finding.first_offset is not None:
            self._cut_from(finding.path, finding.first_offset)
        elif rule.value.startswith(_INDEX_RULES):
            parsed = layout.parse_file_name(finding.path.rpartition("/")[2])
            found.indexes.add(parsed[0] if parsed is not None else 0)
        elif rule in (Rule.SNAPSHOT_CORRUPT, Rule.SNAPSHOT_STATE, Rule.SNAPSHOT_BOUNDS):
            found.snapshots = True
        elif rule.value.startswith("epoch-checkpoint-"):
            found.epochs = True
        elif rule is Rule.ORPHAN_FILE:
            found.moved_aside.append(finding.path)

    def _edit(self, finding: Finding, data: bytes, offset: int) -> None:
        position = (finding.position or 0) + offset
        edit = Edit(position, position + len(data), data, finding.message)
        self._plan.edits.setdefault(finding.path, []).append(edit)

    def _cut_out(self, finding: Finding) -> None:
        position, length = finding.position or 0, finding.length or 0
        first, last = finding.first_offset, finding.last_offset
        if finding.rule is Rule.DUPLICATE_OFFSETS:
            last = None
        elif finding.rule is Rule.OFFSET_ORDER:
            first = finding.should_be
        fill = b""
        if first is not None and last is not None and self._is_modern(finding.path, position):
            fill = filler(first, last, self._epoch_at(first))
        words = "offsets stay, without records" if fill else "nothing is left in its place"
        reason = f"{finding.rule.value} at {position}: {length} bytes are cut out, {words}"
        self._plan.edits.setdefault(finding.path, []).append(
            Edit(position, position + length, fill, reason)
        )

    def _is_modern(self, path: str, position: int) -> bool:
        """Whether v2 batches may stand here: one stands before."""
        assert self._verified is not None
        before = [header.magic for header in self._headers(path) if header.end <= position]
        # At the very start the rest of the log decides.
        return before[-1] == 2 if before else bool(self._verified.epochs)

    def _epoch_at(self, offset: int) -> int:
        epochs = self._verified.epochs if self._verified is not None else []
        i = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
        return epochs[max(0, i - 1)].epoch if epochs else 0

    def _set_epochs(self, finding: Finding) -> None:
        """Every batch of the run that is out of line."""
        first, last = finding.first_offset or 0, finding.last_offset or 0
        for header in self._headers(finding.path, finding.position or 0):
            if header.base_offset > last:
                break
            if header.magic == 2 and header.base_offset >= first:
                at = header.position + LOG_OVERHEAD
                data = INT32.pack(finding.should_be or 0)
                edit = Edit(at, at + 4, data, finding.message)
                self._plan.edits.setdefault(finding.path, []).append(edit)

    def _headers(self, path: str, position: int = 0) -> list[FileBatch]:
        records = FileRecords.open(self._disk, path)
        found: list[FileBatch] = []
        try:
            with suppress(CorruptDataError):
                found.extend(records.headers(position))
        finally:
            records.close()
        return found

    def _rename(self, finding: Finding) -> None:
        base = finding.first_offset or 0
        taken = self._path(base)
        is_free = base not in self._bases
        if not is_free and not self._disk.size(taken):
            # One that compaction has emptied: they change places.
            parsed = layout.parse_file_name(finding.path.rpartition("/")[2])
            self._plan.renames[taken] = parsed[0] if parsed is not None else 0
            is_free = True
        is_misnamed = any(
            it.rule is Rule.SEGMENT_NAME and it.path == taken
            for it in (self._verified.findings if self._verified is not None else ())
        )
        if is_free or is_misnamed:
            self._plan.renames[finding.path] = base
        else:
            self._plan.moved_aside.append(finding.path)

    def _cut_from(self, path: str, offset: int) -> None:
        """Cut the segment where batches of `offset` or above begin."""
        for header in self._headers(path):
            if header.base_offset >= offset:
                size = self._disk.size(path)
                reason = f"cut from offset {header.base_offset} on: the next segment has them"
                self._plan.edits.setdefault(path, []).append(
                    Edit(header.position, size, b"", reason)
                )
                return

    # --- what was asked for ------------------------------------------------------------------

    def _truncate(self, offset: int) -> None:
        if offset < self._bases[0]:
            raise UsageError(
                f"{self._directory} begins at offset {self._bases[0]}: nothing would be left",
                hint="delete the partition's directory instead",
            )
        for base in self._bases[1:]:
            if base >= offset:
                self._plan.moved_aside += [
                    self._path(base, suffix)
                    for suffix in layout.SEGMENT_SUFFIXES
                    if self._disk.exists(self._path(base, suffix))
                ]
        base = max(it for it in self._bases if it < offset or it == self._bases[0])
        path = self._path(base)
        records = FileRecords.open(self._disk, path)
        try:
            found = records.search_for_offset(offset, 0)
        finally:
            records.close()
        if found is not None:
            reason = f"cut at position {found[0]}: the log ends at offset {offset} or before"
            self._plan.edits[path] = [Edit(found[0], records.size, b"", reason)]
        elif not self._plan.moved_aside:
            raise UsageError(f"{self._directory}: the log ends before offset {offset} already")
        for name in _CHECKPOINTS:
            self._drop_line(name, beyond=offset)

    def _cut(self, first: int, end: int) -> None:
        for i, base in enumerate(self._bases):
            following = self._bases[i + 1] if i + 1 < len(self._bases) else None
            if base >= end or (following is not None and following <= first):
                continue
            path = self._path(base)
            touched = [
                header
                for header in self._headers(path)
                if header.base_offset < end and header.last_offset >= first
            ]
            if touched:
                self._plan.edits[path] = [_cut_of(touched)]
        if not self._plan.edits:
            raise UsageError(f"{self._directory}: has no batch with offsets {first} to {end - 1}")


def _cut_of(batches: list[FileBatch]) -> Edit:
    """One edit for batches that follow one another."""
    first, last = batches[0], batches[-1]
    fill = b""
    if first.magic == 2:
        fill = filler(first.base_offset, last.last_offset, max(0, first.partition_leader_epoch))
    reason = (
        f"offsets {first.base_offset} to {last.last_offset}: {len(batches)} batches are cut out"
        + (", offsets stay" if fill else "")
    )
    return Edit(first.position, last.end, fill, reason)
