"""Decides where each intact batch of a log belongs, and at which offset.

No checksum covers a batch's offset. A batch that contradicts others is a second copy, is in the
wrong place, has a damaged offset, or belongs to another log. The batches of `longest_in_order` are
trusted, except those that `_without_refuted` removes. The others are handled as follows:

1. A batch that equals a trusted one, including its offset, is a duplicate and is dropped.
2. A batch whose own offsets fit exactly between others is moved there.
3. A batch whose own offsets are impossible (another batch has them, no segment can hold them, or
   every file proves that the log was shorter) gets the offset that its position proves: the gap
   around it has exactly its length, or a single flipped bit leads into that gap.
4. A batch whose own offsets are free is moved: an offset that can be right is kept.
5. The rest, mostly copies with wrong offsets, has no place in the log and is set aside in a file.

Invariant: trusted, moved and renumbered batches do not overlap, and the offset of a batch changes
only if other batches contradict it. Kafka 2.7 has no counterpart: its recovery trusts every offset.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from kctl.repair.batch_table import BatchTable, Row
from kctl.repair.offset_order import longest_in_order
from kctl.storage.offset_index import RELATIVE_OFFSET_MAX

_OFFSET_BITS = 64


class Fate(Enum):
    """What happens to a batch that does not stay unchanged."""

    DUPLICATE = "duplicate"
    MOVED = "moved"
    RENUMBERED = "renumbered"
    SET_ASIDE = "set aside"
    # Another replica's batches take its place.
    REPLACED = "replaced"


class Placement(NamedTuple):
    """The fate of one batch; its records begin with `first_offset` after the repair."""

    fate: Fate
    first_offset: int
    why: str = ""


class _Gap(NamedTuple):
    """The offsets between two believed neighbours; `last` is inclusive, None at the log's end."""

    first: int
    last: int | None


# Batches with these do not stay in the log.
_GONE = (Fate.DUPLICATE, Fate.SET_ASIDE, Fate.REPLACED)


def new_order(table: BatchTable, placements: Mapping[int, Placement]) -> list[tuple[int, int]]:
    """Return first offset and index of every batch that stays in the log, sorted by offset."""
    firsts = table.first_offsets
    return sorted(
        (placements[i].first_offset if i in placements else firsts[i], i)
        for i in range(len(table))
        if i not in placements or placements[i].fate not in _GONE
    )


def place(table: BatchTable, known_end: int) -> dict[int, Placement]:
    """Return the batches that change, by their index in `table`.

    `known_end` is the largest end of the log that checkpoints and file names prove.
    """
    strays = _stray_copies(table, known_end)
    possible = [i for i, row in enumerate(table) if i not in strays and _is_possible(table, row)]
    bases = [table.base_offsets[file] for file in table.files]
    believed = longest_in_order(table.first_offsets, table.last_offsets, possible, bases)
    if len(believed) == len(table):
        return {}
    believed = _without_refuted(table, believed, possible)
    return _Placer(table, believed, known_end).run()


def _is_possible(table: BatchTable, row: Row) -> bool:
    """Return whether a segment of the log can hold the batch's offsets."""
    if row.first_offset < 0:
        return False
    at = bisect_right(table.base_offsets, row.first_offset) - 1
    base = table.base_offsets[max(0, at)]
    return abs(row.last_offset - base) <= RELATIVE_OFFSET_MAX


def _stray_copies(table: BatchTable, known_end: int) -> set[int]:
    """Return the batches beyond the known end of the log whose records also exist before it."""
    beyond = {
        i
        for i, last in enumerate(table.last_offsets)
        if known_end
        and last >= known_end
        and (i == 0 or table.first_offsets[i] != table.last_offsets[i - 1] + 1)
    }
    contents = {_content(table[i]) for i in beyond}
    twins = (
        {
            content
            for content in (_content(row) for row in table if row.last_offset < known_end)
            if content in contents
        }
        if contents
        else set()
    )
    return {i for i in beyond if _content(table[i]) in twins}


def _without_refuted(table: BatchTable, believed: list[int], possible: list[int]) -> list[int]:
    """Return `believed` without the batches whose offsets another batch refutes.

    A flipped bit can leave a batch in order, where it takes offsets of a batch that is
    elsewhere. The batch is refuted if neither of its neighbours confirms its offsets, and if its
    offsets with one bit flipped, together with those of the other batch, exactly fill the gap
    between its neighbours.
    """
    firsts, lasts = table.first_offsets, table.last_offsets
    believed_firsts = [firsts[i] for i in believed]
    known = set(believed)
    refuted = set()
    for i in possible:
        # The only believed batch that can overlap batch `i` and has a neighbour on either side.
        at = bisect_right(believed_firsts, lasts[i]) - 1
        if i in known or not 0 < at < len(believed) - 1:
            continue
        suspect = table[believed[at]]
        gap = _Gap(lasts[believed[at - 1]] + 1, believed_firsts[at + 1] - 1)
        if _refutes(table[i], suspect, gap):
            refuted.add(believed[at])
    return [i for i in believed if i not in refuted] if refuted else believed


