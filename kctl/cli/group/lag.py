"""kctl group lag: how far groups are behind, in records, bytes and time, and their trends."""

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.group.listing import left_out, report_missing_brokers
from kctl.cli.output import OutputFormat, Table
from kctl.cli.session import Session
from kctl.cli.units import format_bytes, format_duration, format_instant, parse_duration_ms
from kctl.counts import counted, is_whole_number
from kctl.errors import UsageError
from kctl.runtime.terminal_text import for_log_line

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.group_lag import GroupLag, LagReport, MeasuredLag

_COLUMNS = ("group", "state", "records", "bytes", "time", "trend")
_PARTITION_COLUMNS = (
    "group", "topic", "partition", "committed_offset", "end_offset", "records", "bytes", "time",
    "trend",
)  # fmt: skip
_WATCHED_FORMATS = (OutputFormat.TABLE, OutputFormat.NDJSON)

GroupsArgument = Annotated[
    list[str] | None, Argument(metavar="GROUP", help="Names or globs. [default: all]")
]
ByPartitionOption = Annotated[bool, Option("--by-partition", help="Show one line per partition.")]
WindowOption = Annotated[
    str, Option("--window", metavar="DURATION", help="Take samples for this time first.")
]
WatchOption = Annotated[bool, Option("--watch", "-w", help="Repeat until Ctrl-C.")]
EveryOption = Annotated[str, Option("--every", metavar="DURATION", help="Interval of samples.")]
FailAboveOption = Annotated[
    list[str] | None,
    Option(
        "--fail-above",
        metavar="RECORDS|DURATION",
        help="Exit 1 if (with --watch: once) a group is further behind; may be repeated.",
    ),
]
PlotOption = Annotated[bool, Option("--plot", help="Draw the lags as bars.")]


def lag(
    session: Session,
    names: GroupsArgument = None,
    by_partition: ByPartitionOption = False,
    window: WindowOption = "0s",
    watch: WatchOption = False,
    every: EveryOption = "2s",
    fail_above: FailAboveOption = None,
    plot: PlotOption = False,
) -> int:
    """Show how far groups are behind, in records, bytes and time, and the trend of their lags.

    Bytes are estimated from the sizes of logs. The time is that between the timestamps of the first
    record that is not committed and of the last record of a partition; a group's is the longest. A
    note gives the records in partitions without a committed offset, which are not counted.

    The trend is steady, catching up, falling behind or stopped. It is judged from the commits in
    a window of samples, by the rules of Burrow: --window takes samples first, --watch keeps them. A
    group that has not committed for 30s is stopped; one without members at once.

    \b
    Examples:
      kctl group lag
      kctl group lag billing --by-partition
      kctl group lag billing --window 1m -o json
      kctl group lag 'prod-*' --fail-above 100000 --fail-above 15m
      kctl group lag billing --plot
      kctl group lag billing --watch --every 30s --fail-above 15m
    """
    from kctl.admin.group_lag import LagWatch
    from kctl.cli.interrupt import Interrupt

    window_ms, every_ms = parse_duration_ms(window), parse_duration_ms(every)
    limits = [_limit(text) for text in fail_above or ()]
    if every_ms < 1:
        raise UsageError(f"--every must be at least 1ms, not {every}")
    if watch:
        _check_watched(session, window_ms=window_ms)
    columns = _PARTITION_COLUMNS if by_partition else _COLUMNS

    def show(report: "LagReport") -> int:
        return _show(session, report, columns, plot=plot, is_watched=watch)

    def is_above(report: "LagReport") -> bool:
        return _report_above(session, report, limits, names or [])

    interrupt = Interrupt(session.runtime.scheduler)
    if not watch:
        found = interrupt.run(
            lambda: session.run(
                lambda admin: LagWatch(admin, names or []).report_after(window_ms, every_ms),
                interrupt.guard,
            )
        )
        if found is None:
            return interrupt.status
        status = show(found)
        return FAILED if is_above(found) else status

    def is_last(report: "LagReport") -> bool:
        show(report)
        return is_above(report)

    def keep_looking(admin: "AdminClient") -> Coroutine[Any, Any, None]:
        return LagWatch(admin, names or []).watch(
            every_ms, is_last, lambda error: session.output.say(f"error: {error}")
        )

    interrupt.run(lambda: session.run(keep_looking, interrupt.guard))
    return interrupt.status or FAILED


def _check_watched(session: Session, *, window_ms: int) -> None:
    if session.output.format not in _WATCHED_FORMATS:
        raise UsageError(
            f"--watch cannot be combined with -o {session.output.format}",
            hint="use -o table or -o ndjson",
        )
    if window_ms:
        raise UsageError("--watch cannot be combined with --window")


