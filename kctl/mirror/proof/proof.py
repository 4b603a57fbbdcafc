"""PartitionProof: compares the committed records of two partitions, whatever their batches are.

The caller reads: it asks `next_read` which side to read from which offset, and passes the chunk to
`add`, until there is nothing to read. Batches are compared as bytes first (`raw`); only where they
differ are records decoded and compared (`records`), and only where records differ is their order
compared (`alignment`) and are differences named (`classification`).

Without an offset map, records pair up by their place in the order. With one, the map says at which
offset of the target each record must be.

    ALIGNED    everything before is compared; the next records should be equal
    DIFFERS    the next records differ; more are decoded until both sides meet again
    SEARCHING  they do not meet within WINDOW_BYTES: both sides are read on, keeping no records,
               until one reaches the window of the other; then both are read again from there
    DONE       both sides were read to their ends

Invariants: memory is bounded by two windows and the chunks being read. Every record of both sides
is either equal to its partner or part of exactly one difference. A state changes only by `_MOVES`.

Kafka 2.7: kafka.tools.ReplicaVerificationTool, which compares checksums at equal offsets
"""

from collections import deque
from dataclasses import field
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np

from kctl.lazy_dataclass import dataclass
from kctl.mirror.proof.alignment import ANCHOR, Hunk, loose_hunk, next_hunk
from kctl.mirror.proof.classification import Classifier, Side
from kctl.mirror.proof.differences import (
    Difference,
    DifferenceKind,
    Differences,
    unreadable_batches,
)
from kctl.mirror.proof.raw import Batches, equal_run
from kctl.mirror.proof.records import Identity, Records, RecordView, decode
from kctl.mirror.proof.stream import Chunk, SideStream
from kctl.records.columnar_batches import Int64s, Mask

# The most records that are decoded at once while both sides are equal.
_STRIDE_MAX = 65_536
# The most records of a window that a search looks for.
_HEAD_MAX = 4_096


class OffsetMapping(Protocol):
    """Where a mirror wrote the records of a source."""

    def target_offsets(self, source_offsets: Int64s) -> Int64s:
        """Return the offset of each record at the target, or -1; rising where they are not -1."""
        ...


class ProofState(Enum):
    """What a proof does next."""

    ALIGNED = "aligned"
    DIFFERS = "differs"
    SEARCHING = "searching"
    DONE = "done"


_MOVES = {
    ProofState.ALIGNED: {ProofState.DIFFERS, ProofState.DONE},
    ProofState.DIFFERS: {ProofState.ALIGNED, ProofState.SEARCHING},
    ProofState.SEARCHING: {ProofState.ALIGNED, ProofState.DONE},
    ProofState.DONE: set(),
}


class Read(NamedTuple):
    """A chunk that the proof needs: from the source or the target, from an offset on."""

    is_source: bool
    offset: int


class ProofPlace(NamedTuple):
    """A place before which all records are equal, from which a proof can go on."""

    source_offset: int
    target_offset: int
    # From here on the source is read again, to recognize records that come twice.
    recent_offset: int
    equal: int
    equal_raw: int
    source_bytes: int
    target_bytes: int


@dataclass(slots=True)
class ProofResult:
    """What was compared, and what differs."""

    # Records that are equal on both sides.
    equal: int = 0
    # Of these, records whose batches were compared as bytes.
    equal_raw: int = 0
    source_bytes: int = 0
    target_bytes: int = 0
    differences: Differences = field(default_factory=Differences)


