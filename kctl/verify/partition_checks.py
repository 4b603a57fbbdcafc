"""Verifies one partition's directory: its segments in order, and the files beside them.

One pass over the batches feeds every check: the chain of offsets, the indexes, the replay of
producers, the runs of leader epochs. After damaged bytes the pass continues, and checks that depend
on them are skipped. Nothing is changed, and memory does not grow with the log.

No check is stricter than Apache Kafka's normal operation: after `kill -9` the last segment's
indexes are padded; compaction leaves gaps, removes markers and producers; retention removes what
the first batches would explain; producers that were silent too long expire.

Kafka 2.7: kafka.log.LogSegment.recover, kafka.log.Log.loadSegmentFiles
"""

from kctl.errors import StorageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.constants import INTERNAL_TOPICS
from kctl.runtime.disk import Disk
from kctl.storage.checkpoint import EpochEntry
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PASSING_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    file_name,
    parse_directory_name,
    parse_file_name,
)
from kctl.verify.epoch_runs import EpochRuns, check_epochs, first_epoch_start
from kctl.verify.findings import Findings
from kctl.verify.offset_chain import OffsetChain
from kctl.verify.old_log_checks import verify_old_log
from kctl.verify.producer_replay import ProducerReplay
from kctl.verify.rules import Finding, Rule
from kctl.verify.segment_checks import PartitionState, Progress, SegmentPass, VerifyOptions
from kctl.verify.snapshot_checks import SnapshotChecks


@dataclass(frozen=True, slots=True)
class VerifiedPartition:
    """The result of verifying a partition."""

    directory: str
    # First and end of the offsets in the segments; None without segments.
    start_offset: int | None
    end_offset: int
    segments: int
    batches: int
    size: int
    findings: list[Finding]
    # Where leader epochs begin, according to the batches.
    epochs: list[EpochEntry]


def verify_partition(
    disk: Disk, directory: str, options: VerifyOptions, progress: Progress = bool
) -> VerifiedPartition:
    """Verify a partition's directory; `progress` receives the number of bytes read in each step."""
    return _PartitionVerifier(disk, directory, options, progress).run()


class _PartitionVerifier:
    def __init__(
        self, disk: Disk, directory: str, options: VerifyOptions, progress: Progress
    ) -> None:
        self._disk = disk
        self._directory = directory.rstrip("/")
        self._names = disk.list(self._directory)
        self._bases = self._offsets_of(LOG_SUFFIX)
        self._epochs_path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
        self._findings = Findings(options.findings_max)
        start = self._bases[0] if self._bases else 0
        snapshots = SnapshotChecks(
            disk, self._directory, self._offsets_of(SNAPSHOT_SUFFIX), self._findings
        )
        self._state = PartitionState(
            disk, self._directory, options, progress, self._findings,
            OffsetChain(start, self._findings),
            EpochRuns(first_epoch_start(disk, self._epochs_path)), snapshots,
            ProducerReplay(snapshots.entries_at(start)),
            is_replay_whole=start == 0 or snapshots.is_usable(start),
            is_compacted=options.is_compacted or self._topic() in INTERNAL_TOPICS,
            has_time_indexes=bool(self._offsets_of(TIME_INDEX_SUFFIX)),
        )  # fmt: skip

    def _topic(self) -> str:
        name = parse_directory_name(self._directory.rpartition("/")[2])
        return name.topic_partition.topic if name is not None else ""

    def _offsets_of(self, suffix: str) -> list[int]:
        names = map(parse_file_name, self._names)
        return sorted(found[0] for found in names if found and found[1] == suffix)

    def run(self) -> VerifiedPartition:
        state = self._state
        old = verify_old_log(
            self._disk, self._directory, self._findings,
            with_records=state.options.with_records, progress=state.progress,
        )  # fmt: skip
        for i, base in enumerate(self._bases):
            self._check_segment(base, self._bases[i + 1] if i + 1 < len(self._bases) else None)
        state.chain.settle(None)
        if not state.is_compacted:
            state.chain.report_missing()
        end = state.chain.next_offset
        if old.segments and not self._bases:
            end = old.segments[-1].end_offset
        if self._bases:
            state.snapshots.finish(
                end, state.replay, is_whole=state.may_judge_producers, has_gaps=state.has_gaps
            )
            check_epochs(
                self._disk, self._epochs_path, state.epochs, self._findings,
                log_start_offset=state.options.log_start_offset, end_offset=end,
                may_begin_late=state.is_compacted or not state.options.is_clean,
            )  # fmt: skip
        self._check_other_files()
        bases = self._bases or [it.base_offset for it in old.segments]
        return VerifiedPartition(
            self._directory, bases[0] if bases else None, end,
            len(self._bases) + len(old.segments), state.batches + old.entries,
            state.size + old.size, self._findings.all(), state.epochs.entries(),
        )  # fmt: skip

    def _check_segment(self, base: int, following: int | None) -> None:
        path = self._state.path(base, LOG_SUFFIX)
        try:
            records = FileRecords.open(self._disk, path)
            try:
                SegmentPass(self._state, base, following, records).run()
            finally:
                records.close()
        except StorageError as error:
            self._findings.add(Finding(path, Rule.UNREADABLE, str(error)))
            self._state.is_damaged = True

    def _check_other_files(self) -> None:
        known = set(self._bases)
        lost: set[int] = set()
        for name in sorted(self._names):
            found = parse_file_name(name)
            if found is None:
                continue
            offset, suffix = found
            path = f"{self._directory}/{name}"
            if suffix.endswith(PASSING_SUFFIXES):
                message = "a file that is being added or removed"
                self._findings.add(Finding(path, Rule.LEFTOVER_FILE, message))
            elif suffix in INDEX_SUFFIXES and offset not in known:
                message = "there is no .log of this name"
                self._findings.add(Finding(path, Rule.ORPHAN_FILE, message))
                if suffix == INDEX_SUFFIX or (not self._bases and offset not in lost):
                    lost.add(offset)
                    self._check_missing(offset)

    def _check_missing(self, base: int) -> None:
        """Report a segment of which only the index is left, unless a gap between offsets reported
        it."""
        name = file_name(base, LOG_SUFFIX)
        if any(f"{name}{suffix}" in self._names for suffix in PASSING_SUFFIXES):
            return
        is_between = bool(self._bases) and self._bases[0] < base < self._bases[-1]
        if self._state.is_compacted or not is_between:
            message = "its index exists, the segment does not"
            if not self._bases:
                message = "the partition has no .log at all, only an index of this one"
            path = f"{self._directory}/{name}"
            self._findings.add(Finding(path, Rule.MISSING_SEGMENT, message, None, base))
