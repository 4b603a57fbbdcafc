"""kctl mirror status: how far a mirror is behind its source."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.mirror.ends import EndOptions
from kctl.cli.mirror.topic_options import DEFAULT_NAME, NameOption
from kctl.cli.output import OutputFormat
from kctl.cli.units import format_bytes, format_duration, format_instant, parse_duration_ms
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.cli.session import Session
    from kctl.mirror.status import MirrorStatus, PartitionStatus

COLUMNS = (
    "topic", "partition", "target", "position", "end", "lag_records", "lag_bytes", "lag_time",
    "state",
)  # fmt: skip


def status(ends: EndOptions, name: NameOption = DEFAULT_NAME) -> int:
    """Show how far a mirror is behind its source: in records, in bytes, and the age of the oldest
    record that it has not copied. Exit with 1 if the source lost records before they were copied,
    or a partition cannot be reached.

    All topics that the mirror selects are listed as soon as they exist at the source, also those of
    which nothing was copied yet.

    The lag in records counts offsets, and the lag in bytes is estimated from the average size of
    the partition's records.

    \b
    Examples:
      kctl mirror status --source dc1:9092 --target dc2:9092
      kctl mirror status --source dc1:9092 --target dc2:9092 --name dc1-to-dc2 -o json
    """
    from kctl.mirror.formats import check_name
    from kctl.mirror.status import mirror_status

    check_name(name)
    session = ends.session()
    now_ms = session.now_ms()
    found = ends.run(session, lambda source, target: mirror_status(source, target, name, now_ms))
    return _show(session, found, name)


def watch(
    ends: EndOptions,
    name: NameOption = DEFAULT_NAME,
    every: Annotated[
        str, Option("--every", metavar="DURATION", help="Time between two updates.")
    ] = "2s",
    until_caught_up: Annotated[
        bool, Option("--until-caught-up", help="End when nothing is left to copy.")
    ] = False,
) -> int:
    """Watch how far a mirror is behind its source, until Ctrl-C. The columns are those of status.

    \b
    Examples:
      kctl mirror watch --source dc1:9092 --target dc2:9092
      kctl mirror watch --source dc1:9092 --target dc2:9092 --until-caught-up
      kctl mirror watch --source dc1:9092 --target dc2:9092 --every 10s -o ndjson
    """
    from kctl.cli.interrupt import Interrupt
    from kctl.mirror.formats import check_name
    from kctl.mirror.status import watch_status

    check_name(name)
    if ends.output_format not in (OutputFormat.TABLE, OutputFormat.NDJSON):
        raise UsageError(
            f"watch cannot be combined with -o {ends.output_format}",
            hint="use -o table or -o ndjson",
        )
    every_ms = parse_duration_ms(every)
    if every_ms < 1:
        raise UsageError(f"--every must be at least 1ms, not {every}")
    session = ends.session()
    interrupt = Interrupt(session.runtime.scheduler)

    def draw(found: "MirrorStatus") -> None:
        if session.output.format is OutputFormat.TABLE:
            session.output.clear_screen()
            session.output.write(f"{format_instant(session.now_ms())}\n")
        _show(session, found, name)

    interrupt.run(
        lambda: ends.run(
            session,
            lambda source, target: watch_status(
                source, target, name, every_ms, draw,
                lambda error: session.output.say(f"error: {error}"),
                until_caught_up=until_caught_up,
            ),
            interrupt.guard,
        )
    )  # fmt: skip
    return interrupt.status


def _show(session: "Session", found: "MirrorStatus", name: str) -> int:
    """Print a row per partition; return the exit status."""
    from kctl.mirror.status import MirrorState

    is_table = session.output.format is OutputFormat.TABLE
    rows = [_document(each, is_table=is_table) for each in found.partitions]
    session.output.show(rows, COLUMNS, name="topic")
    if not found.knows_topics:
        session.output.say(unknown_topics(name))
    bad = (MirrorState.LOST, MirrorState.UNREACHABLE)
    is_bad = any(each.state in bad for each in found.partitions)
    return FAILED if is_bad else DONE


def unknown_topics(name: str) -> str:
    """Return the warning about a mirror that does not keep which topics it selects."""
    return (
        f"warning: the target does not know which topics mirror {name} selects: topics of which"
        " nothing was copied yet are left out (kctl mirror run keeps this when it runs)"
    )


def _document(each: "PartitionStatus", *, is_table: bool) -> dict[str, Any]:
    text = f"{each.state}: {each.detail}" if each.detail else str(each.state)
    lag_bytes: object = each.lag_bytes
    if is_table and each.lag_bytes is not None:
        lag_bytes = format_bytes(each.lag_bytes)
    return {
        "topic": each.source.topic,
        "partition": each.source.partition,
        "target": each.target.topic,
        "position": each.position,
        "end": each.end,
        "lag_records": each.lag_records,
        "lag_bytes": lag_bytes,
        "lag_ms": each.lag_ms,
        "lag_time": None if each.lag_ms is None else format_duration(each.lag_ms),
        "state": text,
    }
