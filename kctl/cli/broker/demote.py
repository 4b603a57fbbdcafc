"""kctl broker demote: moves the leadership of partitions away from brokers."""

import shlex
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kctl.admin.dead_brokers import DeadBrokers
from kctl.cli.declaration.command import INT32_NUMBER
from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.reassign.access import change_on_cluster
from kctl.cli.reassign.files import change_table, dead_broker_notes
from kctl.cli.reassign.plan import DeadBrokersOption
from kctl.cli.session import Question, Session
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.broker_demotion import Demoted, DemotionPlan
    from kctl.admin.reassignment_cluster import ReassignmentCluster


def demote(
    session: Session,
    brokers: Annotated[list[int], Argument(metavar="BROKER...", help="Their ids."), INT32_NUMBER],
    undo_file: Annotated[
        str | None,
        Option(
            "--undo-file",
            metavar="FILE",
            help="Where to write the previous order. [default: demote-BROKER.undo.json]",
        ),
    ] = None,
    dead_brokers: DeadBrokersOption = DeadBrokers.REFUSE,
) -> int:
    """Make other brokers lead the partitions of a broker, before maintenance or because it is slow.
    The broker keeps its replicas, but is the last choice of every election. No data moves.

    The command shows the plan and asks first. It writes the previous order of replicas to a file,
    which `kctl reassign execute` restores. A partition with a single replica keeps its leader.

    \b
    Examples:
      kctl broker demote 3 --dry-run
      kctl broker demote 3 --yes
      kctl reassign execute demote-3.undo.json && kctl elect preferred --all
    """
    from kctl.admin.broker_demotion import plan_demotion, run_demotion

    path = Path(undo_file or f"demote-{'-'.join(map(str, brokers))}.undo.json")
    if path.exists() and not session.dry_run:
        raise UsageError(
            f"{path} exists already: it may undo an earlier demotion",
            hint="give another --undo-file, or remove it",
        )

    def execute(
        cluster: "ReassignmentCluster", plan: "DemotionPlan"
    ) -> "Coroutine[Any, Any, list[Demoted]]":
        if plan.reassignment.after:
            _write_undo_file(session, path, plan)
        return run_demotion(cluster, plan)

    change = change_on_cluster(
        session, lambda cluster: plan_demotion(cluster, brokers, dead_brokers), _question, execute
    )
    if change.is_declined:
        return DONE
    _say_notes(session, change.plan)
    status = show_results(
        session, _rows(change.plan, change.result), "partition_name", hidden=["partition_name"]
    )
    if change.result:
        restore = session.command(f"reassign execute {shlex.quote(str(path))}")
        elect = session.command("elect preferred --all")
        session.output.say(f"To undo it: {restore} && {elect}")
    return status


def _question(plan: "DemotionPlan") -> Question | None:
    count = len(plan.reassignment.after)
    if not count:
        return None
    names = counted(len(plan.brokers), "broker")
    text = f"Change the order of replicas of {counted(count, 'partition')} to demote {names}?"
    return Question(change_table(plan.reassignment), text)


def _write_undo_file(session: Session, path: Path, plan: "DemotionPlan") -> None:
    from kctl.admin.reassignment_json import format_reassignment

    try:
        path.write_text(format_reassignment(plan.reassignment.before), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"Cannot write {path}: {error.strerror}", hint="give another --undo-file"
        ) from None
    session.output.say(f"Wrote {path} to undo it.")


def _say_notes(session: Session, plan: "DemotionPlan") -> None:
    for note in dead_broker_notes(plan.reassignment):
        session.output.say(f"warning: {note}")
    alone = plan.without_alternative
    if alone:
        session.output.say(
            f"warning: {counted(len(alone), 'partition')} without another replica: "
            f"no other broker can lead {alone[0]}" + (", ..." if len(alone) > 1 else "")
        )
    if not plan.reassignment.after:
        session.output.say("Nothing to do: other brokers come first wherever there are any.")


def _rows(plan: "DemotionPlan", results: "list[Demoted] | None") -> list[dict[str, Any]]:
    found = {it.partition: it for it in results or ()}
    rows = []
    for tp, after in plan.reassignment.after.items():
        result = found.get(tp)
        status = "would demote" if results is None else "demoted"
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "before": list(plan.reassignment.before[tp]),
                "after": list(after),
                "elected": after[0] if result and result.is_elected else None,
                **row("partition_name", str(tp), status, result.error if result else None),
            }
        )
    return rows
