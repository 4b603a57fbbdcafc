"""LogSegments: the segments of a log by base offset, copied on every change.

A reader of `all` keeps iterating over the segments as they were; a change replaces the tuple.

Kafka 2.7: kafka.log.Log (`segments`), trunk's LogSegments
"""

from bisect import bisect_right
from collections.abc import Iterable

from kctl.broker.log.log_segment import LogSegment


class LogSegments:
    """The segments of a log; never empty once the log is loaded; the last one is active."""

    __slots__ = ("_offsets", "active", "all")

    active: LogSegment

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        # Ordered by base offset.
        self.all: tuple[LogSegment, ...] = ()
        self._offsets: tuple[int, ...] = ()
        self._set(segments)

    def _set(self, segments: Iterable[LogSegment]) -> None:
        self.all = tuple(sorted(segments, key=lambda segment: segment.base_offset))
        self._offsets = tuple(segment.base_offset for segment in self.all)
        if self.all:
            self.active = self.all[-1]

    def __len__(self) -> int:
        return len(self.all)

    def add(self, segment: LogSegment) -> None:
        """Add a segment; it replaces one with the same base offset."""
        others = [other for other in self.all if other.base_offset != segment.base_offset]
        self._set([*others, segment])

    def remove(self, gone: Iterable[LogSegment]) -> None:
        """Remove segments."""
        offsets = {segment.base_offset for segment in gone}
        self._set(segment for segment in self.all if segment.base_offset not in offsets)

    def replace(self, gone: Iterable[LogSegment], segment: LogSegment) -> None:
        """Replace several segments with one."""
        offsets = {other.base_offset for other in gone}
        self._set([*(it for it in self.all if it.base_offset not in offsets), segment])

    def floor_index(self, offset: int) -> int:
        """Return the index in `all` of the last segment that begins at or below `offset`, or -1."""
        return bisect_right(self._offsets, offset) - 1

    def floor(self, offset: int) -> LogSegment | None:
        """Return the last segment that begins at or below `offset`, or None."""
        index = self.floor_index(offset)
        return self.all[index] if index >= 0 else None

    def lower(self, offset: int) -> LogSegment | None:
        """Return the last segment that begins below `offset`, or None."""
        return self.floor(offset - 1)

    def since(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segments from the one that holds `offset` to the active one."""
        first = max(0, self.floor_index(offset))
        return self.all[first:]

    def moved_to(self, directory: str) -> "LogSegments":
        """Return these closed segments, whose directory has a new name."""
        for segment in self.all:
            segment.moved_to(directory)
        return self

    @property
    def size(self) -> int:
        """Return the bytes of all .log files."""
        return sum(segment.size for segment in self.all)
