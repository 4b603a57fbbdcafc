"""OffsetMap: translates offsets of one partition between source and target, exactly. Pure.

The map is a list of runs in the order of their source offsets, none of which overlap. What lies
between two runs was not copied: control batches, aborted transactions, records that compaction had
removed, records that were lost. A consumer whose next offset is `o` has read every record before
`o` and none from `o` on, so its offset translates to the target's offset of the first copied record
at or after `o`; at the end of the map, to the offset after the last copied record.

A mirror that copies at least once may copy records twice: the later run then replaces the offsets
that it repeats. A run of no offsets translates nothing: it says where the mirror begins.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace

from kctl.mirror.formats import MappedRun


class OffsetMap:
    """The runs of one source partition, of its last copy."""

    def __init__(self, runs: Iterable[MappedRun] = ()) -> None:
        self.runs: list[MappedRun] = []
        self._starts: list[int] = []
        # Where the mirror begins; None if that was not written, or is compacted away.
        self.begin: MappedRun | None = None
        for run in runs:
            self.add(run)

    @property
    def copy(self) -> int:
        """Return the number of the copy that the map is of."""
        return self.runs[-1].copy if self.runs else 0

    @property
    def source_end(self) -> int | None:
        """Return the source offset after the last copied record; None if the map is empty."""
        return self.runs[-1].source_end if self.runs else None

    def covers(self, offset: int) -> bool:
        """Return whether the map is all that was copied from source offset `offset` on."""
        begin = self.begin
        return begin is not None and begin.copy == self.copy and begin.source_offset <= offset

    def add(self, run: MappedRun) -> None:
        """Add a run that was read or written after the others."""
        if run.count <= 0:
            self.begin = run
            return
        if self.runs and run.copy != self.copy:
            if run.copy < self.copy:
                return
            self.runs, self._starts = [], []
        if not self.runs or run.source_offset >= self.runs[-1].source_end:
            self.runs.append(run)
            self._starts.append(run.source_offset)
            return
        self._replace(run)

    def keep_last(self) -> None:
        """Forget all runs but the last one. Runs that are added later still replace what of it they
        repeat."""
        del self.runs[:-1]
        del self._starts[:-1]

    def _replace(self, run: MappedRun) -> None:
        """Put `run` in the place of what it overlaps."""
        first = max(bisect_right(self._starts, run.source_offset) - 1, 0)
        after = first
        kept: list[MappedRun] = []
        while after < len(self.runs) and self.runs[after].source_offset < run.source_end:
            old = self.runs[after]
            kept += _outside(old, run)
            after += 1
        pieces = sorted([*kept, run], key=lambda each: each.source_offset)
        self.runs[first:after] = pieces
        self._starts[first:after] = [each.source_offset for each in pieces]

    def run_before(self, offset: int) -> MappedRun | None:
        """Return the run of the last copied record before source offset `offset`."""
        index = bisect_right(self._starts, offset - 1) - 1
        return self.runs[index] if index >= 0 else None

    def to_target(self, offset: int) -> int | None:
        """Return the target offset of the first copied record at or after source offset `offset`;
        at the end, the offset after the last copied record. None if nothing was copied."""
        if not self.runs:
            return None
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return self.runs[0].target_offset
        run = self.runs[index]
        if offset < run.source_end:
            return run.target_offset + offset - run.source_offset
        if index + 1 < len(self.runs):
            return self.runs[index + 1].target_offset
        return run.target_end

    def to_source(self, offset: int) -> int | None:
        """Return the source offset of the first record that was copied to target offset `offset` or
        after it; at the end, the offset after the last one. None if nothing was copied."""
        if not self.runs:
            return None
        # Runs that were copied twice may leave the order of the target.
        following = [run for run in self.runs if run.target_end > offset]
        if not following:
            return max(self.runs, key=lambda each: each.target_end).source_end
        run = min(following, key=lambda each: each.target_offset)
        return run.source_offset + max(offset - run.target_offset, 0)


def joined(runs: Iterable[MappedRun]) -> list[MappedRun]:
    """Return the runs, with those joined that continue each other in source and target."""
    result: list[MappedRun] = []
    for run in runs:
        last = result[-1] if result else None
        if last is not None and continues(last, run):
            result[-1] = replace(last, count=last.count + run.count)
        else:
            result.append(run)
    return result


def continues(run: MappedRun, following: MappedRun) -> bool:
    """Return whether `following` begins where `run` ends, on both sides."""
    return (
        run.source == following.source
        and run.target_topic == following.target_topic
        and run.copy == following.copy
        and run.source_end == following.source_offset
        and run.target_end == following.target_offset
    )


def _outside(old: MappedRun, new: MappedRun) -> list[MappedRun]:
    """Return what of `old` lies before and after `new`."""
    parts = []
    if old.source_offset < new.source_offset:
        parts.append(replace(old, count=min(old.count, new.source_offset - old.source_offset)))
    if old.source_end > new.source_end:
        skipped = max(new.source_end - old.source_offset, 0)
        parts.append(
            replace(
                old,
                source_offset=old.source_offset + skipped,
                target_offset=old.target_offset + skipped,
                count=old.count - skipped,
            )
        )
    return parts