class PartitionProof:
    """The comparison of one partition."""

    def __init__(
        self,
        source: tuple[int, int],
        target: tuple[int, int],
        mapping: OffsetMapping | None = None,
        *,
        ignores_timestamps: bool = False,
        views: tuple[RecordView, RecordView] | None = None,
    ) -> None:
        """Begin; `source` and `target` are the ranges of offsets (end exclusive), `views` what is
        compared of both: without them everything, and batches as bytes where they are equal."""
        self.state = ProofState.ALIGNED
        self.result = ProofResult()
        mine, theirs = views or (None, None)
        self._source = SideStream(*source, ignores_timestamps=ignores_timestamps, view=mine)
        self._target = SideStream(*target, ignores_timestamps=ignores_timestamps, view=theirs)
        self._mapping = mapping
        self._ignores_timestamps = ignores_timestamps
        self._classifier = Classifier(self._source.recent)
        self._stride = 1
        self._search: _Search | None = None
        # Where the source is read again before the proof goes on, and up to where.
        self._again: tuple[int, int] | None = None

    def place(self) -> ProofPlace | None:
        """Return how far everything is equal; None after a difference, or if that is unknown."""
        source, target = self._source.next_offset, self._target.next_offset
        if self.state is not ProofState.ALIGNED or len(self.result.differences):
            return None
        if source is None or target is None or self._again is not None:
            return None
        return ProofPlace(
            source, target, min(source, self._source.recent_offset), self.result.equal,
            self.result.equal_raw, self._source.size, self._target.size,
        )  # fmt: skip

    def go_on(self, place: ProofPlace) -> None:
        """Begin at a place that a proof of the same ranges came to."""
        self._source.restart(place.source_offset)
        self._target.restart(place.target_offset)
        self.result.equal, self.result.equal_raw = place.equal, place.equal_raw
        self._source.size, self._target.size = place.source_bytes, place.target_bytes
        if place.recent_offset < place.source_offset:
            self._again = place.recent_offset, place.source_offset

    def next_read(self) -> Read | None:
        """Compare as far as possible; return what must be read next, or None at the end.

        Work per call is bounded by what one chunk and the windows hold.
        """
        if self._again is not None:
            return Read(is_source=True, offset=self._again[0])
        while self.state is not ProofState.DONE:
            if self.state is ProofState.SEARCHING:
                wanted = self._searched()
            elif self.state is ProofState.DIFFERS:
                wanted = self._resolved()
            else:
                wanted = self._compared()
            if wanted is not None:
                return wanted
        return None

    def add(self, read: Read, chunk: Chunk) -> None:
        """Take the chunk that `read` asked for."""
        if self._again is not None:
            self._add_again(chunk, self._again[1])
            return
        if self._search is not None:
            self._search.add(read, chunk)
            return
        side = self._source if read.is_source else self._target
        side.add(chunk)
        self._note_damages(side)

    def _add_again(self, chunk: Chunk, end: int) -> None:
        count = int(np.searchsorted(chunk.batches.columns.last_offsets, end))
        if count:
            self._source.remember(chunk.batches.part(slice(count)))
        is_over = chunk.is_last or chunk.next_offset >= end
        self._again = None if is_over else (chunk.next_offset, end)

    def _note_damages(self, side: SideStream) -> None:
        found = unreadable_batches(side.damages, is_source=side is self._source)
        self.result.differences.extend(found)
        side.damages = []

    def _go(self, state: ProofState) -> None:
        if state not in _MOVES[self.state]:
            raise AssertionError(f"a proof does not go from {self.state.name} to {state.name}")
        self.state = state

    def _read_of(self, side: SideStream) -> Read:
        return Read(side is self._source, side.position)

    # ALIGNED

    def _compared(self) -> Read | None:
        source, target = self._source, self._target
        for side in (source, target):
            if side.needs_chunk and not len(side.records):
                return self._read_of(side)
        if source.is_at_end and target.is_at_end:
            self._finish()
        elif source.is_at_end or target.is_at_end:
            self._go(ProofState.DIFFERS)
        elif not len(source.records) and not len(target.records) and self._skip_equal_batches():
            self._stride = 1
        elif not self._fill():
            self._compare_records()
        return None

    def _finish(self) -> None:
        self.result.source_bytes, self.result.target_bytes = self._source.size, self._target.size
        self._go(ProofState.DONE)

    def _skip_equal_batches(self) -> bool:
        if self._source.view is not None:
            return False
        source, target = self._source.waiting, self._target.waiting
        assert source is not None
        assert target is not None
        may_be_raw = self._may_be_raw(source, target)
        count = equal_run(source, target, may_be_raw, ignores_timestamps=self._ignores_timestamps)
        if count:
            records = self._source.skip_batches(count)
            self._target.skip_batches(count)
            self.result.equal += records
            self.result.equal_raw += records
        return count > 0

    def _may_be_raw(self, source: Batches, target: Batches) -> Mask:
        """Return which pairs are whole in the range and, with a map, at the right offsets."""
        count = min(len(source.columns), len(target.columns))
        may_be = np.ones(count, np.bool_)
        for side, batches in ((self._source, source), (self._target, target)):
            columns = batches.columns
            may_be &= columns.base_offsets[:count] >= side.first
            may_be &= columns.last_offsets[:count] < side.end
        if self._mapping is not None:
            for of in ("base_offsets", "last_offsets"):
                mapped = self._mapping.target_offsets(getattr(source.columns, of)[:count])
                may_be &= mapped == getattr(target.columns, of)[:count]
        return may_be

    def _fill(self) -> bool:
        """Decode on sides without records; return whether something was decoded.

        Where one side has records, the other decodes as many, so that both come to the end of a
        batch together again if their batches have equal borders. As long as they do not, more is
        decoded each time: the borders may differ everywhere.
        """
        source, target = self._source, self._target
        empty = [side for side in (source, target) if not len(side.records)]
        for side in empty:
            other = target if side is source else source
            side.decode_records(max(len(other.records), self._stride))
            self._note_damages(side)
        if empty:
            self._stride = min(self._stride * 2, _STRIDE_MAX)
        return bool(empty)

    def _compare_records(self) -> None:
        source, target = self._source.records, self._target.records
        count = min(len(source), len(target))
        if self._mapping is not None:
            mapped = self._mapping.target_offsets(source.offsets[:count])
            is_right = mapped == target.offsets[:count]
            count = count if is_right.all() else int(np.argmin(is_right))
        same = _equal_prefix(source.identities, target.identities, count)
        self._pass(same, same)
        self.result.equal += same
        if same < min(len(source), len(target)):
            self._go(ProofState.DIFFERS)

    def _pass(self, source: int, target: int) -> None:
        self._source.skip_records(source)
        self._target.skip_records(target)

    # DIFFERS

    def _resolved(self) -> Read | None:
        is_complete = self._source.is_exhausted and self._target.is_exhausted
        if self._mapping is not None:
            hunk = self._mapped_hunk(self._mapping, is_complete=is_complete)
        elif is_complete and not (len(self._source.records) and len(self._target.records)):
            hunk = Hunk(len(self._source.records), len(self._target.records), [])
        else:
            source, target = self._source.records.identities, self._target.records.identities
            hunk = next_hunk(source, target, is_complete=is_complete) if source and target else None
        if hunk is not None:
            self._report(hunk)
            self._go(ProofState.ALIGNED)
            return None
        return self._more()

    def _more(self) -> Read | None:
        """Decode more on both sides, as many records as there are; begin a search if that is too
        much."""
        sides = (self._source, self._target)
        for side in sides:
            if side.needs_chunk and not side.is_window_full:
                return self._read_of(side)
        grows = [side for side in sides if side.waiting is not None and not side.is_window_full]
        for side in grows:
            side.decode_records(max(ANCHOR, len(side.records)))
            self._note_damages(side)
        if grows:
            return None
        if all(side.is_exhausted or side.is_at_end for side in sides):
            return None
        if self._source.is_at_end or self._target.is_at_end:
            # One side has ended: what the other still has is a region of its own.
            self._report(Hunk(len(self._source.records), len(self._target.records), []))
            self._go(ProofState.ALIGNED)
            return None
        hunk = loose_hunk(self._source.records.identities, self._target.records.identities)
        if hunk is not None:
            self._report(hunk)
            self._go(ProofState.ALIGNED)
            return None
        self._go(ProofState.SEARCHING)
        self._search = _Search(self._source, self._target)
        return None

    def _mapped_hunk(self, mapping: OffsetMapping, *, is_complete: bool) -> Hunk | None:
        """Return the region up to the lower of both windows' last offsets; None to decode more."""
        source, target = self._source, self._target
        expected = mapping.target_offsets(source.records.offsets)
        # A record that was not copied belongs to the last one before it that was.
        reached = np.maximum.accumulate(expected)
        ends = [
            int(offsets[-1]) if len(offsets) else -1
            for offsets in (reached, target.records.offsets)
        ]
        bounds = [
            end for end, side in zip(ends, (source, target), strict=True) if not side.is_exhausted
        ]
        bound = min(bounds, default=max(ends))
        count = int(np.searchsorted(reached, bound, side="right"))
        theirs = int(np.searchsorted(target.records.offsets, bound, side="right"))
        if not count and not theirs and not is_complete:
            return None
        _, i, j = np.intersect1d(
            expected[:count], target.records.offsets[:theirs], return_indices=True
        )
        return Hunk(count, theirs, list(zip(i.tolist(), j.tolist(), strict=True)))

    def _report(self, hunk: Hunk) -> None:
        source = _side_of(self._source, hunk.source)
        target = _side_of(self._target, hunk.target)
        is_mapped = self._mapping is not None
        found, moved = self._classifier.region(source, target, hunk.pairs, is_mapped=is_mapped)
        self.result.equal += sum(
            source.identities[i] == target.identities[j] for i, j in hunk.pairs
        )
        for each in moved:
            self.result.differences.move(each)
        self.result.differences.extend(found)
        self._pass(hunk.source, hunk.target)

    # SEARCHING

    def _searched(self) -> Read | None:
        search = self._search
        assert search is not None
        if not search.is_over:
            wanted = search.next_read()
            if wanted is not None:
                return wanted
        self.result.differences.extend(search.differences())
        self._search = None
        source, target = search.met
        self._source.restart(source)
        self._target.restart(target)
        self._go(ProofState.ALIGNED)
        return None


