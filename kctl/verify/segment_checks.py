"""One pass over one segment, which feeds every check of batches.

The pass belongs to a PartitionState, which continues from segment to segment: the chain of offsets,
the replay of producers, the runs of epochs.

Kafka 2.7: kafka.log.LogSegment.recover
"""

from collections.abc import Callable
from dataclasses import replace

from kctl.counts import counted
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.records.memory_records import batch_at
from kctl.runtime.disk import Disk
from kctl.storage.file_records import FileRecords
from kctl.storage.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name
from kctl.storage.offset_index import RELATIVE_OFFSET_MAX
from kctl.storage.transaction_index import AbortedTransaction
from kctl.verify.epoch_runs import EpochRuns
from kctl.verify.findings import KEPT_MAX, Findings
from kctl.verify.index_checks import OffsetIndexCheck, TimeIndexCheck, check_transaction_index
from kctl.verify.offset_chain import OffsetChain
from kctl.verify.producer_replay import ProducerReplay, marker_in
from kctl.verify.rules import Finding, Rule
from kctl.verify.segment_walk import WINDOW_BYTES, DamagedStretch, WalkedBatch, Window, walk
from kctl.verify.snapshot_checks import SnapshotChecks

# Bytes decoded at once when records are checked too.
RECORDS_WINDOW_BYTES = 8 * 1024 * 1024
# A preallocated file ends at a multiple of this.
_PREALLOCATED_UNIT = 4096

Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """How thorough a verification is."""

    # Also check the contents of batches, not only their headers and checksums.
    with_records: bool = True
    # The log directory was shut down cleanly: nothing may be padded.
    is_clean: bool = False
    # The log cleaner has compacted the log.
    is_compacted: bool = False
    # Findings of one rule in one file that are kept whole.
    findings_max: int = KEPT_MAX
    # Records below it are deleted, though their segment may still exist.
    log_start_offset: int = 0

    def with_all_findings(self, findings_max: int) -> "VerifyOptions":
        """Return a copy that keeps `findings_max` findings of one rule in one file, for callers
        that repair each."""
        return replace(self, findings_max=findings_max)


@dataclass(slots=True)
class PartitionState:
    """What a verification of a partition carries from segment to segment."""

    disk: Disk
    directory: str
    options: VerifyOptions
    progress: Progress
    findings: Findings
    chain: OffsetChain
    epochs: EpochRuns
    snapshots: SnapshotChecks
    replay: ProducerReplay
    # Whether the replay began with everything that a snapshot can contain.
    is_replay_whole: bool
    is_compacted: bool
    # Whether any time index exists: Kafka before 0.10 wrote none.
    has_time_indexes: bool
    # Whether batches could not be read: checks that depend on all of them are skipped.
    is_damaged: bool = False
    batches: int = 0
    size: int = 0

    @property
    def may_judge_producers(self) -> bool:
        """Return whether the replay covers everything in a snapshot or transaction index."""
        return self.is_replay_whole and not self.is_damaged and not self.is_compacted

    @property
    def has_gaps(self) -> bool:
        """Return whether the replay may have missed batches between others."""
        return self.is_damaged or self.is_compacted

    def path(self, base_offset: int, suffix: str) -> str:
        """Return a file of the directory."""
        return f"{self.directory}/{file_name(base_offset, suffix)}"


