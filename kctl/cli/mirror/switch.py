"""kctl mirror switch: moves groups to the other side of a mirror."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.mirror.ends import EndOptions
from kctl.cli.mirror.status import unknown_topics
from kctl.cli.mirror.topic_options import DEFAULT_NAME, NameOption
from kctl.cli.output import Output, Table
from kctl.cli.session import Question, Session
from kctl.counts import counted
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.errors import KctlError
    from kctl.mirror.switch import SwitchPlan, SwitchStep
    from kctl.model import TopicPartition

    Errors = dict[tuple[str, TopicPartition], KctlError | None]

COLUMNS = (
    "group", "topic", "partition", "offset", "to_topic", "to_offset", "current_offset", "status",
)  # fmt: skip


@dataclass(frozen=True)
class SwitchOptions:
    """How kctl mirror switch proceeds."""

    back: Annotated[bool, Option("--back", help="From the target to the source.")] = False
    name: NameOption = DEFAULT_NAME
    dry_run: Annotated[
        bool, Option("--dry-run", "-n", help="Show what would be done; change nothing.")
    ] = False
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False


def switch(
    ends: EndOptions,
    how: SwitchOptions,
    groups: Annotated[list[str], Argument(metavar="GROUP", help="Names or globs.")],
) -> int:
    """Move groups to the target: commit their offsets there, translated exactly. --back moves them
    to the source again, with what they have read in the target since. The command shows the plan
    and asks first.

    Stop the consumers and the producers of the source first. The switch is refused as a whole, with
    exit status 1, while a group has members or the mirror is behind in any partition of a topic
    that a group reads, and the way back if a group read records that the source does not have.
    Topics that are not mirrored are left alone.

    \b
    Examples:
      kctl mirror switch billing --source dc1:9092 --target dc2:9092 --dry-run
      kctl mirror switch 'billing-*' --source dc1:9092 --target dc2:9092 --yes
      kctl mirror switch billing --source dc1:9092 --target dc2:9092 --back
    """
    from kctl.mirror.formats import check_name
    from kctl.mirror.switch import execute_switch, plan_switch

    check_name(how.name)
    # The side that is written to is the target of the session.
    sides = _swapped(ends) if how.back else ends
    session = Session(
        sides.connect_options("target"), Output(ends.output_format), dry_run=how.dry_run,
        assume_yes=how.yes, writes=True,
    )  # fmt: skip
    now_ms = session.now_ms()

    def question(plan: "SwitchPlan") -> Question | None:
        if not plan.knows_topics:
            session.output.say(unknown_topics(how.name))
        return None if plan.is_refused else _question(plan, back=how.back)

    change = sides.run(
        session,
        lambda origin, destination: session.carry_out(
            destination,
            lambda _: plan_switch(origin, destination, how.name, groups, now_ms, back=how.back),
            question,
            execute_switch,
        ),
    )
    if change.is_declined:
        return DONE
    return _show(session, change.plan, change.result)


def _swapped(ends: EndOptions) -> EndOptions:
    return replace(
        ends, source=ends.target, source_config=ends.target_config,
        source_profile=ends.target_profile, target=ends.source, target_config=ends.source_config,
        target_profile=ends.source_profile,
    )  # fmt: skip


def _question(plan: "SwitchPlan", *, back: bool) -> Question:
    rows = [_document(step, "will move" if step.is_done else "left alone") for step in plan.steps]
    steps = [step for step in plan.steps if step.is_done]
    groups = counted(len({step.group for step in steps}), "group")
    side = "source" if back else "target"
    offsets = counted(len(steps), "offset")
    return Question(Table(COLUMNS, rows), f"Move {groups} to the {side} ({offsets})?")


def _show(session: Session, plan: "SwitchPlan", errors: "Errors | None") -> int:
    rows = [_document(step, _status(step, plan, errors)) for step in plan.steps]
    session.output.show(rows, COLUMNS, name="group")
    if plan.is_refused:
        session.output.say("error: Refused, nothing was changed")
        return FAILED
    has_failed = any(error is not None for error in (errors or {}).values())
    return FAILED if has_failed else DONE


def _status(step: "SwitchStep", plan: "SwitchPlan", errors: "Errors | None") -> str:
    if step.obstacle:
        return f"refused: {step.obstacle}"
    to = step.translation.to_partition
    if to is None:
        return f"left alone: {'nothing of it was copied' if step.is_selected else 'not mirrored'}"
    if plan.is_refused:
        return "not moved"
    if errors is None:
        return "would move"
    error = errors.get((step.group, to))
    return "moved" if error is None else str(error)


def _document(step: "SwitchStep", status: str) -> dict[str, Any]:
    each = step.translation
    return {
        "group": step.group,
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "offset": None if each.offset < 0 else each.offset,
        "to_topic": None if each.to_partition is None else each.to_partition.topic,
        "to_offset": each.to_offset,
        "current_offset": step.current_offset,
        "status": status,
    }
