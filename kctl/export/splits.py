"""Splits: the units of work of an export, each exported by one task and identified by its offsets.

A split is a range of offsets of one partition and the ranges of segment files that hold it. It is a
plain value that can be pickled: the driver creates it, and any process that sees the files can
export it. Large segments are divided at batch boundaries listed in the .index; small ones are
combined, so that files approach the requested size.

Invariant: the splits of a partition are contiguous and do not overlap.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from kctl.arrow_files.partition_log import PartitionLog, Segment
from kctl.export.options import ExportOptions, Isolation
from kctl.lazy_dataclass import dataclass
from kctl.model import Position, PositionKind
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record_batch import INT64, MAGIC_OFFSET
from kctl.records.transactions import AbortedRange

EVERYTHING = (Position(PositionKind.EARLIEST), Position(PositionKind.LATEST))
# A file may exceed the requested size by this factor, to avoid a small remainder.
_SLACK = 1.5


class Piece(NamedTuple):
    """A range of a segment file, aligned to batches."""

    url: str
    start: int
    end: int
    # Lower bound of its batches' offsets.
    first_offset: int


@dataclass(frozen=True, slots=True)
class Split:
    """A range of offsets of one partition, and where its records are stored."""

    topic: str
    partition: int
    first_offset: int
    # Exclusive.
    end_offset: int
    pieces: tuple[Piece, ...]
    # The aborted transactions that overlap the range.
    aborted: tuple[AbortedRange, ...] = ()

    @property
    def size(self) -> int:
        """Return the bytes of log to read."""
        return sum(piece.end - piece.start for piece in self.pieces)

    @property
    def name(self) -> str:
        """Return topic, partition, first and last offset: the name of its file."""
        return range_name(self.topic, self.partition, self.first_offset, self.end_offset)


def range_name(topic: str, partition: int, first_offset: int, end_offset: int) -> str:
    """Return the name of the file that holds [first_offset, end_offset) of a partition."""
    return f"{topic}-{partition}-{first_offset:020d}-{end_offset - 1:020d}"


def plan_log(
    log: PartitionLog,
    options: ExportOptions,
    bounds: tuple[Position, Position | None] = EVERYTHING,
    done: Iterable[tuple[int, int]] = (),
) -> list[Split]:
    """Return the splits of one partition within `bounds`, except the offset ranges in `done`."""
    first = max(log.resolve(bounds[0]), log.start_offset)
    end = log.end_offset if bounds[1] is None else min(log.resolve(bounds[1]), log.end_offset)
    aborted: list[AbortedRange] = []
    if options.isolation is Isolation.READ_COMMITTED:
        aborted, first_unstable = log.transactions()
        end = end if first_unstable is None else min(end, first_unstable)
    splits = []
    for gap_first, gap_end in gaps(first, end, done):
        pieces = _pieces(log, gap_first, gap_end, options.split_bytes)
        groups = [pieces] if options.replaces_partitions else _groups(pieces, options.split_bytes)
        splits += _as_splits(log, groups, gap_first, gap_end)
    return [_with_aborted(split, aborted) for split in splits]


def gaps(first: int, end: int, done: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of [first, end) that are not in `done`."""
    left = []
    for done_first, done_end in sorted(done):
        if done_first > first:
            left.append((first, min(done_first, end)))
        first = max(first, done_end)
    left.append((first, end))
    return [(gap_first, gap_end) for gap_first, gap_end in left if gap_first < gap_end]


def _pieces(log: PartitionLog, first: int, end: int, bytes_max: int) -> list[Piece]:
    """Return the file ranges that hold [first, end), none much larger than `bytes_max`."""
    pieces: list[Piece] = []
    segments = log.segments[log.segment_of(first) :]
    for number, segment in enumerate(segments):
        if segment.base_offset >= end:
            break
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        is_inner = first <= segment.base_offset and next_base is not None and next_base <= end
        if is_inner and segment.size <= bytes_max * _SLACK:
            pieces.append(Piece(log.files.url(segment.path), 0, segment.size, segment.base_offset))
        else:
            pieces += _cut(log, segment, first, end, bytes_max)
    return [piece for piece in pieces if piece.end > piece.start]


def _cut(log: PartitionLog, segment: Segment, first: int, end: int, bytes_max: int) -> list[Piece]:
    """Return the part of a segment that may hold [first, end), in pieces of about `bytes_max`."""
    entries = log.index_entries(segment)
    offsets = (entries[:, 0] + segment.base_offset).tolist()
    positions = entries[:, 1].tolist()
    start, stop = 0, segment.size
    cuts = []
    previous = segment.base_offset - 1
    for offset, position in zip(offsets, positions, strict=True):
        # An entry holds the last offset of the append at its position, so everything from that
        # position on has higher offsets than the previous entry.
        if offset < first:
            start = position
        elif previous + 1 >= end:
            stop = position
            break
        else:
            cuts.append(position)
        previous = offset
    borders = [(start, _offset_at(log, segment, start) or segment.base_offset)]
    for position in cuts:
        if position - borders[-1][0] >= bytes_max and stop - position >= bytes_max // 2:
            found = _offset_at(log, segment, position)
            if found is not None:
                borders.append((position, found))
    stops = [position for position, _ in borders[1:]] + [stop]
    return [
        Piece(log.files.url(segment.path), low, high, offset)
        for (low, offset), high in zip(borders, stops, strict=True)
    ]


def _offset_at(log: PartitionLog, segment: Segment, position: int) -> int | None:
    """Return the first offset at a batch boundary; None inside a wrapper message (v0, v1)."""
    if position == 0:
        return segment.base_offset
    head = log.files.read_range(segment.path, position, MAGIC_OFFSET + 1)
    if len(head) <= MAGIC_OFFSET or head[MAGIC_OFFSET] != CURRENT_MAGIC:
        return None
    return int(INT64.unpack_from(head)[0])


def _groups(pieces: list[Piece], bytes_max: int) -> list[list[Piece]]:
    """Combine adjacent pieces up to about `bytes_max`; the last group absorbs a small remainder."""
    groups: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        length = piece.end - piece.start
        if groups and size + length <= bytes_max:
            groups[-1].append(piece)
            size += length
        else:
            groups.append([piece])
            size = length
    if len(groups) > 1 and size < bytes_max // 8:
        groups[-2] += groups.pop()
    return groups


def _as_splits(log: PartitionLog, groups: list[list[Piece]], first: int, end: int) -> list[Split]:
    topic, partition = log.topic_partition
    splits: list[Split] = []
    for number, group in enumerate(groups):
        is_last = number + 1 == len(groups)
        group_end = end if is_last else min(end, groups[number + 1][0].first_offset)
        if group_end <= first:
            # The whole group precedes the range: the next group starts here.
            continue
        splits.append(Split(topic, partition, first, group_end, tuple(group)))
        first = group_end
    return splits


def _with_aborted(split: Split, aborted: list[AbortedRange]) -> Split:
    overlapping = tuple(
        each
        for each in aborted
        if each.last_offset >= split.first_offset and each.first_offset < split.end_offset
    )
    return replace(split, aborted=overlapping) if overlapping else split