class _Search:
    """Reads both sides on, by turns, until one comes to the other's window.

    Whatever lies before the meeting point is reported as two ranges, missing and extra.
    """

    def __init__(self, source: SideStream, target: SideStream) -> None:
        heads = source.records, target.records
        # The probe of the source looks for the target's head, and the other way round.
        self._probes = (
            _Probe(source, heads[0], heads[1]),
            _Probe(target, heads[1], heads[0]),
        )
        self._turn = 0
        self.is_over = False
        # Where both sides go on.
        self.met = source.end, target.end
        self._counts = [0, 0]

    def next_read(self) -> Read | None:
        """Return the next chunk to read; None if both sides have ended."""
        for turn in (self._turn, 1 - self._turn):
            if not self._probes[turn].is_read:
                return Read(turn == 0, self._probes[turn].position)
        self._counts = [probe.count for probe in self._probes]
        self.is_over = True
        return None

    def add(self, read: Read, chunk: Chunk) -> None:
        """Look for the other side's head in a chunk."""
        turn = 0 if read.is_source else 1
        self._turn = 1 - turn
        probe, other = self._probes[turn], self._probes[1 - turn]
        found = probe.look(chunk)
        if found is None:
            return
        offset, count, index = found
        own, theirs = (offset, count), (int(other.head.offsets[index]), index)
        pair = (own, theirs) if read.is_source else (theirs, own)
        self.met = pair[0][0], pair[1][0]
        self._counts = [pair[0][1], pair[1][1]]
        self.is_over = True

    def differences(self) -> list[Difference]:
        """Return the ranges before the meeting point."""
        source, target = (int(probe.head.offsets[0]) for probe in self._probes)
        found = []
        if self._counts[0]:
            found.append(Difference(DifferenceKind.MISSING, source, target, self._counts[0]))
        if self._counts[1]:
            found.append(Difference(DifferenceKind.EXTRA, self.met[0], target, self._counts[1]))
        return found


