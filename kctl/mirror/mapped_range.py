"""What a proof compares of a partition that a mirror with a map has copied: RunMapping, and the
offsets on both sides that the mirror has done."""

import numpy as np

from kctl.mirror.formats import MirrorPosition
from kctl.mirror.offset_map import OffsetMap
from kctl.records.columnar_batches import Int64s


class RunMapping:
    """The runs of a map as arrays, which translate many offsets at once; see OffsetMapping."""

    def __init__(self, offsets: OffsetMap) -> None:
        runs = offsets.runs
        self._starts = np.array([run.source_offset for run in runs], np.int64)
        self._ends = np.array([run.source_end for run in runs], np.int64)
        self._targets = np.array([run.target_offset for run in runs], np.int64)

    def target_offsets(self, source_offsets: Int64s) -> Int64s:
        """Return the offset of each record at the target; -1 for one that was not copied."""
        if not len(self._starts):
            return np.full(len(source_offsets), -1, np.int64)
        at = np.searchsorted(self._starts, source_offsets, side="right") - 1
        is_copied = (at >= 0) & (source_offsets < self._ends[at])
        there: Int64s = source_offsets - self._starts[at] + self._targets[at]
        return np.where(is_copied, there, -1)


def mapped_ranges(
    offsets: OffsetMap,
    position: MirrorPosition | None,
    source: tuple[int, int],
    target: tuple[int, int],
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the parts of both ranges (end exclusive) that the mirror has copied.

    `position` was read before the map, which therefore covers it. What only one side still holds is
    left out; so are records before the mirror's beginning and after its position. Without runs, the
    target has nothing of what precedes the position.
    """
    if not offsets.runs:
        return _passed(offsets, position, source), (target[0], target[0])
    begin = offsets.runs[0]
    done = offsets.source_end if position is None else position.offset
    first = max(source[0], begin.source_offset)
    if offsets.begin is not None and offsets.begin.copy == offsets.copy:
        # The map says where the mirror began: what precedes the first run should have been copied.
        first = max(source[0], min(first, offsets.begin.source_offset))
    if target[0] > begin.target_offset:
        first = max(first, offsets.to_source(target[0]) or 0)
    end = max(first, min(source[1], done or 0))
    there = max(target[0], offsets.to_target(first) or 0)
    return (first, end), (there, max(there, min(target[1], offsets.to_target(end) or 0)))


def _passed(
    offsets: OffsetMap, position: MirrorPosition | None, source: tuple[int, int]
) -> tuple[int, int]:
    """Return what of the source a mirror without runs has passed: what it should have copied."""
    first, done = source[0], 0 if position is None else position.offset
    begin = offsets.begin
    if begin is not None and position is not None and begin.copy == position.copy:
        first = max(first, begin.source_offset)
    return first, max(first, min(source[1], done))


def map_gap(
    offsets: OffsetMap,
    position: MirrorPosition | None,
    source: tuple[int, int],
    target: tuple[int, int],
) -> str:
    """Return a sentence if both sides hold records from before the map's beginning; else nothing.

    The map's topic may have been deleted and begun again. If the map says where the mirror began,
    what precedes its first run was left out, and the target's records there are of others.
    """
    if not offsets.runs:
        first, end = _passed(offsets, position, source)
        if first == end or offsets.begin is not None or not target[1]:
            # A target whose end is 0 never had a record.
            return ""
        return (
            "the mirror's map has nothing of the partition, although the mirror has copied up to"
            f" offset {end} of the source, and the target has had records"
        )
    if offsets.covers(source[0]):
        return ""
    begin = offsets.runs[0]
    if source[0] >= begin.source_offset or target[0] >= begin.target_offset:
        return ""
    return (
        f"the mirror's map begins at offset {begin.source_offset} of the source, and older records"
        " are at the target"
    )
