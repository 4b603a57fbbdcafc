"""Compute the new contents of each segment from the decisions of `placement`.

Batches are sorted by offset, each in the segment that its offset belongs to. In v2 logs empty
batches replace damaged bytes and keep their offsets. A segment with a wrong name is named after the
offset of its first batch. Leader epochs, which no checksum covers either, are judged in the new
order. A segment whose contents do not change is not written.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import groupby, islice

from kctl.counts import are, counted, offset_range
from kctl.lazy_dataclass import dataclass
from kctl.records.control import marker_batch
from kctl.records.record_batch import INT32, INT64, LOG_OVERHEAD
from kctl.repair.batch_table import BatchTable, Row, Stretch
from kctl.repair.lost_markers import LostMarker, describe
from kctl.repair.placement import Fate, Placement, new_order
from kctl.repair.replica import Borrowed
from kctl.repair.segment_edit import Extent, Piece, Step, filler, join
from kctl.storage.checkpoint import EpochEntry
from kctl.storage.layout import LOG_SUFFIX, file_name
from kctl.storage.offset_index import RELATIVE_OFFSET_MAX
from kctl.verify.epoch_runs import EpochRuns
from kctl.verify.rules import Rule
from kctl.verify.segment_walk import WalkedBatch

_NEVER = 2**63
# Positions in an offset index are int32.
_SEGMENT_BYTES_MAX = 2**31 - 1
# Where the backup keeps batches without a place in the log.
SET_ASIDE = "set-aside"
# Damage at the end of a log that had records.
_LOSES_TAIL = frozenset(
    {
        "damage", Rule.TORN_TAIL, Rule.NONSENSE, Rule.ZERO_BLOCK, Rule.BATCH_CRC, Rule.BATCH_SIZE,
        Rule.BATCH_MAGIC, Rule.RECORDS,
    }
)  # fmt: skip
_EPOCH_END = LOG_OVERHEAD + INT32.size


@dataclass(slots=True)
class Layout:
    """The new contents of a partition's segments."""

    # By path; only of segments that change.
    segments: dict[str, list[Piece]] = field(default_factory=dict)
    # Paths of segments that are removed.
    removed: list[str] = field(default_factory=list)
    # Batches without a place in the log, with their first offsets.
    set_aside: list[tuple[int, Extent]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    # Offsets whose records are lost, both inclusive; the last is None if it is not known.
    lost: list[tuple[int, int | None]] = field(default_factory=list)


def lay_out(
    table: BatchTable,
    placements: Mapping[int, Placement],
    rules: Mapping[tuple[str, int], str],
    checkpoint: list[EpochEntry] | None,
    restored: Sequence[LostMarker] = (),
    borrowed: Borrowed | None = None,
) -> Layout:
    """Return the layout for the batches of `table`.

    `rules`: what verification calls the damage at a path and position; `checkpoint`: the epochs
    that the leader epoch checkpoint names; `restored`: markers that are written again; `borrowed`:
    batches of another replica, for offsets that no batch of `table` has.
    """
    return _LayoutPlanner(table, placements, rules, checkpoint, restored, borrowed).run()


class _LayoutPlanner:
    def __init__(
        self,
        table: BatchTable,
        placements: Mapping[int, Placement],
        rules: Mapping[tuple[str, int], str],
        checkpoint: list[EpochEntry] | None,
        restored: Sequence[LostMarker],
        borrowed: Borrowed | None,
    ) -> None:
        self._table = table
        self._placements = placements
        self._rules = rules
        self._checkpoint = checkpoint
        self._directory = table.paths[0].rpartition("/")[0]
        self._layout = Layout()
        # Path and position of batches that are set aside.
        self._aside: set[tuple[str, int]] = set()
        self._markers = {it.offset: it for it in restored if it.offset is not None}
        # New first offset and index, in the new order.
        self._placed = new_order(table, placements)
        self._firsts = [first for first, _ in self._placed]
        self._borrowed = borrowed
        taken = borrowed.spans if borrowed is not None else []
        # The offsets that batches have in the new log, own and borrowed.
        self._spans = sorted([(first, self._last(i)) for first, i in self._placed] + taken)
        # Batches that keep their position in the file; damage is between these.
        self._standing = [
            i
            for i in range(len(table))
            if i not in placements or placements[i].fate is Fate.RENUMBERED
        ]
        self._bases = self._new_bases()
        # Segments that are missing here begin where they begin in the replica.
        self._added_bases = set(borrowed.base_offsets if borrowed is not None else ())
        self._fillers: dict[int, tuple[int, bytes]] = {}

    def run(self) -> Layout:
        self._describe_placements()
        stretches = sorted([*self._table.stretches, *self._aside_stretches()], key=_place_in_log)
        for stretch in stretches:
            self._fill(stretch)
        self._fill_before_last_marker()
        self._describe_markers()
        self._describe_borrowed()
        epochs = self._epochs()
        pieces: dict[int, list[Piece]] = {it: [] for it in self._bases if it is not None}
        start = min([self._table.base_offsets[0], *self._added_bases])
        if start < min(pieces, default=start + 1):
            # An empty segment keeps the log's start offset.
            pieces[start] = []
        pieces |= dict(self._by_segment(epochs))
        sizes = dict(zip(self._table.paths, self._table.sizes, strict=True))
        for base, group in pieces.items():
            path = self._path(base)
            size = sizes.get(path)
            whole: list[Piece] = [Extent(path, 0, size)] if size else []
            if size is None or group != whole:
                self._layout.segments[path] = group
        kept = {self._path(base) for base in pieces}
        self._layout.removed += [path for path in self._table.paths if path not in kept]
        return self._layout

    def _path(self, base: int) -> str:
        return f"{self._directory}/{file_name(base, LOG_SUFFIX)}"

    def _first(self, i: int) -> int:
        placement = self._placements.get(i)
        return self._table.first_offsets[i] if placement is None else placement.first_offset

    def _last(self, i: int) -> int:
        table = self._table
        return self._first(i) + table.last_offsets[i] - table.first_offsets[i]

    # --- names of segments -------------------------------------------------------------------

    def _new_bases(self) -> list[int | None]:
        """Return the base offset of each file, or None if the file is removed.

        A name stays if batches of the file belong to it, or a batch begins there; else the file
        gets the offset of its first batch.
        """
        by_file: dict[int, list[int]] = {}
        for first, i in self._placed:
            by_file.setdefault(self._table.files[i], []).append(first)
        names = self._table.base_offsets
        begins = set(self._firsts)
        bases = []
        for file, (name, following) in enumerate(zip(names, [*names[1:], _NEVER], strict=True)):
            offsets = by_file.get(file, [])
            is_right = (
                not offsets or name in begins or any(name <= it < following for it in offsets)
            )
            bases.append(name if is_right else offsets[0])
        return self._between_batches(bases)

    def _between_batches(self, bases: list[int]) -> list[int | None]:
        """Move base offsets inside a batch to the next batch, and drop those without one."""
        moved: list[int | None] = []
        end = self._last(self._placed[-1][1]) + 1 if self._placed else 0
        for base in bases:
            at = bisect_left(self._firsts, base) - 1
            is_inside = at >= 0 and self._last(self._placed[at][1]) >= base
            if not is_inside:
                moved.append(base)
            elif at + 1 < len(self._firsts) and self._firsts[at + 1] < end:
                following = self._firsts[at + 1]
                moved.append(None if following in bases else following)
            else:
                moved.append(None)
        return moved

    # --- damage ------------------------------------------------------------------------------

    def _aside_stretches(self) -> Iterator[Stretch]:
        for i, placement in self._placements.items():
            if placement.fate is Fate.SET_ASIDE:
                row = self._table[i]
                yield Stretch(row.file, i, row.position, row.end)

    def _fill(self, stretch: Stretch) -> None:
        """Add empty batches for the offsets that the damaged stretch had."""
        path = self._table.paths[stretch.file]
        gap = self._gap(stretch)
        ranges = list(self._free_ranges(*gap))
        self._layout.lost += ranges
        is_tail = stretch.rows_before >= len(self._table) and gap[1] < gap[0]
        if is_tail and self._rule_of(stretch) in _LOSES_TAIL and not self._has_borrowed(gap[0]):
            self._layout.lost.append((gap[0], None))
        made = []
        for first, last in ranges:
            before = self._row_before(first)
            if not self._is_modern(first, before):
                continue
            epoch = max(0, before.leader_epoch) if before is not None else self._first_epoch()
            if first not in self._fillers:
                self._fillers[first] = last, filler(first, last, epoch)
            made.append((first, last))
        if (path, stretch.position) in self._aside:
            return
        made = made or [(it, it) for it in sorted(self._markers) if gap[0] <= it <= gap[1]]
        rule = self._rule_of(stretch)
        result = "they are not replaced"
        taken = self._taken_between(*gap)
        if taken:
            first, last = taken[0][0], taken[-1][1]
            verb = are(last - first + 1)
            result = f"{offset_range(first, last)} {verb} taken from the replica"
        elif made:
            first, last = made[0][0], made[-1][1]
            verb = "stays" if first == last else "stay"
            result = f"{offset_range(first, last)} {verb}, without records"
        length = stretch.end - stretch.position
        removed = f"{counted(length, 'byte')} {are(length)} removed"
        detail = f"{rule} at {stretch.position}: {removed}, {result}"
        self._layout.steps.append(Step("edit", path, detail))

    def _rule_of(self, stretch: Stretch) -> str:
        path = self._table.paths[stretch.file]
        return self._rules.get((path, stretch.position), "damage")

    def _has_borrowed(self, offset: int) -> bool:
        """Return whether a borrowed batch has this offset or a later one."""
        return self._borrowed is not None and any(it[1] >= offset for it in self._borrowed.spans)

    def _taken_between(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the borrowed batches in a gap; with `last` below `first`, those at the end."""
        spans = self._borrowed.spans if self._borrowed is not None else []
        if last < first:
            return [it for it in spans if it[0] >= first >= self._end_of_log()]
        return [it for it in spans if first <= it[0] <= last]

    def _end_of_log(self) -> int:
        return self._last(self._placed[-1][1]) + 1 if self._placed else 0

    def _fill_before_last_marker(self) -> None:
        """Keep the offsets between the last batch and a restored marker after it."""
        for first, last in self._free_ranges(self._end_of_log(), max(self._markers, default=-1)):
            if first not in self._fillers:
                epoch = max(0, self._table[self._placed[-1][1]].leader_epoch)
                self._fillers[first] = last, filler(first, last, epoch)

    def _gap(self, stretch: Stretch) -> tuple[int, int]:
        """Return the first and last offset between the batches before and after the stretch.

        The last is below the first if no offset is known to be missing.
        """
        at = bisect_left(self._standing, stretch.rows_before)
        first = self._last(self._standing[at - 1]) + 1 if at else 0
        base = self._bases[stretch.file]
        is_first_in_file = not at or self._table[self._standing[at - 1]].file < stretch.file
        if is_first_in_file:
            first = max(first, self._table.base_offsets[0] if base is None else base)
        ends = [it for it in self._bases[stretch.file + 1 :] if it is not None and it >= first]
        if at < len(self._standing):
            ends.append(self._first(self._standing[at]))
        return first, min(ends, default=first) - 1

    def _free_ranges(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the unused ones of these offsets, as ranges that do not span a segment's base."""
        at = bisect_left(self._spans, (first, first))
        bases = {it for it in self._bases if it is not None} | self._added_bases
        while first <= last:
            end = min(last + 1, self._spans[at][0]) if at < len(self._spans) else last + 1
            borders = {it for it in bases if first < it < end}
            markers = {it for it in self._markers if first <= it < end}
            borders |= markers | {it + 1 for it in markers} | {end}
            for border in sorted(borders):
                if first < border and first not in markers:
                    yield first, border - 1
                first = border
            if at < len(self._spans):
                first = max(first, self._spans[at][1] + 1)
            at += 1

    def _row_before(self, offset: int) -> Row | None:
        at = bisect_left(self._firsts, offset) - 1
        return self._table[self._placed[at][1]] if at >= 0 else None

    def _is_modern(self, offset: int, before: Row | None) -> bool:
        """Return whether a v2 batch precedes `offset`, so that v2 batches may be added."""
        if before is not None:
            return before.magic == 2
        at = bisect_left(self._firsts, offset)
        return at < len(self._placed) and self._table[self._placed[at][1]].magic == 2

    def _first_epoch(self) -> int:
        return max(0, self._table[self._placed[0][1]].leader_epoch) if self._placed else 0

    # --- contents ----------------------------------------------------------------------------

    def _epochs(self) -> dict[int, int]:
        """Return the correct leader epochs of batches whose own contradict others, by index."""
        runs = EpochRuns()
        for first, i in self._placed:
            row = self._table[i]
            if row.leader_epoch >= 0:
                runs.on_batch(
                    self._table.paths[row.file],
                    WalkedBatch(
                        row.position, row.size, row.magic, first, self._last(i), -1,
                        row.leader_epoch, 0, -1, -1, -1, 0, row.crc,
                    ),
                )  # fmt: skip
        found: dict[int, int] = {}
        for run, epoch in runs.in_line(self._checkpoint)[1]:
            at = bisect_left(self._firsts, run.first_offset)
            for first, i in islice(self._placed, at, None):
                if first > run.last_offset:
                    break
                if self._table[i].leader_epoch == run.epoch:
                    found[i] = epoch
            detail = (
                f"leader epoch {run.epoch} of {offset_range(run.first_offset, run.last_offset)} "
                f"becomes {epoch}, as before and after it"
            )
            self._layout.steps.append(Step("edit", run.path, detail))
        return found

    def _by_segment(self, epochs: Mapping[int, int]) -> Iterator[tuple[int, list[Piece]]]:
        """Yield base offset and contents of every segment that is not empty."""
        bases = sorted({it for it in self._bases if it is not None} | self._added_bases)
        items: list[tuple[int, int, list[Piece]]] = [
            (first, self._last(i), self._batch(i, first, epochs.get(i)))
            for first, i in self._placed
        ]
        items += [(first, last, [data]) for first, (last, data) in self._fillers.items()]
        items += [(offset, offset, [self._marker(it)]) for offset, it in self._markers.items()]
        if self._borrowed is not None:
            pairs = zip(self._borrowed.spans, self._borrowed.rows, strict=True)
            items += [(*span, [self._borrowed.extent(row)]) for span, row in pairs]
        items.sort(key=lambda it: it[0])
        pieces: list[Piece] = []
        base, size, named = -1, 0, -1
        for first, last, parts in items:
            at = bisect_right(bases, first)
            # Batches below every base share one segment.
            name = bases[at - 1] if at else items[0][0]
            length = sum(_length(it) for it in parts)
            is_full = last - base > RELATIVE_OFFSET_MAX or size + length > _SEGMENT_BYTES_MAX
            if name != named or is_full:
                if pieces:
                    yield base, join(pieces)
                base, named = (name if name != named else first), name
                pieces, size = [], 0
            pieces += parts
            size += length
        if pieces:
            yield base, join(pieces)

    def _marker(self, lost: LostMarker) -> bytes:
        return bytes(
            marker_batch(
                lost.marker, producer_id=lost.producer_id, producer_epoch=lost.producer_epoch,
                timestamp=lost.timestamp, base_offset=lost.offset or 0,
                partition_leader_epoch=lost.leader_epoch,
            )
        )  # fmt: skip

    def _describe_markers(self) -> None:
        bases = sorted(it for it in self._bases if it is not None)
        for offset, lost in sorted(self._markers.items()):
            at = bisect_right(bases, offset)
            path = self._path(bases[at - 1] if at else self._table.base_offsets[0])
            self._layout.steps.append(Step("restore", path, describe(lost)))

    def _describe_borrowed(self) -> None:
        """Describe what is taken: a step for each range of offsets in a segment."""
        if self._borrowed is None:
            return
        bases = sorted({it for it in self._bases if it is not None} | self._added_bases)
        ranges: list[tuple[int, int, int, int]] = []
        for first, last in self._borrowed.spans:
            at = bisect_right(bases, first)
            base = bases[at - 1] if at else first
            if ranges and ranges[-1][0] == base and ranges[-1][2] + 1 == first:
                begin, count = ranges[-1][1], ranges[-1][3]
                ranges[-1] = (base, begin, last, count + 1)
            else:
                ranges.append((base, first, last, 1))
        for base, first, last, count in ranges:
            noun = "batch" if count == 1 else "batches"
            detail = f"{offset_range(first, last)}, {count} {noun}, from {self._borrowed.name}"
            self._layout.steps.append(Step("take", self._path(base), detail))

    def _batch(self, i: int, first: int, epoch: int | None) -> list[Piece]:
        row = self._table[i]
        path = self._table.paths[row.file]
        stored = first if row.magic == 2 else first + row.last_offset - row.first_offset
        pieces: list[Piece] = []
        start = row.position
        if stored != row.stored_offset:
            pieces.append(INT64.pack(stored))
            start += INT64.size
        if epoch is not None:
            pieces += [Extent(path, start, row.position + LOG_OVERHEAD), INT32.pack(epoch)]
            start = row.position + _EPOCH_END
        return [*pieces, Extent(path, start, row.end)]

    # --- description of the plan ---------------------------------------------------------------

    def _describe_placements(self) -> None:
        for file, (name, base) in enumerate(
            zip(self._table.base_offsets, self._bases, strict=True)
        ):
            if base is not None and base != name:
                detail = f"to {file_name(base, LOG_SUFFIX)}"
                self._layout.steps.append(Step("rename", self._table.paths[file], detail))
        steps = [
            step
            for (file, fate, _), group in groupby(sorted(self._placements), self._kind)
            for step in self._describe(self._table.paths[file], fate, list(group))
        ]
        for i, row in enumerate(self._table):
            stored = row.first_offset if row.magic == 2 else row.last_offset
            if i not in self._placements and stored != row.stored_offset:
                steps.append(self._renumbering(i, "as the messages inside prove"))
        self._layout.steps += steps

    def _kind(self, i: int) -> tuple[int, Fate, int]:
        """Return a key that groups consecutive batches with one description."""
        placement = self._placements[i]
        place = bisect_left(self._standing, i)
        return self._table[i].file, placement.fate, place

    def _describe(self, path: str, fate: Fate, group: list[int]) -> Iterator[Step]:
        first, last = self._first(group[0]), self._last(group[-1])
        row = self._table[group[0]]
        what = f"{offset_range(first, last)} at {row.position}"
        if len(group) > 1:
            what += f", {len(group)} batches"
        if fate is Fate.DUPLICATE:
            yield Step("edit", path, f"{what}: the second copy is removed")
        elif fate is Fate.MOVED:
            yield Step("edit", path, f"{what}: moved to where the offsets belong")
        elif fate is Fate.REPLACED:
            yield Step("edit", path, f"{what}: the batches of the replica take their place")
        elif fate is Fate.RENUMBERED:
            yield from (self._renumbering(i, self._placements[i].why) for i in group)
        else:
            for i in group:
                row = self._table[i]
                self._aside.add((path, row.position))
                self._layout.set_aside.append(
                    (row.first_offset, Extent(path, row.position, row.end))
                )
                number = len(self._layout.set_aside)
                detail = (
                    f"the batch at {row.position} has "
                    f"{offset_range(row.first_offset, row.last_offset)}, which other batches have "
                    f"too, and has no place; it goes to {SET_ASIDE}/{number} in the backup"
                )
                yield Step("set aside", path, detail)

    def _renumbering(self, i: int, why: str) -> Step:
        row = self._table[i]
        stored = self._first(i) if row.magic == 2 else self._last(i)
        detail = (
            f"the batch at {row.position} has offset {row.stored_offset}, which becomes {stored}: "
            f"{why}"
        )
        return Step("edit", self._table.paths[row.file], detail)


def _length(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.end - piece.position


def _place_in_log(stretch: Stretch) -> tuple[int, int]:
    return stretch.file, stretch.position
