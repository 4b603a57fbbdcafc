"""kctl reassign cancel."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.reassign.access import change_on_cluster
from kctl.cli.reassign.files import read_reassignment
from kctl.cli.session import Question, Session
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.reassignment_cancel import Cancelled, CancelPlan

_COLUMNS = ("topic", "partition", "before", "after")


def cancel(
    session: Session,
    path: Annotated[
        str | None, Argument(metavar="FILE", help="Only the moves that it names.")
    ] = None,
    everything: Annotated[bool, Option("--all", help="All moves in progress.")] = False,
) -> int:
    """Cancel reassignments: replicas go back to where they were, or stay in their directories.
    Kafka 2.4 and later.

    \b
    Examples:
      kctl reassign cancel plan.json
      kctl reassign cancel --all --yes
    """
    if (path is None) != everything:
        raise UsageError("Say what to cancel", hint="either FILE or --all")
    named = read_reassignment(path) if path is not None else None

    from kctl.admin.reassignment_cancel import execute_cancel, plan_cancel

    def question(plan: "CancelPlan") -> Question | None:
        rows = _rows(plan, None)
        if not rows:
            return None
        return Question(Table(_COLUMNS, rows), f"Cancel {counted(len(rows), 'move')}?")

    change = change_on_cluster(
        session, lambda cluster: plan_cancel(cluster, named), question, execute_cancel
    )
    if change.is_declined:
        return DONE
    rows = _rows(change.plan, change.result)
    if not rows:
        session.output.say("None of these is on the move.")
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


def _rows(plan: "CancelPlan", result: "Cancelled | None") -> list[dict[str, Any]]:
    """Return a row per move; without a result, what would be cancelled."""
    status = "would cancel" if result is None else "cancelled"
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "before": list(it.target),
            "after": list(it.origin),
            **row("partition_name", str(tp), status, result and result.between_brokers[tp]),
        }
        for tp, it in plan.between_brokers.items()
    ]
    for index, it in enumerate(plan.inside_brokers):
        error = None if result is None else result.inside_brokers[index]
        rows.append(
            {
                "topic": it.partition.topic,
                "partition": it.partition.partition,
                "before": it.adding[0],
                "after": it.removing[0],
                **row("partition_name", str(it.partition), status, error),
            }
        )
    return rows