def _refutes(row: Row, suspect: Row, gap: _Gap) -> bool:
    """Return whether `row` and `suspect` with one flipped bit exactly fill `gap`."""
    overlap = min(row.last_offset, suspect.last_offset) - max(
        row.first_offset, suspect.first_offset
    )
    is_confirmed = suspect.first_offset == gap.first or suspect.last_offset == gap.last
    if overlap < 0 or is_confirmed or suspect.is_proven:
        return False
    span = suspect.last_offset - suspect.first_offset
    if row.last_offset == gap.last and gap.first + span + 1 == row.first_offset:
        return _is_one_flip(suspect, gap.first)
    if row.first_offset == gap.first and row.last_offset + span + 1 == gap.last:
        return _is_one_flip(suspect, row.last_offset + 1)
    return False


class _Placer:
    def __init__(self, table: BatchTable, believed: list[int], known_end: int) -> None:
        self._table = table
        self._believed = believed
        self._known_end = known_end
        # Ranges of offsets in use, ascending: of trusted batches, and of batches placed so far.
        self._firsts = [table.first_offsets[i] for i in believed]
        self._lasts = [table.last_offsets[i] for i in believed]
        self._joined: list[tuple[int, int]] = []
        # The own offsets of other batches, where they are free.
        self._claims: list[tuple[int, int]] = []
        self._placements: dict[int, Placement] = {}
        # Those contents that other batches have as well.
        self._believed_contents: set[tuple[int, int, int, int]] = set()
        known = set(believed)
        self._others = [i for i in range(len(table)) if i not in known]

    def run(self) -> dict[int, Placement]:
        self._drop_duplicates()
        contents = {_content(self._table[i]) for i in self._others}
        self._believed_contents = {
            content
            for content in map(_content, map(self._table.__getitem__, self._believed))
            if content in contents
        }
        self._move_what_fits_exactly()
        for (start, file), group in groupby(self._unplaced(), self._place_of):
            self._place_group(self._gap(start, file), list(group))
        return self._placements

    def _unplaced(self) -> Iterator[int]:
        return (i for i in self._others if i not in self._placements)

    def _place_of(self, i: int) -> tuple[int, int]:
        """Return a key that is equal for the batches of one gap."""
        return bisect_left(self._believed, i), self._table[i].file

    def _gap(self, start: int, file: int) -> _Gap:
        """Return the part of the gap before the believed batch number `start` that is in `file`."""
        bases = self._table.base_offsets
        first = self._lasts[start - 1] + 1 if start else bases[0]
        last = self._firsts[start] - 1 if start < len(self._firsts) else None
        if first < bases[file] and (last is None or bases[file] <= last):
            first = bases[file]
        if file + 1 < len(bases) and bases[file + 1] > first:
            last = bases[file + 1] - 1 if last is None else min(last, bases[file + 1] - 1)
        return _Gap(first, last)

    def _drop_duplicates(self) -> None:
        wanted = {_identity(self._table[i]) for i in self._others}
        seen = {key for key in (_identity(self._table[i]) for i in self._believed) if key in wanted}
        for i in self._others:
            row = self._table[i]
            key = _identity(row)
            if key in seen:
                self._placements[i] = Placement(Fate.DUPLICATE, row.first_offset)
            seen.add(key)

    def _move_what_fits_exactly(self) -> None:
        """Move the batches whose own offsets are free and fit exactly; of batches that contradict
        each other, believe the one with more evidence."""
        rows = [(i, self._table[i]) for i in self._unplaced()]
        free = [(i, row) for i, row in rows if self._is_own_possible(row)]
        bases = self._table.base_offsets
        firsts = {*self._firsts, *bases, *(row.first_offset for _, row in free)}
        ends = {*bases, *(last + 1 for last in self._lasts), *(r.last_offset + 1 for _, r in free)}
        log_end = max(ends)
        judged = []
        for i, row in free:
            follows = row.first_offset in ends
            is_followed = row.last_offset + 1 in firsts or row.last_offset + 1 == log_end
            evidence = 2 * (follows + is_followed) + self._neighbours_in_line(i)
            judged.append((evidence, follows and is_followed, i, row))
        for _, is_exact, i, row in sorted(judged, key=lambda it: (-it[0], it[2])):
            first, last = row.first_offset, row.last_offset
            if not _overlaps(self._claims, first, last):
                insort(self._claims, (first, last))
                if is_exact:
                    self._join(i, Placement(Fate.MOVED, first), row)

    def _neighbours_in_line(self, i: int) -> int:
        """Return how many of the two neighbours in the file confirm the batch's offsets."""
        firsts, lasts = self._table.first_offsets, self._table.last_offsets
        before = i > 0 and lasts[i - 1] + 1 == firsts[i]
        after = i + 1 < len(firsts) and lasts[i] + 1 == firsts[i + 1]
        return before + after

    def _place_group(self, gap: _Gap, group: list[int]) -> None:
        """Place the batches of one gap, in file order."""
        rows = [self._table[i] for i in group]
        wanted = sum(row.last_offset - row.first_offset + 1 for row in rows)
        is_exact = (
            gap.last is not None
            and wanted == gap.last - gap.first + 1
            and self._is_free(gap.first, gap.last)
        )
        proven = gap.first
        for i, row in zip(group, rows, strict=True):
            placement = self._placement(i, row, gap, proven if is_exact else None)
            span = row.last_offset - row.first_offset
            proven += span + 1
            if placement.fate is Fate.SET_ASIDE:
                self._placements[i] = placement
                continue
            self._join(i, placement, row)
            if placement.fate is Fate.RENUMBERED:
                gap = gap._replace(first=placement.first_offset + span + 1)

    def _placement(self, i: int, row: Row, gap: _Gap, proven: int | None) -> Placement:
        first, span = row.first_offset, row.last_offset - row.first_offset
        is_free = self._is_own_possible(row)
        is_within = is_free and self._is_within_log(row)
        if (
            proven is not None
            and not row.is_proven
            and (not is_within or _is_one_flip(row, proven))
        ):
            why = "the gap around it has exactly its length"
            return Placement(Fate.RENUMBERED, proven, why)
        if is_within:
            return Placement(Fate.MOVED, first)
        flipped = [] if row.is_proven else self._one_flip_away(row, gap, span)
        if flipped:
            why = "one bit is flipped, and its neighbours show which"
            if len(flipped) > 1:
                why = f"one bit is flipped; {flipped[-1]} would fit as well"
            return Placement(Fate.RENUMBERED, flipped[0], why)
        # Messages without key and value all have the same content.
        is_copy = _content(row) in self._believed_contents and not self._neighbours_in_line(i)
        if is_free and not is_copy:
            return Placement(Fate.MOVED, first)
        return Placement(Fate.SET_ASIDE, first)

    def _one_flip_away(self, row: Row, gap: _Gap, span: int) -> list[int]:
        """Return the first offsets in the gap that differ in one bit from the batch's own."""
        # A batch after the log's last batch begins exactly there.
        last = gap.first + span if gap.last is None else gap.last
        shift = 0 if row.magic == 2 else span
        found = []
        for bit in range(_OFFSET_BITS):
            stored = _signed((row.stored_offset ^ 1 << bit) & (1 << _OFFSET_BITS) - 1)
            first = stored - shift
            if gap.first <= first and first + span <= last and self._is_free(first, first + span):
                found.append(first)
        return sorted(found)

    def _is_own_possible(self, row: Row) -> bool:
        """Return whether the batch can have its own offsets, as no better proven batch has them."""
        first, last = row.first_offset, row.last_offset
        if not _is_possible(self._table, row) or not self._is_untaken(first, last):
            return False
        at = bisect_left(self._claims, (first, last))
        is_claimed = at < len(self._claims) and self._claims[at] == (first, last)
        return is_claimed or not _overlaps(self._claims, first, last)

    def _is_within_log(self, row: Row) -> bool:
        end = max(self._known_end, self._lasts[-1] + 1 if self._lasts else 0)
        return self._table.base_offsets[0] <= row.first_offset and row.last_offset < end

    def _is_free(self, first: int, last: int) -> bool:
        """Return whether no batch has or claims any of these offsets."""
        return self._is_untaken(first, last) and not _overlaps(self._claims, first, last)

    def _is_untaken(self, first: int, last: int) -> bool:
        at = bisect_right(self._firsts, last)
        if at and self._lasts[at - 1] >= first:
            return False
        return not _overlaps(self._joined, first, last)

    def _join(self, i: int, placement: Placement, row: Row) -> None:
        self._placements[i] = placement
        last = placement.first_offset + row.last_offset - row.first_offset
        insort(self._joined, (placement.first_offset, last))


def _overlaps(ranges: list[tuple[int, int]], first: int, last: int) -> bool:
    """Return whether one of the disjoint, rising ranges contains one of these offsets."""
    at = bisect_right(ranges, (last, 2**63))
    return bool(at) and ranges[at - 1][1] >= first


def _identity(row: Row) -> tuple[int, int, int, int, int]:
    return row.first_offset, row.last_offset, row.magic, row.size, row.crc


def _content(row: Row) -> tuple[int, int, int, int]:
    """Return a key that is equal for batches with equal records, whatever their offsets."""
    return row.last_offset - row.first_offset, row.magic, row.size, row.crc


def _is_one_flip(row: Row, first_offset: int) -> bool:
    span = row.last_offset - row.first_offset
    stored = first_offset if row.magic == 2 else first_offset + span
    return ((stored ^ row.stored_offset) & (1 << _OFFSET_BITS) - 1).bit_count() == 1


def _signed(number: int) -> int:
    return number - (1 << _OFFSET_BITS) if number >> (_OFFSET_BITS - 1) else number
