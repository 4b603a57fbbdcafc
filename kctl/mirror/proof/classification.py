"""classify: names the differences in a region whose equal records are known.

Records that only the source has and records that only the target has are compared by identity
first: one that is on both sides is out of order, one of the target whose twin was compared before
is double. What is left at the same place is changed, if enough is equal to call it the same record;
otherwise it is missing or extra.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from kctl.lazy_dataclass import dataclass
from kctl.mirror.proof.differences import Difference, DifferenceKind, Moved
from kctl.mirror.proof.records import FIELDS, Identity

# Records of earlier regions that may turn up later, out of order; beyond that they stay missing.
OPEN_MAX = 10_000
# Records of the source that may be the original of a changed one of the target.
_CANDIDATES_MAX = 32


@dataclass(frozen=True, slots=True)
class Side:
    """The records of one side of a region, and the offset of the record after it."""

    identities: Sequence[Identity]
    offsets: Sequence[int]
    next_offset: int

    def offset(self, index: int) -> int:
        """Return a record's offset, or that of the record after the region."""
        return self.offsets[index] if index < len(self.offsets) else self.next_offset


@dataclass(slots=True)
class _OpenRecords:
    """Records reported as `kind` in earlier regions that may turn up on the other side."""

    kind: DifferenceKind
    offsets: dict[Identity, deque[int]] = field(default_factory=dict)
    count: int = 0

    def add(self, identity: Identity, offset: int) -> None:
        """Remember a record, unless too many are remembered."""
        if self.count < OPEN_MAX:
            self.offsets.setdefault(identity, deque()).append(offset)
            self.count += 1

    def take(self, identity: Identity, other_offset: int) -> Moved | None:
        """Forget the record, which is on the other side at `other_offset`; None if it is not
        remembered."""
        found = self.offsets.get(identity)
        if found is None:
            return None
        self.count -= 1
        offset = found.popleft()
        if not found:
            del self.offsets[identity]
        return Moved(self.kind, offset, other_offset)


class Classifier:
    """Names differences, region by region, in order."""

    def __init__(self, recent: Callable[[Identity, int], int | None]) -> None:
        """Begin; `recent` returns the offset below another at which the source has a record, if it
        was read lately."""
        self._recent = recent
        self._missing = _OpenRecords(DifferenceKind.MISSING)
        self._extra = _OpenRecords(DifferenceKind.EXTRA)

    def region(
        self, source: Side, target: Side, pairs: Sequence[tuple[int, int]], *, is_mapped: bool
    ) -> tuple[list[Difference], list[Moved]]:
        """Return the differences of a region in which `pairs` of indexes belong together, and the
        records of earlier regions that turned up in it.

        Pairs may differ. In a mapped region the offsets say which records belong together, so
        records without a partner are not compared by place.
        """
        equal = {(i, j) for i, j in pairs if source.identities[i] == target.identities[j]}
        left = _Left(source, target, equal)
        found = _moved(left)
        moved = self._moved_far(left)
        found += self._doubled(left)
        found += [left.changed(i, j) for i, j in pairs if left.has_both(i, j)]
        if not is_mapped:
            found += _changed_in_place(left, [*pairs, (len(source.offsets), len(target.offsets))])
        for i in left.missing:
            self._missing.add(source.identities[i], source.offsets[i])
            at = left.place_in_target(i)
            found.append(Difference(DifferenceKind.MISSING, source.offsets[i], at))
        for j in left.extra:
            self._extra.add(target.identities[j], target.offsets[j])
            at = left.place_in_source(j)
            found.append(Difference(DifferenceKind.EXTRA, at, target.offsets[j]))
        return found, moved

    def _moved_far(self, left: "_Left") -> list[Moved]:
        moved = []
        for j in list(left.extra):
            found = self._missing.take(left.target.identities[j], left.target.offsets[j])
            if found is not None:
                left.extra.remove(j)
                moved.append(found)
        for i in list(left.missing):
            found = self._extra.take(left.source.identities[i], left.source.offsets[i])
            if found is not None:
                left.missing.remove(i)
                moved.append(found)
        return moved

    def _doubled(self, left: "_Left") -> list[Difference]:
        if not left.extra:
            return []
        here = left.paired_offsets()
        found = []
        for j in list(left.extra):
            identity = left.target.identities[j]
            twin = here.get(identity)
            if twin is None:
                twin = self._recent(identity, left.source.offset(0))
            if twin is not None:
                left.extra.remove(j)
                found.append(Difference(DifferenceKind.DOUBLE, twin, left.target.offsets[j]))
        return found


