"""kctl reassign cancel."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.failures import DONE
from kctl.cli.items import counted, row, show_results
from kctl.cli.output import Table
from kctl.cli.reassign_door import Door, run_at
from kctl.cli.reassign_files import read_reassignment
from kctl.cli.session import Session
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.reassignment import MoveProgress
    from kctl.admin.reassignment_json import Reassignment

_COLUMNS = ("topic", "partition", "before", "after")


def cancel(
    session: Session,
    path: Annotated[str | None, typer.Argument(metavar="FILE", help="Only what it names.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are on the move.")] = False,
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

    async def work(door: Door) -> list[dict[str, Any]] | None:
        moving = await door.reassignments.ongoing()
        chosen = [tp for tp in moving if named is None or tp in named.replicas]
        inside = await _inside(door, named)
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "before": list(moving[tp].target),
                "after": list(moving[tp].origin),
                **row("partition_name", str(tp), "would cancel"),
            }
            for tp in chosen
        ]
        rows += [
            {
                "topic": it.partition.topic,
                "partition": it.partition.partition,
                "before": it.adding[0],
                "after": it.removing[0],
                **row("partition_name", str(it.partition), "would cancel"),
            }
            for it in inside
        ]
        if session.dry_run or not rows:
            return rows
        question = f"Cancel {counted(len(rows), 'move')}?"
        if not session.confirm(Table(_COLUMNS, rows), question):
            return None
        errors: list[object] = []
        if chosen:
            outcomes = await door.reassignments.alter(dict.fromkeys(chosen))
            errors += [outcomes[tp] for tp in chosen]
        errors += await _stay(door, inside)
        for it, error in zip(rows, errors, strict=True):
            it.update(row("partition_name", it["partition_name"], "cancelled", error))
        return rows

    rows = run_at(session, None, work)
    if rows is None:
        return DONE
    if not rows:
        session.output.say("Nothing of that is on the move.")
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


async def _inside(door: Door, named: "Reassignment | None") -> "list[MoveProgress]":
    """Moves between directories of a broker."""
    assert door.admin is not None
    if named is not None and not named.log_dirs:
        return []
    return [
        it
        for it in await door.admin.reassignments.progress()
        if it.is_inside
        and it.removing
        and (named is None or (it.partition, it.broker_id) in named.log_dirs)
    ]


async def _stay(door: Door, inside: "list[MoveProgress]") -> list[object]:
    """Send each replica where it is: that ends its move."""
    assert door.admin is not None
    paths = {
        (it.partition, it.broker_id): str(it.removing[0]).partition(":")[2]
        for it in inside
        if it.broker_id is not None
    }
    outcomes = await door.admin.log_dirs.move(paths) if paths else {}
    return [outcomes.get(key) for key in paths]
