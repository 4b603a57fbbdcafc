"""The options that select records of a log directory, and the filters made of them."""

import re
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.cli.items import positive
from kctl.cli.read_options import OffsetOption
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.dump.filters import RecordFilter
    from kctl.model import Position
    from kctl.runtime.disk import Disk


KeyOption = Annotated[
    list[str] | None, Option("--key", metavar="KEY", help="Only records with that key.")
]
KeyPatternOption = Annotated[
    str | None, Option("--key-pattern", metavar="REGEX", help="Only records with such keys.")
]
HeaderOption = Annotated[
    list[str] | None,
    Option("--header", metavar="NAME[=VALUE]", help="Only records with that header."),
]
EpochOption = Annotated[
    int | None, Option("--leader-epoch", metavar="N", help="Only batches of that epoch.")
]
ProducerOption = Annotated[
    int | None, Option("--producer-id", metavar="ID", help="Only that producer's batches.")
]
OnlyControlOption = Annotated[bool, Option("--only-control", help="Only markers of transactions.")]
OnlyAbortedOption = Annotated[
    bool, Option("--only-aborted", help="Only batches of aborted transactions.")
]
GroupOption = Annotated[
    str | None,
    Option("--group", "-g", metavar="GROUP", help="Only that group's offsets and members."),
]
TransactionalIdOption = Annotated[
    str | None,
    Option("--transactional-id", metavar="ID", help="Only that transaction's states."),
]
LimitOption = Annotated[
    int | None, Option("--limit", metavar="N", help="Stop after N records, or batches.")
]
TailOption = Annotated[int | None, Option("--tail", metavar="N", help="The same as --offset -N.")]


@dataclass(frozen=True)
class FilterOptions:
    """The options that select records, as they are on the command line."""

    offset: OffsetOption = None
    key: KeyOption = None
    key_pattern: KeyPatternOption = None
    header: HeaderOption = None
    leader_epoch: EpochOption = None
    producer_id: ProducerOption = None
    only_control: OnlyControlOption = False
    only_aborted: OnlyAbortedOption = False
    group: GroupOption = None
    transactional_id: TransactionalIdOption = None
    limit: LimitOption = None
    tail: TailOption = None

    @property
    def is_any(self) -> bool:
        """Return whether any record may be left out."""
        return self != FilterOptions()

    @property
    def look_into_records(self) -> bool:
        """Return whether batch headers do not suffice."""
        return bool(
            self.key or self.key_pattern or self.header or self.group or self.transactional_id
        )

    @property
    def offsets(self) -> str | None:
        """Return the range of offsets, where --tail N is --offset -N; raise UsageError for both."""
        if self.offset is not None and self.tail is not None:
            raise UsageError("Only one of --offset and --tail may be given")
        lasts = positive(self.tail, "--tail")
        return self.offset if lasts is None else f"-{lasts}"


class FilterFactory:
    """Turns the options into a filter for each partition: times and tails differ between them."""

    def __init__(self, disk: "Disk", options: FilterOptions, now_ms: int) -> None:
        """Parse the options; UsageError if one is invalid."""
        from kctl.dump.filters import RecordFilter

        self._disk = disk
        self._range: tuple[Position, Position | None] | None = None
        offsets = options.offsets
        if offsets is not None:
            from kctl.cli.positions import check_offline, parse_range

            self._range = parse_range(offsets, now_ms)
            check_offline(self._range)
        self._common = RecordFilter(
            keys=tuple(key.encode() for key in options.key or ()),
            key_pattern=_pattern(options.key_pattern),
            headers=tuple(map(_header, options.header or ())),
            leader_epoch=options.leader_epoch,
            producer_id=options.producer_id,
            only_control=options.only_control,
            only_aborted=options.only_aborted,
            group=options.group,
            transactional_id=options.transactional_id,
        )

    def filter_for(self, directory: str) -> "RecordFilter":
        """Return the filter for the partition in `directory`."""
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
        from kctl.dump.seek import end_offset, offset_at_time
        from kctl.model import PositionKind
        from kctl.storage.segments07 import has_old_files

        kind = position.kind
        if kind is PositionKind.OFFSET:
            return position.value
        if kind is PositionKind.EARLIEST:
            return 0
        if has_old_files(self._disk, directory):
            raise UsageError(
                f"{directory}: messages of Kafka 0.7 are selected by their positions only",
                hint="--offset START..END, in bytes",
            )
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