class _Probe:
    """One side of a search: counts records until `ANCHOR` of them are in the other side's head."""

    def __init__(self, side: SideStream, head: Records, wanted: Records) -> None:
        self.head = head
        # Batches that were read and not decoded are read once more.
        self.position = int(head.offsets[-1]) + 1 if len(head) else side.position
        self.count = len(head)
        self._end = side.end
        self._first = self.position
        self.is_read = side.is_exhausted
        self._wanted = wanted.identities[:_HEAD_MAX]
        self._places: dict[Identity, int] = {}
        for at, identity in enumerate(self._wanted):
            self._places.setdefault(identity, at)
        self._side = side
        # The last records of the chunk before: an anchor may begin there.
        self._last: deque[tuple[int, Identity]] = deque(maxlen=ANCHOR - 1)

    def look(self, chunk: Chunk) -> tuple[int, int, int] | None:
        """Return (offset, records before it, index in the other head) of a meeting point."""
        self.position = chunk.next_offset
        self.is_read = chunk.is_last or self.position >= self._end
        records, _ = decode(
            chunk.batches, self._first, self._end,
            ignores_timestamps=self._side.ignores_timestamps, view=self._side.view,
        )  # fmt: skip
        offsets = [offset for offset, _ in self._last] + records.offsets.tolist()
        identities = [each for _, each in self._last] + records.identities
        before = self.count - len(self._last)
        for at, identity in enumerate(identities):
            index = self._places.get(identity)
            if index is not None and self._is_anchor(identities, at, index):
                return offsets[at], before + at, index
        self.count += len(records)
        self._last.extend(zip(offsets, identities, strict=True))
        return None

    def _is_anchor(self, identities: list[Identity], at: int, index: int) -> bool:
        run = self._wanted[index : index + ANCHOR]
        return len(run) == min(ANCHOR, len(self._wanted)) and identities[at : at + len(run)] == run


def _equal_prefix(source: list[Identity], target: list[Identity], count: int) -> int:
    """Return how many of the first `count` records are equal."""
    if source[:count] == target[:count]:
        return count
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if source[low:middle] == target[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _side_of(side: SideStream, count: int) -> Side:
    records = side.records
    offsets = records.offsets[: count + 1].tolist()
    following = offsets[count] if len(offsets) > count else min(side.position, side.end)
    return Side(records.identities[:count], offsets[:count], following)
