"""kctl group reset-offsets: where a group shall go on reading."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.failures import DONE
from kctl.cli.items import did_you_mean, row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Session
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.offset_file import Offsets
    from kctl.admin.offset_reset import ResetStep, ResetTarget
    from kctl.model import TopicPartition

_STEP_COLUMNS = ("topic", "partition", "current_offset", "new_offset", "note")

NameArgument = Annotated[str, typer.Argument(metavar="GROUP", help="A group without members.")]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:P,P]", help="A topic, or some of its partitions."
    ),
]
AllTopicsOption = Annotated[
    bool, typer.Option("--all-topics", help="All that the group has committed.")
]
ToEarliestOption = Annotated[bool, typer.Option("--to-earliest", help="To the beginning.")]
ToLatestOption = Annotated[bool, typer.Option("--to-latest", help="To the end.")]
ToCurrentOption = Annotated[
    bool, typer.Option("--to-current", help="To what is committed, if it still exists.")
]
ToOffsetOption = Annotated[
    int | None, typer.Option("--to-offset", metavar="N", help="To an offset.")
]
ShiftByOption = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="On by N records; back if N < 0.")
]
ToDatetimeOption = Annotated[
    str | None,
    typer.Option("--to-datetime", metavar="TIME", help="To a time, e.g. 2026-01-31T08:00."),
]
ByDurationOption = Annotated[
    str | None,
    typer.Option("--by-duration", metavar="DURATION", help="To so long ago, e.g. 1h or PT1H."),
]
FromFileOption = Annotated[
    str | None,
    typer.Option(
        "--from-file",
        metavar="FILE",
        help="To the offsets that a CSV file says (see export-offsets); -: stdin.",
    ),
]


def reset_offsets(
    session: Session,
    name: NameArgument,
    topic: TopicOption = None,
    all_topics: AllTopicsOption = False,
    to_earliest: ToEarliestOption = False,
    to_latest: ToLatestOption = False,
    to_current: ToCurrentOption = False,
    to_offset: ToOffsetOption = None,
    shift_by: ShiftByOption = None,
    to_datetime: ToDatetimeOption = None,
    by_duration: ByDurationOption = None,
    from_file: FromFileOption = None,
) -> int:
    """Set where a group goes on reading. The plan is shown first.

    \b
    Examples:
      kctl group reset-offsets billing -t orders --to-earliest --dry-run
      kctl group reset-offsets billing -t orders:0,1 --to-offset 4200 --yes
      kctl group reset-offsets billing --all-topics --by-duration 2h -y
      kctl group reset-offsets billing --from-file offsets.csv --dry-run
    """
    given = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-current": to_current or None,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": from_file,
    }
    target = _target(session, name, given)
    if from_file is not None:
        if topic or all_topics:
            raise UsageError("--from-file says itself which partitions: neither -t nor all")
    elif bool(topic) == all_topics:
        raise UsageError("Say which topics to reset", hint="either --topic (-t) or --all-topics")

    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        await refuse_members(admin, name)
        partitions = await _scope(admin, topic or []) if topic else None
        if from_file is not None:
            partitions = list(target.offsets)
        steps = await admin.offset_reset.plan(name, partitions, target)
        return await follow_plan(session, admin, {name: steps})

    rows = session.run(work)
    if rows is None:
        return DONE
    if not rows:
        session.output.say(f"Group {name} has committed nothing.")
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


async def refuse_members(admin: "AdminClient", *names: str) -> None:
    """KctlError if one of these groups has members."""
    from kctl.admin.offset_reset import why_not_resettable
    from kctl.errors import KctlError

    for group in await admin.groups.describe(names):
        reason = why_not_resettable(group)
        if reason:
            raise KctlError(reason, hint="stop its consumers first: they would overwrite it")


async def follow_plan(
    session: Session,
    admin: "AdminClient",
    plan: "Mapping[str, Sequence[ResetStep]]",
    metadata: "Mapping[TopicPartition, str] | None" = None,
) -> list[dict[str, Any]] | None:
    """Show the steps of each group, ask and carry them out; a row each, None if nobody wants it."""
    if session.dry_run:
        return _step_rows(plan, "would reset")
    possible = {
        name: [step for step in steps if step.error is None and step.new_offset is not None]
        for name, steps in plan.items()
    }
    count = sum(map(len, possible.values()))
    columns = ("group", *_STEP_COLUMNS) if len(plan) > 1 else _STEP_COLUMNS
    who = f"group {next(iter(plan))}" if len(plan) == 1 else f"{len(plan)} groups"
    question = f"Reset {count} partitions of {who}?"
    if count and not session.confirm(Table(columns, _step_rows(plan, "")), question):
        return None
    rows = []
    for name, steps in possible.items():
        results = await admin.offset_reset.carry_out(name, steps, metadata)
        errors = {result.partition: result.error for result in results}
        rows += _step_rows({name: plan[name]}, "reset", errors, with_group=len(plan) > 1)
    return rows


def _step_rows(
    plan: "Mapping[str, Sequence[ResetStep]]",
    status: str,
    errors: "Mapping[TopicPartition, object] | None" = None,
    *,
    with_group: bool = False,
) -> list[dict[str, Any]]:
    return [
        {
            **({"group": name} if with_group or len(plan) > 1 else {}),
            **_step_row(step, status, (errors or {}).get(step.partition)),
        }
        for name, steps in plan.items()
        for step in steps
    ]


def _step_row(step: "ResetStep", status: str, error: object = None) -> dict[str, Any]:
    moved = status if step.new_offset is not None else "left alone"
    return {
        "topic": step.partition.topic,
        "partition": step.partition.partition,
        "current_offset": step.current_offset,
        "new_offset": step.new_offset,
        "note": step.note or None,
        **row("partition_name", str(step.partition), moved, step.error or error),
    }


def _target(session: Session, name: str, given: dict[str, Any]) -> "ResetTarget":
    from kctl.admin.offset_reset import ResetKind, ResetTarget
    from kctl.admin.offsets import Position, PositionKind
    from kctl.cli.units import parse_instant_ms

    chosen = {option: value for option, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise UsageError("Say where to reset to, in one way", hint=f"one of {', '.join(given)}")
    [(option, value)] = chosen.items()
    if option == "--to-current":
        return ResetTarget(ResetKind.CURRENT)
    if option == "--from-file":
        offsets = read_offsets(value, name).get(name)
        if not offsets:
            raise UsageError(f"{value} has no offsets of group {name}")
        return ResetTarget(ResetKind.EACH, offsets=offsets)
    if option == "--shift-by":
        return ResetTarget(ResetKind.SHIFT, shift=value)
    if option == "--to-offset":
        position = Position(PositionKind.OFFSET, value)
    elif option == "--to-datetime":
        position = Position(PositionKind.TIME, parse_instant_ms(value, session.now_ms()))
    elif option == "--by-duration":
        position = Position(PositionKind.TIME, parse_instant_ms(f"-{value}", session.now_ms()))
    else:
        is_start = option == "--to-earliest"
        position = Position(PositionKind.EARLIEST if is_start else PositionKind.LATEST)
    return ResetTarget(ResetKind.POSITION, position)


def read_offsets(path: str, only_group: str | None = None) -> "Offsets":
    """The offsets in a file, `-`: on stdin; UsageError if it cannot be read as such."""
    from pathlib import Path

    from kctl.admin.offset_file import parse_offsets

    source = "stdin" if path == "-" else path
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {source}: {error}") from None
    return parse_offsets(text, source, only_group)


def partitions_named(topics: Sequence[str]) -> dict[str, list[int] | None]:
    """`TOPIC` and `TOPIC:P,P` by topic; None: all its partitions."""
    wanted: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if colon and not all(number.isdigit() for number in numbers.split(",")):
            raise UsageError(f"Not partitions of a topic: {text}", hint="e.g. orders:0,1")
        wanted[name] = [int(number) for number in numbers.split(",")] if colon else None
    return wanted


async def _scope(admin: "AdminClient", topics: Sequence[str]) -> "list[TopicPartition]":
    """The partitions that `TOPIC` and `TOPIC:P,P` stand for; all must exist."""
    from kctl.model import TopicPartition

    wanted = partitions_named(topics)
    partitions = []
    for topic in await admin.topics.describe(wanted):
        if topic.error is not None:
            names = [it.name for it in await admin.topics.list_topics()]
            raise UsageError(f"No topic {topic.name}", hint=did_you_mean(topic.name, names))
        known = [partition.partition for partition in topic.partitions]
        chosen = wanted[topic.name]
        for number in known if chosen is None else chosen:
            if number not in known:
                raise UsageError(f"{topic.name} has no partition {number}, only {len(known)}")
            partitions.append(TopicPartition(topic.name, number))
    return partitions