class SegmentPass:
    """One pass over one segment; `following` is the next one's base offset."""

    def __init__(
        self, state: PartitionState, base: int, following: int | None, records: FileRecords
    ) -> None:
        self._state = state
        self._base = base
        self._following = following
        self._is_last = following is None
        self._records = records
        self._path = records.path
        self._findings = state.findings
        self._chain = state.chain
        self._offset_index: OffsetIndexCheck | None = None
        self._time_index: TimeIndexCheck | None = None
        self._missing_indexes: list[Finding] = []
        self._aborted: list[AbortedTransaction] = []
        self._is_first = True
        self._is_misnamed = False
        self._last_offset = base - 1
        self._magic_max = 0

    def run(self) -> None:
        state = self._state
        self._begin()
        self._open_indexes()
        window_bytes = RECORDS_WINDOW_BYTES if state.options.with_records else WINDOW_BYTES
        done = 0
        for item in walk(self._records, self._base, window_bytes=window_bytes):
            if isinstance(item, Window):
                self._on_window(item)
                end = item.position + len(item.buffer)
            else:
                self._on_damage(item)
                end = item.end
            state.progress(end - done)
            done = end
        state.size += self._records.size
        self._finish()

    def _begin(self) -> None:
        """Continue the chain of offsets from the previous segment to this one's name."""
        self._chain.settle(self._base)
        expected = self._chain.next_offset
        if expected < self._base:
            self._chain.add_missing(
                Finding(
                    self._path, Rule.MISSING_SEGMENT,
                    f"offsets {expected} to {self._base - 1} are missing before this segment",
                    None, expected, self._base - 1,
                )
            )  # fmt: skip
            self._chain.next_offset = self._base

    def _open_indexes(self) -> None:
        state = self._state
        may_be_padded = self._is_last and not state.options.is_clean
        for suffix, missing in (
            (INDEX_SUFFIX, Rule.INDEX_MISSING), (TIME_INDEX_SUFFIX, Rule.TIME_INDEX_MISSING),
        ):  # fmt: skip
            path = state.path(self._base, suffix)
            disk = state.disk
            if not disk.exists(path):
                if self._records.size:
                    self._missing_indexes.append(Finding(path, missing, "there is no such file"))
            elif suffix == INDEX_SUFFIX:
                self._offset_index = OffsetIndexCheck(
                    disk, path, self._base, self._findings, may_be_padded=may_be_padded
                )
            else:
                self._time_index = TimeIndexCheck(
                    disk, path, self._base, self._findings, may_be_padded=may_be_padded,
                    indexed_position=self._indexed_position(),
                )  # fmt: skip

    def _indexed_position(self) -> int:
        """Return where the offset index ends; without one, every batch counts as indexed."""
        index = self._offset_index
        return self._records.size if index is None else index.last_position

    def _on_window(self, window: Window) -> None:
        state = self._state
        bad = self._unreadable_batches(window) if state.options.with_records else {}
        for batch in window.batches:
            reason = bad.get(batch.position) if bad else None
            self._on_batch(window, batch, reason)
        state.batches += len(window.batches)

    def _on_batch(self, window: Window, batch: WalkedBatch, reason: str | None) -> None:
        if self._is_first:
            self._check_name(window, batch)
        first = batch.base_offset
        is_offset_wrong = first < 0
        if batch.is_wrapper and not self._is_misnamed:
            first, last = self._offsets_in_wrapper(window, batch)
            is_offset_wrong |= last != batch.last_offset
            batch = batch._replace(base_offset=last, last_offset=last)
        # If the batch's offset is wrong, those of its records do not fit either.
        if reason is not None and not is_offset_wrong:
            self._findings.add(
                Finding(
                    self._path, Rule.RECORDS, reason, batch.position, first, batch.last_offset,
                    batch.size,
                )
            )  # fmt: skip
        if self._is_misnamed:
            return
        if first < 0 or batch.last_offset - self._base > RELATIVE_OFFSET_MAX:
            batch, first = self._out_of_range(batch, first)
        self._last_offset = max(self._last_offset, batch.last_offset)
        self._chain.on_batch(self._path, batch, first)
        if self._offset_index is not None:
            self._offset_index.on_batch(batch, first)
        if self._time_index is not None:
            self._time_index.on_batch(batch)
        self._magic_max = max(self._magic_max, batch.magic)
        if batch.magic == 2:
            self._on_modern(window, batch)
        else:
            state = self._state
            state.epochs.legacy_end_offset = batch.last_offset + 1

    def _out_of_range(self, batch: WalkedBatch, first: int) -> tuple[WalkedBatch, int]:
        """Return the batch with the offsets that it must have.

        A segment ends before such offsets are reached, so one that does not follow its predecessor
        is wrong, without proof by its successor.
        """
        expected, delta = self._chain.next_offset, batch.last_offset - first
        far = f"offset {batch.last_offset} is too far from the segment's {self._base}"
        place = batch.position, first, batch.last_offset, batch.size
        if first == expected or expected + delta - self._base > RELATIVE_OFFSET_MAX:
            self._findings.add(Finding(self._path, Rule.OFFSET_RANGE, far, *place))
            return batch, first
        # The offset in a wrapper's header is its last.
        should_be = expected + delta if batch.is_wrapper else expected
        message = f"{far}; it should be {should_be} or little more"
        self._findings.add(Finding(self._path, Rule.BATCH_OFFSET, message, *place, should_be))
        last = expected + delta
        base = last if batch.is_wrapper else expected
        return batch._replace(base_offset=base, last_offset=last), expected

    def _on_modern(self, window: Window, batch: WalkedBatch) -> None:
        """Check what only v2 batches have: epochs and producers; and counts that
        reveal compaction."""
        state = self._state
        if batch.record_count != batch.last_offset - batch.base_offset + 1:
            state.is_compacted = True
        if batch.leader_epoch >= 0:
            state.epochs.on_batch(self._path, batch)
        snapshots = state.snapshots
        if batch.base_offset >= snapshots.next_offset:
            snapshots.compare(
                batch.base_offset, state.replay, is_whole=state.may_judge_producers,
                has_gaps=state.has_gaps,
            )  # fmt: skip
        if batch.producer_id >= 0:
            marker = None
            if batch.is_control:
                marker = marker_in(window.buffer, batch.position - window.position)
            aborted = state.replay.apply(batch, marker)
            if aborted is not None:
                self._aborted.append(aborted)

    def _check_name(self, window: Window, batch: WalkedBatch) -> None:
        """Compare the file's name with its first batch, unless the second batch confirms the name:
        then the first one's offset is wrong."""
        self._is_first = False
        following = self._following
        second = window.batches[1] if len(window.batches) > 1 else batch
        if second.last_offset > self._base and (
            following is None or second.base_offset < following
        ):
            return
        is_below = batch.last_offset < self._base
        is_beyond = following is not None and batch.base_offset >= following
        if is_below or (is_beyond and batch.base_offset != self._chain.next_offset):
            self._is_misnamed = True
            self._findings.add(
                Finding(
                    self._path, Rule.SEGMENT_NAME,
                    f"its first batch has offset {batch.base_offset}, but the name {self._base}"
                    + (f" and the next segment begins at {following}" if following else ""),
                    batch.position, batch.base_offset, batch.last_offset,
                )
            )  # fmt: skip
            self._state.is_damaged = True
            self._offset_index = self._time_index = None

    def _offsets_in_wrapper(self, window: Window, batch: WalkedBatch) -> tuple[int, int]:
        """Return a wrapper's first and last offset, if records are checked; else plausible ones.

        In v0 the messages inside have their own offsets: the wrapper's must be that of the last.
        """
        last = batch.last_offset
        first = min(self._chain.next_offset, last)
        if not self._state.options.with_records:
            return first, last
        try:
            inner = batch_at(window.buffer, batch.position - window.position)
            offsets = [record.offset for record in inner.records()]
        except CorruptDataError:
            return first, last
        if offsets and offsets[-1] != last:
            self._findings.add(
                Finding(
                    self._path, Rule.BATCH_OFFSET,
                    f"the offset is {last}, it should be {offsets[-1]} as the inner messages prove",
                    batch.position, offsets[0], offsets[-1], batch.size, offsets[-1],
                )
            )  # fmt: skip
        return (offsets[0], offsets[-1]) if offsets else (first, last)

    def _unreadable_batches(self, window: Window) -> dict[int, str]:
        from kctl.verify.record_checks import unreadable_batches

        return unreadable_batches(window)

    def _on_damage(self, item: DamagedStretch) -> None:
        state = self._state
        rule, message = item.rule, item.reason
        last = item.next_offset - 1 if item.next_offset is not None else None
        is_at_end = item.next_offset is None and not self._is_misnamed
        if self._following is not None and is_at_end:
            last = self._following - 1
        length = item.end - item.position
        if rule is Rule.ZERO_TAIL and self._may_be_preallocated(item):
            rule = Rule.PREALLOCATED
        if rule in (Rule.ZERO_TAIL, Rule.ZERO_BLOCK, Rule.PREALLOCATED):
            message = f"{counted(length, 'byte')} of NULs"
        if last is not None and last < item.expected_offset:
            last = None
        self._findings.add(
            Finding(
                self._path, rule, message, item.position, item.expected_offset, last, length
            )
        )  # fmt: skip
        if rule is not Rule.PREALLOCATED:
            state.is_damaged = True
        if self._is_misnamed:
            return
        if self._offset_index is not None:
            self._offset_index.on_damage(item.end)
        if self._time_index is not None and rule is not Rule.PREALLOCATED:
            self._time_index.on_damage()
        if last is not None:
            self._chain.jump(last + 1)

    def _may_be_preallocated(self, item: DamagedStretch) -> bool:
        is_clean = self._state.options.is_clean
        return self._is_last and not is_clean and item.end % _PREALLOCATED_UNIT == 0

    def _finish(self) -> None:
        state = self._state
        if self._is_misnamed:
            self._report_missing_indexes()
            if self._following is not None:
                self._chain.jump(self._following)
            return
        self._report_missing_indexes()
        if self._offset_index is not None:
            self._offset_index.finish(self._records.size, self._last_offset, is_last=self._is_last)
        if self._time_index is not None:
            self._time_index.finish(self._last_offset, is_last=self._is_last)
        if not state.is_damaged:
            check_transaction_index(
                state.disk, state.path(self._base, TXN_INDEX_SUFFIX), self._base,
                self._aborted, self._chain.next_offset, self._findings,
                is_complete=state.may_judge_producers,
            )  # fmt: skip
        following = self._following
        if following is not None and self._chain.next_offset > following:
            self._check_overlap(following)

    def _report_missing_indexes(self) -> None:
        """Report the index files that are missing; Kafka before 0.10 had no time indexes."""
        is_old = not self._magic_max and not self._state.has_time_indexes
        for finding in self._missing_indexes:
            if not is_old or finding.rule is not Rule.TIME_INDEX_MISSING:
                self._findings.add(finding)

    def _check_overlap(self, following: int) -> None:
        if self._findings.has(self._path, Rule.BATCH_OFFSET):
            return
        self._findings.add(
            Finding(
                self._path, Rule.SEGMENT_OVERLAP,
                f"it continues to offset {self._chain.next_offset - 1}, the next segment begins at "
                f"{following}",
                None, following, self._chain.next_offset - 1,
            )
        )  # fmt: skip
        self._chain.next_offset = following
