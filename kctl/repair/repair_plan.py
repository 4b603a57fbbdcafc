"""Plans the repair of a partition's directory: the changes and their reasons. Changes nothing.

By default a plan repairs what verification finds. Damaged bytes are removed and their offsets stay;
batches that occur twice, in the wrong place or under a wrong offset are corrected as `placement`
decides; derived files are rebuilt from batches. Missing segments and offsets cannot be repaired,
unless another replica has them (`replica`).

Kafka 2.7 has no such tool; kafka.log.LogSegment.recover truncates the log instead.
"""

from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from dataclasses import field
from typing import NamedTuple

from kctl.counts import are, counted, offset_range
from kctl.errors import CorruptDataError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.repair.batch_table import BatchTable, LogTooLargeError, read_table
from kctl.repair.log_layout import Layout, lay_out
from kctl.repair.lost_markers import (
    LostMarker,
    damaged_markers,
    describe,
    find_lost_markers,
    holes_between,
    read_evidence,
    transactional_batches,
)
from kctl.repair.old_log_plan import plan_old_log
from kctl.repair.placement import new_order, place
from kctl.repair.replica import Borrowed, Replica, borrow, lost_ranges
from kctl.repair.segment_edit import Edit, Extent, Piece, Step, edited, filler
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.checkpoint import EpochEntry, decode_epochs, decode_offsets
from kctl.storage.file_records import FileBatch, FileRecords
from kctl.storage.segment_files import segment_base_offsets
from kctl.storage.segments07 import has_old_files
from kctl.verify.rules import Finding, Rule
from kctl.verify.verification import VerifyUnit, plan, verify_unit

# Batches must change.
_RECORD_RULES = frozenset({
    Rule.BATCH_CRC, Rule.BATCH_SIZE, Rule.BATCH_MAGIC, Rule.BATCH_OFFSET, Rule.BATCH_EPOCH,
    Rule.RECORDS, Rule.OFFSET_RANGE, Rule.NONSENSE, Rule.ZERO_BLOCK, Rule.ZERO_TAIL,
    Rule.PREALLOCATED, Rule.TORN_TAIL, Rule.DUPLICATE_OFFSETS, Rule.OFFSET_ORDER,
    Rule.SEGMENT_NAME, Rule.SEGMENT_OVERLAP,
})  # fmt: skip
# A marker may be missing: an index or a snapshot refers to it, or offsets are missing.
_MARKER_RULES = frozenset({
    Rule.MISSING_OFFSETS, Rule.TXN_INDEX_ENTRY, Rule.TXN_INDEX_SHORT, Rule.SNAPSHOT_STATE,
    Rule.SNAPSHOT_BOUNDS,
})  # fmt: skip
_INDEX_RULES = ("index-", "timeindex-", "txnindex-")
# A repair whose new files are complete; its journal is carried out before anything else.
JOURNAL_FILE = "kctl-repair-journal"
_ALL_FINDINGS = 1_000_000
# More than any offset.
_OFFSET_MAX = 2**63

__all__ = ["RepairPlan", "RepairRequest", "plan_repair"]


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """The requested repairs; without any, everything that verification reports is repaired."""

    rebuild_indexes: bool = False
    rebuild_snapshots: bool = False
    rebuild_epochs: bool = False
    drop_recovery_point: bool = False
    # The new end of the log.
    truncate_to: int | None = None
    # Offsets to remove; the end is exclusive.
    cut: tuple[int, int] | None = None
    # Where batches that are lost are taken from.
    replica: Replica | None = None

    @property
    def is_automatic(self) -> bool:
        """Return whether no repair is requested explicitly."""
        return self == RepairRequest(replica=self.replica)


@dataclass(slots=True)
class RepairPlan:
    """The changes to one partition's directory."""

    directory: str
    topic_partition: TopicPartition | None
    # New contents of segments, by path of the .log.
    segments: dict[str, list[Piece]] = field(default_factory=dict)
    # Descriptions of the changes to records.
    record_steps: list[Step] = field(default_factory=list)
    # Batches without a place in the log; the backup keeps each in a separate file.
    set_aside: list[tuple[int, Extent]] = field(default_factory=list)
    # Offsets whose records this log loses or has lost, both inclusive; the last is None if it is
    # not known. Another replica may have them.
    lost: list[tuple[int, int | None]] = field(default_factory=list)
    # Problems that cannot be repaired.
    notes: list[str] = field(default_factory=list)
    # The plan only completes an earlier repair that was interrupted.
    is_resumed: bool = False
    # Base offsets of segments whose indexes are rebuilt.
    indexes: set[int] = field(default_factory=set)
    snapshots: bool = False
    epochs: bool = False
    # Checkpoints of the log directory from which this partition's line is removed.
    dropped_lines: list[str] = field(default_factory=list)
    # Files that are moved to the backup.
    moved_aside: list[str] = field(default_factory=list)

    @property
    def log_directory(self) -> str:
        """Return the path of the log directory that contains the partition's."""
        return self.directory.rpartition("/")[0] or "."

    @property
    def changes_records(self) -> bool:
        """Return whether a .log or .kafka changes; a broker must then recover the partition."""
        logs = (layout.LOG_SUFFIX, layout.OLD_LOG_SUFFIX)
        return bool(self.segments) or any(it.endswith(logs) for it in self.moved_aside)

    def steps(self) -> list[Step]:
        """Describe the plan in the order of its execution; empty if nothing changes."""
        if self.is_resumed:
            return [Step("complete", self.directory, "a repair that was interrupted")]
        steps = sorted(self.record_steps, key=lambda step: step.path)
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


