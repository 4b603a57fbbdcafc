"""Plans, confirms, executes and shows the deletion of records: `topic purge`, `records delete`."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.counts import counted

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.record_deletion import DeletionStep

_COLUMNS = ("topic", "partition", "start_offset", "end_offset", "new_start_offset")


def delete_planned(
    session: Session,
    plan: "Callable[[AdminClient], Coroutine[Any, Any, list[DeletionStep]]]",
    nothing: str,
) -> int:
    """Run a deletion whose steps `plan` returns, show a row per partition and return the exit
    status; `nothing` is the message if there are no steps."""
    from kctl.admin.record_deletion import delete_records

    timeout_ms = session.settings.timeout_ms
    change = session.change(
        plan, _question, lambda admin, steps: delete_records(admin, steps, timeout_ms)
    )
    if change.is_declined:
        return DONE
    if not change.plan:
        session.output.say(nothing)
    if change.result is None:
        rows = _rows(change.plan, "would delete")
    else:
        rows = _rows(change.result, "deleted")
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


def _question(steps: "list[DeletionStep]") -> Question | None:
    chosen = [it for it in steps if it.offset_count]
    if not chosen:
        return None
    most = counted(sum(it.offset_count for it in chosen), "record")
    text = f"Delete up to {most} of {counted(len(chosen), 'partition')}?"
    return Question(Table([*_COLUMNS, "status", "error"], _rows(steps, "to delete")), text)


def _rows(steps: "list[DeletionStep]", status: str) -> list[dict[str, Any]]:
    return [
        {
            "topic": it.partition.topic,
            "partition": it.partition.partition,
            "start_offset": it.start_offset,
            "end_offset": it.end_offset,
            "new_start_offset": it.new_start_offset,
            **row(
                "partition_name",
                str(it.partition),
                status if it.offset_count else "unchanged",
                it.error,
            ),
        }
        for it in steps
    ]
