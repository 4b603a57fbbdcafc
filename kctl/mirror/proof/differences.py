"""Difference: what a proof reports with the offsets of both sides, and the bounded list of them."""

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.records.columnar_batches import BatchDamage

# Differences that a partition's result lists; the others are only counted.
LISTED_MAX = 1_000
# The offset on a side that has none.
NO_OFFSET = -1


class DifferenceKind(StrEnum):
    """How records of source and target differ."""

    # At the source, not at the target.
    MISSING = "missing"
    # At the target, not at the source.
    EXTRA = "extra"
    # At the target more often than at the source.
    DOUBLE = "double"
    # At both, at another place in the order.
    OUT_OF_ORDER = "out of order"
    # At the same place in the order, with another key, value, header or timestamp.
    CHANGED = "changed"
    # A batch that cannot be read; its records are reported as missing or extra too.
    UNREADABLE = "unreadable"


@dataclass(slots=True)
class Difference:
    """`count` consecutive records that differ in the same way, the first at these offsets.

    A side without the record has the offset at which it should be, or NO_OFFSET if that is unknown.
    """

    kind: DifferenceKind
    source_offset: int
    target_offset: int
    count: int = 1
    # What differs in a CHANGED record: key, value, headers, timestamp.
    fields: tuple[str, ...] = ()
    # Why a batch is UNREADABLE.
    reason: str = ""

    def joins(self, other: "Difference") -> bool:
        """Return whether `other` directly continues this difference."""
        if self.kind is not other.kind or self.fields != other.fields or self.reason:
            return False
        has_source = self.kind is not DifferenceKind.EXTRA
        has_target = self.kind is not DifferenceKind.MISSING
        return other.source_offset == self.source_offset + self.count * has_source and (
            other.target_offset == self.target_offset + self.count * has_target
        )


@dataclass(frozen=True, slots=True)
class Moved:
    """A record reported as `kind` (MISSING or EXTRA), and where it is on the other side."""

    kind: DifferenceKind
    own_offset: int
    other_offset: int

    @property
    def is_missing(self) -> bool:
        """Return whether the record was reported as missing."""
        return self.kind is DifferenceKind.MISSING


@dataclass(slots=True)
class Differences:
    """Counts of records per kind, and the first `LISTED_MAX` differences in the order found."""

    listed: list[Difference] = field(default_factory=list)
    counts: dict[DifferenceKind, int] = field(default_factory=dict)
    unlisted: int = 0

    def add(self, found: Difference) -> None:
        """Count a difference, and list it or join it to the last one."""
        self.counts[found.kind] = self.counts.get(found.kind, 0) + found.count
        if self.listed and not self.unlisted and self.listed[-1].joins(found):
            self.listed[-1].count += found.count
        elif len(self.listed) < LISTED_MAX:
            self.listed.append(found)
        else:
            self.unlisted += 1

    def move(self, found: "Moved") -> None:
        """Report a record that was reported as missing or extra, and turned up on the other side,
        as out of order."""
        self.counts[found.kind] -= 1
        if not self.counts[found.kind]:
            del self.counts[found.kind]
        for at, each in enumerate(self.listed):
            own = each.source_offset if found.is_missing else each.target_offset
            if each.kind is found.kind and own <= found.own_offset < own + each.count:
                self.listed[at : at + 1] = _parts(each, found.own_offset - own, found.is_missing)
                break
        offsets = (found.own_offset, found.other_offset)
        self.add(
            Difference(
                DifferenceKind.OUT_OF_ORDER, *(offsets if found.is_missing else offsets[::-1])
            )
        )

    def extend(self, found: Sequence[Difference]) -> None:
        """Add several differences, in their order."""
        for each in found:
            self.add(each)

    def __len__(self) -> int:
        """Return the number of records that differ."""
        return sum(self.counts.values())


def unreadable_batches(damages: "Iterable[BatchDamage]", *, is_source: bool) -> list[Difference]:
    """Return batches of a side that cannot be read as differences."""
    return [
        Difference(
            DifferenceKind.UNREADABLE,
            each.offset if is_source else NO_OFFSET,
            NO_OFFSET if is_source else each.offset,
            max(1, each.last_offset - each.offset + 1),
            (),
            each.message,
        )
        for each in damages
    ]


def _parts(found: Difference, index: int, is_missing: bool) -> list[Difference]:
    """Return a difference without its record `index`: none, one or two differences."""
    after = index + 1
    parts = [
        replace(found, count=index),
        replace(
            found,
            source_offset=found.source_offset + after * is_missing,
            target_offset=found.target_offset + after * (not is_missing),
            count=found.count - after,
        ),
    ]
    return [part for part in parts if part.count]
