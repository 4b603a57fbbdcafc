"""Splits: the pieces of an export, each read and written by one task and known by its offsets.

A split is a range of offsets of one partition and the stretches of segment files that hold it. It
is a plain value that pickles: made by the driver, worked on anywhere that sees the files. Large
segments are cut at batch boundaries that the .index names; small ones are put together, so that
files come near the size asked for.

Invariant: the splits of a partition follow each other without a gap or an overlap of offsets.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kctl.export.options import ExportOptions, Isolation
from kctl.export.partition_log import PartitionLog, Segment
from kctl.model import Position, PositionKind
from kctl.records.memory_records import CURRENT_MAGIC
from kctl.records.record_batch import INT64, MAGIC_OFFSET
from kctl.records.transactions import AbortedRange

EVERYTHING = (Position(PositionKind.EARLIEST), Position(PositionKind.LATEST))
# A file may be larger than asked for by this factor rather than leave a small one behind.
_SLACK = 1.5


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a segment file, from batch to batch."""

    url: str
    start: int
    end: int
    # No batch in it has a lower one.
    first_offset: int


@dataclass(frozen=True, slots=True)
class Split:
    """See the module."""

    topic: str
    partition: int
    first_offset: int
    # Exclusive.
    end_offset: int
    pieces: tuple[Piece, ...]
    # Of the transactions that overlap the range.
    aborted: tuple[AbortedRange, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of log to be read."""
        return sum(piece.end - piece.start for piece in self.pieces)

    @property
    def name(self) -> str:
        """Topic, partition, first and last offset: the name of its file."""
        return range_name(self.topic, self.partition, self.first_offset, self.end_offset)


def range_name(topic: str, partition: int, first_offset: int, end_offset: int) -> str:
    """The name of a file that tells what is in it."""
    return f"{topic}-{partition}-{first_offset:020d}-{end_offset - 1:020d}"


def plan_log(
    log: PartitionLog,
    options: ExportOptions,
    bounds: tuple[Position, Position | None] = EVERYTHING,
    done: Iterable[tuple[int, int]] = (),
) -> list[Split]:
    """The splits of one partition within `bounds` but for the offset ranges `done` already."""
    first = max(log.resolve(bounds[0]), log.start_offset)
    end = log.end_offset if bounds[1] is None else min(log.resolve(bounds[1]), log.end_offset)
    aborted: list[AbortedRange] = []
    if options.isolation is Isolation.READ_COMMITTED:
        aborted, first_unstable = log.transactions()
        end = end if first_unstable is None else min(end, first_unstable)
    splits = []
    for gap_first, gap_end in gaps(first, end, done):
        pieces = _pieces(log, gap_first, gap_end, options.file_bytes)
        groups = [pieces] if options.latest_per_key else _groups(pieces, options.file_bytes)
        splits += _as_splits(log, groups, gap_first, gap_end)
    return [_with_aborted(split, aborted) for split in splits]


def gaps(first: int, end: int, done: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of [first, end) without the ranges `done`."""
    left = []
    for done_first, done_end in sorted(done):
        if done_first > first:
            left.append((first, min(done_first, end)))
        first = max(first, done_end)
    left.append((first, end))
    return [(gap_first, gap_end) for gap_first, gap_end in left if gap_first < gap_end]


def _pieces(log: PartitionLog, first: int, end: int, bytes_max: int) -> list[Piece]:
    """The stretches that hold [first, end), none much larger than `bytes_max`."""
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
    """The part of a segment that may hold [first, end), in pieces of about `bytes_max`."""
    entries = log.index_entries(segment)
    offsets = (entries[:, 0] + segment.base_offset).tolist()
    positions = entries[:, 1].tolist()
    start, stop = 0, segment.size
    cuts = []
    previous = segment.base_offset - 1
    for offset, position in zip(offsets, positions, strict=True):
        # The entry's offset is the last one of an append that begins at its position; all that
        # is there and behind has higher offsets than the entry before.
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
    """The first offset at a batch boundary; None where it stands inside a wrapper (v0, v1)."""
    if position == 0:
        return segment.base_offset
    head = log.files.read_range(segment.path, position, MAGIC_OFFSET + 1)
    if len(head) <= MAGIC_OFFSET or head[MAGIC_OFFSET] != CURRENT_MAGIC:
        return None
    return int(INT64.unpack_from(head)[0])


def _groups(pieces: list[Piece], bytes_max: int) -> list[list[Piece]]:
    """Neighbours together, up to about `bytes_max`; a small rest goes to the last."""
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
            # All of it lies below the range after all: the next one reads on from here.
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
