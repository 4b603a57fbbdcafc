"""InOrder: gives out the rows of each partition in the order of their offsets.

Tasks finish in any order, and fail. Where a record replaces earlier ones of its key, a row may be
committed only after the rows before it: older records would otherwise come later, and win. In every
table that is followed, the first row of a partition comes first: it is where the partition begins.

Invariant: the rows of a partition that were given out are contiguous, up to gaps that were planned.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from kctl.counts import offset_range
from kctl.errors import UsageError
from kctl.export.manifest import ManifestRow
from kctl.model import TopicPartition


class Range(Protocol):
    """Offsets of a partition that a task exports; the end is exclusive."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class InOrder:
    """Holds rows back until the rows before them have come."""

    def __init__(self, *, only_first: bool = False) -> None:
        """Take whether only the first row of each partition comes before the others."""
        self._only_first = only_first
        self._begun: set[TopicPartition] = set()
        # Where the next row of each partition begins.
        self._next: dict[TopicPartition, int] = {}
        # Planned gaps: an end to the first offset after it.
        self._after: dict[TopicPartition, dict[int, int]] = {}
        self._held: dict[TopicPartition, dict[int, ManifestRow]] = {}

    @property
    def holds_rows(self) -> bool:
        """Return whether rows are held back."""
        return any(self._held.values())

    def has_passed(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether a row with this offset would come after later ones of its partition."""
        return not self._only_first and offset < self._next.get(partition, 0)

    def begin(self, partition: TopicPartition, offset: int) -> None:
        """Expect the rows of a partition from `offset` on, unless its rows are expected already."""
        self._next.setdefault(partition, offset)

    def resume(self, partition: TopicPartition, end_offset: int) -> None:
        """Expect the rows of a partition that has rows up to an offset, exclusive."""
        self._begun.add(partition)
        self._next[partition] = end_offset

    def plan(self, ranges: Iterable[Range]) -> None:
        """Expect the rows of all ranges, and nothing between them."""
        ends: dict[TopicPartition, int] = {}
        for each in sorted(ranges, key=lambda it: (it.topic, it.partition, it.first_offset)):
            partition = TopicPartition(each.topic, each.partition)
            if partition in ends:
                gaps = self._after.setdefault(partition, {})
                gaps[ends[partition]] = each.first_offset
            self.begin(partition, each.first_offset)
            ends[partition] = each.end_offset

    def add(self, row: ManifestRow) -> list[ManifestRow]:
        """Return the rows that may be committed now, in order: `row`, later ones, or none.

        A row without files, such as of deleted records, may come after those behind it.
        """
        partition = TopicPartition(row.topic, row.partition)
        self.begin(partition, row.first_offset)
        is_past = not row.files and self.has_passed(partition, row.first_offset)
        if is_past or (self._only_first and partition in self._begun):
            return [row]
        held = self._held.setdefault(partition, {})
        held[row.first_offset] = row
        gaps = self._after.get(partition, {})
        ready = []
        while (found := held.pop(self._next[partition], None)) is not None:
            ready.append(found)
            end = found.end_offset
            self._next[partition] = gaps.get(end, end)
        if ready:
            self._begun.add(partition)
            if self._only_first:
                ready += [held.pop(offset) for offset in sorted(held)]
        return ready


def check_order(
    ranges: Iterable[Range],
    done: Mapping[tuple[str, int], list[tuple[int, int]]],
    starts: Mapping[tuple[str, int], int],
) -> None:
    """Raise UsageError for ranges before offsets that the table has already, and for those that
    leave out records after these offsets: they could not be merged later.

    `starts` are the first offsets of logs, where they are known: earlier records are gone.
    """
    firsts: dict[tuple[str, int], int] = {}
    for each in ranges:
        key = each.topic, each.partition
        firsts[key] = min(each.first_offset, firsts.get(key, each.first_offset))
    for key, first in firsts.items():
        ends = done.get(key)
        if not ends:
            continue
        partition, end = TopicPartition(*key), max(end for _, end in ends)
        if first < end:
            raise too_early(partition, first)
        if first > max(end, starts.get(key, 0)):
            raise UsageError(
                f"{partition}: the table ends at offset {end}, and {offset_range(end, first - 1)} "
                "would be left out: the latest of each key are found in the order of offsets",
                hint="leave --offset out: a run continues where the table ends",
            )


def too_early(partition: TopicPartition, offset: int) -> UsageError:
    """Return the error for records before those that were merged."""
    return UsageError(
        f"{partition}: the table has later records than offset {offset}, and the latest of each "
        "key are found in the order of offsets",
        hint="export to a new --out, from the first offset on",
    )