def ranges_to_take(disk: Disk, directory: str) -> list[tuple[int, int | None]]:
    """Return the ranges of offsets that another replica has to provide for a repair, with their
    neighbours; see `lost_ranges`."""
    return _Planner(disk, directory.rstrip("/"), RepairRequest()).ranges_to_take()


def plan_repair(disk: Disk, directory: str, request: RepairRequest) -> RepairPlan:
    """Return the plan for one partition's directory; UsageError if the request does not apply
    there."""
    return _Planner(disk, directory.rstrip("/"), request).run()


class _Span(NamedTuple):
    """A batch, and its first offset, which the header of a v0 or v1 wrapper does not tell."""

    batch: FileBatch
    first_offset: int


class _Planner:
    def __init__(self, disk: Disk, directory: str, request: RepairRequest) -> None:
        self._disk = disk
        self._request = request
        name = layout.parse_directory_name(directory.rpartition("/")[2])
        tp = name.topic_partition if name is not None else None
        self._plan = RepairPlan(directory, tp)
        self._directory = directory
        self._bases = segment_base_offsets(disk, directory)

    def run(self) -> RepairPlan:
        found = self._plan
        if self._disk.exists(f"{self._directory}/{JOURNAL_FILE}"):
            found.is_resumed = True
            return found
        has_old_log = has_old_files(self._disk, self._directory)
        if has_old_log:
            self._repair_old_log()
        if self._bases or not has_old_log:
            self._repair_log()
        return found

    def _repair_log(self) -> None:
        request, found = self._request, self._plan
        if not self._bases and not request.is_automatic:
            raise UsageError(f"{self._directory}: contains no segments")
        if request.is_automatic:
            self._repair_findings()
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

    def _repair_old_log(self) -> None:
        """Plan the repair of the `.kafka` files; UsageError for requests that only concern other
        formats."""
        request, found = self._request, self._plan
        can_be_done = request == RepairRequest(truncate_to=request.truncate_to)
        if not can_be_done or (self._bases and request.truncate_to is not None):
            raise UsageError(
                f"{self._directory}: contains files of Kafka 0.7, which have no offsets to cut, no "
                "indexes and no replicas",
                hint="repair-log repairs them without options, or with --truncate-to",
            )
        old = plan_old_log(self._disk, self._directory, truncate_to=request.truncate_to)
        found.segments |= old.segments
        found.record_steps += old.steps
        found.moved_aside += old.moved_aside
        found.notes += old.notes

    def _path(self, base: int, suffix: str = layout.LOG_SUFFIX) -> str:
        return f"{self._directory}/{layout.file_name(base, suffix)}"

    def _follow_up(self) -> None:
        """Rebuild derived files of batches that change."""
        found = self._plan
        found.indexes -= {_base_offset(path) for path in found.moved_aside}
        # A segment that is missing but for its index, which is moved aside, may come back.
        found.indexes |= {
            _base_offset(path) for path in found.segments if path.endswith(layout.LOG_SUFFIX)
        }
        found.snapshots = found.epochs = True
        self._drop_line(layout.RECOVERY_POINT_CHECKPOINT)

    def _drop_line(self, name: str, beyond: int | None = None) -> None:
        """Drop the partition's line; with `beyond`, only if it is beyond that offset."""
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

    def _repair_findings(self) -> None:
        unit = plan(self._disk, [self._directory], with_records=True).units[0]
        options = unit.options.with_all_findings(_ALL_FINDINGS)
        verified = verify_unit(self._disk, VerifyUnit(unit.directory, options, unit.size))
        findings = verified.findings
        rules = {finding.rule for finding in findings}
        if rules & (_RECORD_RULES | _MARKER_RULES) or self._request.replica is not None:
            self._repair_records(findings)
        if self._request.replica is None:
            self._plan.lost += [
                (finding.first_offset, finding.last_offset)
                for finding in findings
                if finding.rule is Rule.MISSING_SEGMENT and finding.first_offset is not None
            ]
        for finding in findings:
            self._repair_file(finding)
        if not self._plan.changes_records:
            # The end of the log is known only after its batches are in order.
            for name in layout.OFFSET_CHECKPOINTS:
                self._drop_line(name, beyond=verified.end_offset)

    def _repair_records(self, findings: list[Finding]) -> None:
        unreadable = {
            (finding.path, finding.position or 0)
            for finding in findings
            if finding.rule is Rule.RECORDS
        }
        rules = {
            (finding.path, finding.position): finding.rule.value
            for finding in findings
            if finding.position is not None
        }
        try:
            table = read_table(self._disk, self._directory, self._bases, unreadable)
        except LogTooLargeError as error:
            self._plan.notes.append(f"{error}: its batches are left as they are")
            return
        placements = place(table, self._known_end())
        borrowed = None
        if self._request.replica is not None:
            has_wrong_epochs = any(finding.rule is Rule.BATCH_EPOCH for finding in findings)
            borrowed = borrow(
                self._disk, self._request.replica, table, placements, self._known_start(),
                has_wrong_epochs=has_wrong_epochs,
            )  # fmt: skip
        lost = self._lost_markers(table, new_order(table, placements), borrowed)
        if borrowed is None or not borrowed.rows:
            self._plan.notes += damaged_markers(self._disk, table)
        restored = [it for it in lost if it.offset is not None]
        self._plan.notes += [describe(it) for it in lost if it.offset is None]
        checkpoint = self._checkpoint_entries()
        self._adopt(lay_out(table, placements, rules, checkpoint, restored, borrowed))

    def ranges_to_take(self) -> list[tuple[int, int | None]]:
        """See the function."""
        table = read_table(self._disk, self._directory, self._bases, set())
        return lost_ranges(table, place(table, self._known_end()), self._known_start())

    def _known_start(self) -> int:
        """Return the lowest offset that the log has, or is known to have had since it was last
        trimmed: an index without a segment and the leader epoch checkpoint tell."""
        names = map(layout.parse_file_name, self._disk.list(self._directory))
        found = [
            parsed[0]
            for parsed in names
            if parsed is not None and parsed[1] in (layout.LOG_SUFFIX, *layout.INDEX_SUFFIXES)
        ]
        found += [entry.start_offset for entry in (self._checkpoint_entries() or [])[:1]]
        start = min(found, default=0)
        path = f"{self._plan.log_directory}/{layout.LOG_START_OFFSET_CHECKPOINT}"
        tp = self._plan.topic_partition
        if tp is not None and self._disk.exists(path):
            with suppress(CorruptDataError):
                start = max(start, decode_offsets(self._disk.read_file(path), path).get(tp, 0))
        return start

    def _lost_markers(
        self, table: BatchTable, order: list[tuple[int, int]], borrowed: Borrowed | None
    ) -> list[LostMarker]:
        batches = transactional_batches(self._disk, table, order)
        taken = list(zip(borrowed.spans, borrowed.rows, strict=True)) if borrowed else []
        if borrowed is not None:
            theirs = [(span[0], row) for span, row in taken]
            batches += transactional_batches(self._disk, borrowed.table, theirs)
            batches.sort(key=lambda batch: batch.first_offset)
        if not batches:
            return []
        tp = self._plan.topic_partition
        evidence = read_evidence(self._disk, self._directory, tp)
        first, last = table.first_offsets, table.last_offsets
        spans = [(start, start + last[i] - first[i]) for start, i in order]
        spans = sorted(spans + [span for span, _ in taken])
        return find_lost_markers(batches, holes_between(spans, evidence), evidence)

    def _adopt(self, new: Layout) -> None:
        found = self._plan
        found.segments = new.segments
        found.record_steps += new.steps
        found.set_aside = new.set_aside
        found.lost += new.lost
        for path in new.removed:
            base = _base_offset(path)
            found.moved_aside += [
                self._path(base, suffix)
                for suffix in layout.SEGMENT_SUFFIXES
                if self._disk.exists(self._path(base, suffix))
            ]

    def _known_end(self) -> int:
        """Return an offset that the log once reached, according to checkpoints and file names."""
        names = map(layout.parse_file_name, self._disk.list(self._directory))
        found = [parsed[0] for parsed in names if parsed is not None]
        tp = self._plan.topic_partition
        for name in (layout.RECOVERY_POINT_CHECKPOINT, layout.HIGH_WATERMARK_CHECKPOINT):
            path = f"{self._plan.log_directory}/{name}"
            if not self._disk.exists(path):
                continue
            with suppress(CorruptDataError):
                offsets = decode_offsets(self._disk.read_file(path), path)
                found += [offset for other, offset in offsets.items() if other == tp]
        return max(found, default=0)

    def _checkpoint_entries(self) -> list[EpochEntry] | None:
        """Return the entries of the leader epoch checkpoint; None if it cannot be read."""
        path = f"{self._directory}/{layout.LEADER_EPOCH_CHECKPOINT}"
        try:
            data = self._disk.read_file(path) if self._disk.exists(path) else b""
            return decode_epochs(data, path) if data else []
        except CorruptDataError:
            return None

    def _repair_file(self, finding: Finding) -> None:
        """Repair a file that derives from batches."""
        rule, found = finding.rule, self._plan
        if rule.value.startswith(_INDEX_RULES):
            found.indexes.add(_base_offset(finding.path))
        elif rule in (Rule.SNAPSHOT_CORRUPT, Rule.SNAPSHOT_STATE, Rule.SNAPSHOT_BOUNDS):
            found.snapshots = True
        elif rule.value.startswith("epoch-checkpoint-"):
            found.epochs = True
        elif rule is Rule.ORPHAN_FILE and finding.path not in found.moved_aside:
            found.moved_aside.append(finding.path)

    # --- what was asked for ------------------------------------------------------------------

    def _edit(self, path: str, edits: list[Edit]) -> None:
        self._plan.segments[path] = edited(path, self._disk.size(path), edits)
        self._plan.record_steps += [Step("edit", path, edit.reason) for edit in edits]

    def _overlapping(self, base: int, first: int, end: int) -> Generator[_Span, None, None]:
        """Yield the batches of a segment that have offsets in [first, end); CorruptDataError at a
        damaged header."""
        records = FileRecords.open(self._disk, self._path(base))
        lowest = base
        try:
            for batch in records.headers():
                if batch.last_offset >= first:
                    span = _Span(batch, records.first_offset(batch, lowest))
                    if span.first_offset < end:
                        yield span
                lowest = batch.last_offset + 1
        finally:
            records.close()

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
        lost, log_end = offset, offset
        with closing(self._overlapping(base, offset, _OFFSET_MAX)) as spans:
            found = next(spans, None)
        if found is not None:
            # A batch that contains the offset goes as a whole.
            lost, log_end = found.first_offset, min(offset, found.first_offset)
            position = found.batch.position
            reason = f"truncated at position {position}: the log ends at offset {log_end} or before"
            self._edit(path, [Edit(position, self._disk.size(path), b"", reason)])
        elif not self._plan.moved_aside:
            raise UsageError(f"{self._directory}: the log ends before offset {offset} already")
        for name in layout.OFFSET_CHECKPOINTS:
            self._drop_line(name, beyond=log_end)
        self._plan.lost.append((lost, None))

    def _cut(self, first: int, end: int) -> None:
        for i, base in enumerate(self._bases):
            following = self._bases[i + 1] if i + 1 < len(self._bases) else None
            if base >= end or (following is not None and following <= first):
                continue
            spans: list[_Span] = []
            with suppress(CorruptDataError):
                spans.extend(self._overlapping(base, first, end))
            runs = _runs(spans)
            if runs:
                self._edit(self._path(base), [_cut_of(run) for run in runs])
                self._plan.lost += [_offsets_of(run) for run in runs]
        if not self._plan.segments:
            raise UsageError(f"{self._directory}: has no batch with {offset_range(first, end - 1)}")


def _runs(spans: Iterable[_Span]) -> list[list[_Span]]:
    """Return lists of batches without another batch between them."""
    runs: list[list[_Span]] = []
    for span in spans:
        if runs and runs[-1][-1].batch.end == span.batch.position:
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


def _offsets_of(run: list[_Span]) -> tuple[int, int]:
    """Return the first and the last offset of batches, whose order may be wrong."""
    return min(it.first_offset for it in run), max(it.batch.last_offset for it in run)


def _cut_of(run: list[_Span]) -> Edit:
    """Return one edit for consecutive batches."""
    batch, (first, last) = run[0].batch, _offsets_of(run)
    fill = filler(first, last, max(0, batch.partition_leader_epoch)) if batch.magic == 2 else b""
    removed = f"{counted(len(run), 'batch')} {are(len(run))} removed"
    reason = f"{offset_range(first, last)}: {removed}" + (", offsets stay" if fill else "")
    return Edit(batch.position, run[-1].batch.end, fill, reason)


def _base_offset(path: str) -> int:
    """Return the offset in the name of a segment's file."""
    parsed = layout.parse_file_name(path.rpartition("/")[2])
    return parsed[0] if parsed is not None else 0