def _limit(text: str) -> tuple[str, int]:
    """Return what a limit is compared with, and the limit: a bare number counts records."""
    if is_whole_number(text.strip()):
        return "records", int(text)
    return "time_ms", parse_duration_ms(text)


def _report_above(
    session: Session, report: "LagReport", limits: list[tuple[str, int]], names: Sequence[str]
) -> bool:
    if limits and names and not report.groups:
        # An alert on a group that does not exist must not look like one without a lag.
        session.output.say(f"error: No group matches {for_log_line(' '.join(names))}")
        return True
    is_above = False
    for it in report.groups:
        for key, limit in limits:
            value = it.records if key == "records" else it.time_ms
            if value is not None and value > limit:
                is_above = True
                texts = (
                    (counted(value, "record"), f"{limit}")
                    if key == "records"
                    else (format_duration(value), format_duration(limit))
                )
                name = for_log_line(it.group.group_id)
                session.output.say(f"error: {name} is {texts[0]} behind, more than {texts[1]}")
    return is_above


def _show(
    session: Session,
    report: "LagReport",
    columns: tuple[str, ...],
    *,
    plot: bool,
    is_watched: bool,
) -> int:
    """Print the lags and return the exit status."""
    output = session.output
    documents = [_document(it) for it in report.groups]
    if is_watched:
        now = format_instant(report.time_ms)
        documents = [{"time": now, **document} for document in documents]
        if output.format is OutputFormat.TABLE:
            output.clear_screen()
            output.write(f"{now}\n")
    rows = [
        row
        for it in report.groups
        for row in (_rows(it) if columns is _PARTITION_COLUMNS else [_row(it)])
    ]
    output.show(documents, name="group", tables=[Table(columns, rows)])
    if plot and output.format is OutputFormat.TABLE:
        output.write(_plotted(report, output.width, by_partition=columns is _PARTITION_COLUMNS))
    for it in report.groups:
        if it.uncommitted:
            name, parts = for_log_line(it.group.group_id), it.uncommitted
            output.say(f"note: {name}: {left_out(it.log_records for it in parts)} not counted")
    if report.sizes_error is not None:
        output.say(f"note: no lags in bytes: {report.sizes_error}")
    found = report.overview
    for name, hint in found.missing.items():
        output.say(f"error: No group {name}" + (f"\nhint: {hint}" if hint else ""))
    is_partial = report_missing_brokers(session, found.listing) if found.listing else DONE
    return FAILED if found.missing else is_partial


def _plotted(report: "LagReport", width: int | None, *, by_partition: bool) -> str:
    from kctl.cli.bars import Bar, bar_lines

    if by_partition:
        bars = [
            Bar(f"{it.group.group_id} {part.partition}", part.records, _bar_text(part))
            for it in report.groups
            for part in it.partitions
            if part.records is not None
        ]
    else:
        bars = [
            Bar(it.group.group_id, it.records, _bar_text(it))
            for it in report.groups
            if it.records is not None
        ]
    return "".join(f"{line}\n" for line in ["", *bar_lines(bars, width)]) if bars else ""


def _bar_text(it: "GroupLag | MeasuredLag") -> str:
    return counted(it.records or 0, "record", ",") + (
        "" if it.time_ms is None else f", {format_duration(it.time_ms)}"
    )


def _figures(it: "GroupLag | MeasuredLag") -> dict[str, Any]:
    return {
        "records": it.records,
        "bytes": None if it.bytes is None else format_bytes(it.bytes),
        "time": None if it.time_ms is None else format_duration(it.time_ms),
        "trend": str(it.trend),
    }


def _row(it: "GroupLag") -> dict[str, Any]:
    return {"group": it.group.group_id, "state": it.group.state, **_figures(it)}


def _rows(it: "GroupLag") -> list[dict[str, Any]]:
    return [
        {
            "group": it.group.group_id,
            "topic": part.partition.topic,
            "partition": part.partition.partition,
            "committed_offset": part.committed_offset,
            "end_offset": part.end_offset,
            **_figures(part),
        }
        for part in it.partitions
    ]


def _document(it: "GroupLag") -> dict[str, Any]:
    return {
        "group": it.group.group_id,
        "state": it.group.state,
        "members": len(it.group.members),
        "records": it.records,
        "estimated_bytes": it.bytes,
        "time_ms": it.time_ms,
        "trend": str(it.trend),
        "uncommitted_partitions": len(it.uncommitted),
        "partitions": [
            {
                "topic": part.partition.topic,
                "partition": part.partition.partition,
                "committed_offset": part.committed_offset,
                "end_offset": part.end_offset,
                "records": part.records,
                "estimated_bytes": part.bytes,
                "time_ms": part.time_ms,
                "unread_since": None
                if part.unread_since_ms is None
                else format_instant(part.unread_since_ms),
                "trend": str(part.trend),
                "error": None if part.error is None else str(part.error),
            }
            for part in it.partitions
        ],
    }
