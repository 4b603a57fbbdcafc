"""kctl group reset-offsets: changes the committed offsets of a group."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import NUMBER
from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE
from kctl.cli.group.migrate import write_offsets
from kctl.cli.group.zookeeper import ZooKeeperOption
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.cli.text_files import read_text_or_stdin
from kctl.cli.topic.scope import partitions_named
from kctl.cli.units import option_instant_ms, parse_instant_ms
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.model import Position, PositionKind, TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.committed_offsets import OffsetPlan
    from kctl.admin.offset_file import Offsets
    from kctl.admin.offset_reset import ResetStep, ResetTarget
    from kctl.errors import KctlError

_STEP_COLUMNS = ("topic", "partition", "current_offset", "new_offset", "note")

NameArgument = Annotated[str, Argument(metavar="GROUP", help="A group without members.")]
TopicOption = Annotated[
    list[str] | None,
    Option("--topic", "-t", metavar="TOPIC[:P,P]", help="A topic, or some of its partitions."),
]
AllTopicsOption = Annotated[
    bool, Option("--all-topics", help="All topics with committed offsets of the group.")
]
ToEarliestOption = Annotated[bool, Option("--to-earliest", help="Reset to the start offset.")]
ToLatestOption = Annotated[bool, Option("--to-latest", help="Reset to the end offset.")]
ToCurrentOption = Annotated[
    bool, Option("--to-current", help="Reset to the committed offset, if it still exists.")
]
ToOffsetOption = Annotated[
    int | None, Option("--to-offset", metavar="N", help="Reset to an offset."), NUMBER
]
ShiftByOption = Annotated[
    int | None,
    Option("--shift-by", metavar="N", help="Move by N records; backwards if N < 0."),
]
ToDatetimeOption = Annotated[
    str | None,
    Option(
        "--to-datetime",
        metavar="TIME",
        help="Reset to a time, e.g. 2026-01-31T08:00; without a zone it is in UTC.",
    ),
]
ByDurationOption = Annotated[
    str | None,
    Option(
        "--by-duration", metavar="DURATION", help="Reset to a time before now, e.g. 1h or PT1H."
    ),
]
FromFileOption = Annotated[
    str | None,
    Option(
        "--from-file",
        metavar="FILE",
        help="Reset to the offsets in a CSV file (see export-offsets), or - for stdin.",
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
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Change the committed offsets of a group. The command shows the plan and asks first.

    \b
    Examples:
      kctl group reset-offsets billing -t orders --to-earliest --dry-run
      kctl group reset-offsets billing -t orders:0,1 --to-offset 4200 --yes
      kctl group reset-offsets billing --all-topics --by-duration 2h -y
      kctl group reset-offsets billing --from-file offsets.csv --dry-run
      kctl group reset-offsets billing -t orders --to-latest --zookeeper zk1:2181 --dry-run
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
            raise UsageError(
                "--from-file names the partitions: it cannot be combined with -t or --all-topics"
            )
    elif bool(topic) == all_topics:
        raise UsageError("No topics given", hint="give either --topic (-t) or --all-topics")
    partitions_named(topic or [])  # before the cluster is asked

    from kctl.admin.committed_offsets import plan_reset

    scope = partitions_named(topic or [])
    if zookeeper is not None:
        return write_offsets(
            session, zookeeper, lambda groups: groups.plan_reset(name, scope, target)
        )
    return execute_steps(session, lambda admin: plan_reset(admin, name, scope, target))


def execute_steps(
    session: Session, plan: "Callable[[AdminClient], Coroutine[Any, Any, OffsetPlan]]"
) -> int:
    """Show a plan's steps for each group, ask, execute them, show a row per step; return the exit
    status."""
    from kctl.admin.committed_offsets import execute_plan

    def question(planned: "OffsetPlan") -> Question | None:
        if not planned.possible:
            return None
        steps = planned.steps
        columns = ("group", *_STEP_COLUMNS) if len(steps) > 1 else _STEP_COLUMNS
        groups = f"group {next(iter(steps))}" if len(steps) == 1 else counted(len(steps), "group")
        text = f"Reset {counted(planned.possible, 'partition')} of {groups}?"
        return Question(Table(columns, _step_rows(steps, "")), text)

    change = session.change(plan, question, execute_plan)
    if change.is_declined:
        return DONE
    steps = change.plan.steps
    rows = _step_rows(steps, "would reset" if change.result is None else "reset", change.result)
    if not rows:
        session.output.say(f"Group {next(iter(steps))} has no committed offsets.")
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


def _step_rows(
    plan: "Mapping[str, Sequence[ResetStep]]",
    status: str,
    errors: "Mapping[str, Mapping[TopicPartition, KctlError | None]] | None" = None,
) -> list[dict[str, Any]]:
    return [
        {
            **({"group": name} if len(plan) > 1 else {}),
            **_step_row(step, status, (errors or {}).get(name, {}).get(step.partition)),
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

    chosen = {option: value for option, value in given.items() if value is not None}
    if len(chosen) != 1:
        raise UsageError("Give one target to reset to", hint=f"one of {', '.join(given)}")
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
        position = Position(PositionKind.TIME, option_instant_ms(value, session.now_ms()))
    elif option == "--by-duration":
        position = Position(PositionKind.TIME, parse_instant_ms(f"-{value}", session.now_ms()))
    else:
        is_start = option == "--to-earliest"
        position = Position(PositionKind.EARLIEST if is_start else PositionKind.LATEST)
    return ResetTarget(ResetKind.POSITION, position)


def read_offsets(path: str, only_group: str | None = None) -> "Offsets":
    """Return the offsets in a CSV file, or on stdin for `-`; raise UsageError if that fails."""
    from kctl.admin.offset_file import parse_offsets

    source, text = read_text_or_stdin(path)
    return parse_offsets(text, source, only_group)
