"""Options that choose records of a log directory, and what they mean for one partition."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.offsets import Position
    from kctl.dump.filters import RecordFilter
    from kctl.runtime.disk import Disk


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """As they were typed."""

    offsets: str | None = None
    keys: tuple[str, ...] = ()
    key_pattern: str | None = None
    headers: tuple[str, ...] = ()
    leader_epoch: int | None = None
    producer_id: int | None = None
    only_control: bool = False
    only_aborted: bool = False
    group: str | None = None
    transactional_id: str | None = None

    @property
    def look_into_records(self) -> bool:
        """Whether headers of batches do not suffice."""
        return bool(
            self.keys or self.key_pattern or self.headers or self.group or self.transactional_id
        )


class FilterFactory:
    """Turns the options into a filter for each partition: times and tails differ between them."""

    def __init__(self, disk: "Disk", options: FilterOptions, now_ms: int) -> None:
        """UsageError if one makes no sense."""
        from kctl.dump.filters import RecordFilter

        self._disk = disk
        self._range: tuple[Position, Position | None] | None = None
        if options.offsets is not None:
            from kctl.cli.positions import parse_range

            self._range = parse_range(options.offsets, now_ms)
        self._common = RecordFilter(
            keys=tuple(key.encode() for key in options.keys),
            key_pattern=_pattern(options.key_pattern),
            headers=tuple(map(_header, options.headers)),
            leader_epoch=options.leader_epoch,
            producer_id=options.producer_id,
            only_control=options.only_control,
            only_aborted=options.only_aborted,
            group=options.group,
            transactional_id=options.transactional_id,
        )

    def filter_for(self, directory: str) -> "RecordFilter":
        """What is wanted of the partition in `directory`."""
        from dataclasses import replace

        if self._range is None:
            return self._common
        start, end = self._range
        return replace(
            self._common,
            start_offset=self._offset(directory, start),
            end_offset=None if end is None else self._offset(directory, end),
        )

    def _offset(self, directory: str, position: "Position") -> int:
        from kctl.admin.offsets import PositionKind
        from kctl.dump.seek import end_offset, offset_at_time

        kind = position.kind
        if kind is PositionKind.OFFSET:
            return position.value
        if kind is PositionKind.EARLIEST:
            return 0
        end = end_offset(self._disk, directory)
        if kind is PositionKind.LATEST:
            return end
        if kind is PositionKind.TAIL:
            return max(0, end - position.value)
        found = offset_at_time(self._disk, directory, position.value)
        return end if found is None else found


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise UsageError(f"Not a regular expression: {text}: {error}") from None


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None