def _moved(left: "_Left") -> list[Difference]:
    found: list[Difference] = []
    places: dict[Identity, deque[int]] = {}
    for j in left.extra:
        places.setdefault(left.target.identities[j], deque()).append(j)
    for i in list(left.missing):
        at = places.get(left.source.identities[i])
        if at:
            found.append(left.moved(i, at.popleft()))
    return found


class _Left:
    """The records of a region that have no equal partner yet: `missing` and `extra` indexes."""

    def __init__(self, source: Side, target: Side, pairs: set[tuple[int, int]]) -> None:
        self.source = source
        self.target = target
        self._own = [i for i, _ in sorted(pairs)]
        self._theirs = [j for _, j in sorted(pairs)]
        has_source = {i for i, _ in pairs}
        has_target = {j for _, j in pairs}
        self.missing = _Indexes(i for i in range(len(source.offsets)) if i not in has_source)
        self.extra = _Indexes(j for j in range(len(target.offsets)) if j not in has_target)

    def has_both(self, i: int, j: int) -> bool:
        """Return whether neither record has a partner."""
        return i in self.missing and j in self.extra

    def moved(self, i: int, j: int) -> Difference:
        """Return the difference of a record at another place, which both sides have."""
        self.missing.remove(i)
        self.extra.remove(j)
        return Difference(
            DifferenceKind.OUT_OF_ORDER, self.source.offsets[i], self.target.offsets[j]
        )

    def changed(self, i: int, j: int) -> Difference:
        """Return the difference of a record whose fields changed."""
        self.missing.remove(i)
        self.extra.remove(j)
        mine, theirs = self.source.identities[i], self.target.identities[j]
        fields = tuple(name for name, a, b in zip(FIELDS, mine, theirs, strict=True) if a != b)
        return Difference(
            DifferenceKind.CHANGED, self.source.offsets[i], self.target.offsets[j], 1, fields
        )

    def paired_offsets(self) -> dict[Identity, int]:
        """Return the source's offsets of the records that have an equal partner, by identity."""
        return {self.source.identities[i]: self.source.offsets[i] for i in self._own}

    def place_in_target(self, i: int) -> int:
        """Return the target's offset after the record that precedes source record `i`."""
        before = bisect_left(self._own, i)
        return self.target.offset(self._theirs[before - 1] + 1 if before else 0)

    def place_in_source(self, j: int) -> int:
        """Return the source's offset after the record that precedes target record `j`."""
        before = bisect_left(self._theirs, j)
        return self.source.offset(self._own[before - 1] + 1 if before else 0)


class _Indexes(dict[int, None]):
    """Indexes in order; one is removed in constant time."""

    def __init__(self, indexes: Iterable[int]) -> None:
        super().__init__(dict.fromkeys(indexes))

    def remove(self, index: int) -> None:
        """Remove an index."""
        del self[index]


def _changed_in_place(left: _Left, ends: Sequence[tuple[int, int]]) -> list[Difference]:
    """Return the changed records between two pairs: as many on both sides, or alike."""
    found = []
    first_i = first_j = 0
    for end_i, end_j in ends:
        missing = [i for i in range(first_i, end_i) if i in left.missing]
        extra = [j for j in range(first_j, end_j) if j in left.extra]
        first_i, first_j = end_i + 1, end_j + 1
        if len(missing) == len(extra):
            found += [
                left.changed(i, j)
                for i, j in zip(missing, extra, strict=True)
                if _may_be_one(left.source.identities[i], left.target.identities[j])
            ]
            continue
        at = 0
        for j in extra:
            alike = (
                number
                for number in range(at, min(len(missing), at + _CANDIDATES_MAX))
                if _are_alike(left.source.identities[missing[number]], left.target.identities[j])
            )
            number = next(alike, -1)
            if number >= 0:
                found.append(left.changed(missing[number], j))
                at = number + 1
    return found


def _are_alike(source: Identity, target: Identity) -> bool:
    """Return whether the records have the same non-empty value, or the same key and timestamp."""
    has_value = bool(source[2]) and source[2] == target[2]
    return has_value or (source[0] == target[0] and source[1] == target[1] is not None)


def _may_be_one(source: Identity, target: Identity) -> bool:
    """Return whether something shows that records at the same place are one that was changed."""
    is_keyed = source[1] == target[1] is not None
    return source[0] == target[0] or is_keyed or _are_alike(source, target)
