"""kctl throttle: show, set, sweep: limits on what reassignments copy."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli import throttle_records
from kctl.cli.command import CHANGES, DANGEROUS, READS, remote_command
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.reassign_door import Door, ZooKeeperOption, run_at
from kctl.cli.session import Session
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.configs import ConfigResource
    from kctl.admin.replication_throttle import Leftover, Restored, ThrottleRecord

app = typer.Typer(rich_markup_mode=None)

_COLUMNS = ("resource", "setting", "value", "before", "owner")


@remote_command(app, "show", READS)
def show(session: Session, zookeeper: ZooKeeperOption = None) -> int:
    """Show the replication throttles of brokers and topics, and which of them are kctl's.

    \b
    Examples:
      kctl throttle show
      kctl throttle show -o json
    """

    async def work(door: Door) -> list[dict[str, Any]]:
        record = throttle_records.load(door.cluster_id)
        return _leftover_rows(await door.throttle.leftovers(), record)

    rows = run_at(session, zookeeper, work)
    session.output.show(rows, _COLUMNS, name="resource")
    if not rows:
        session.output.say("Nothing is throttled.")
    return DONE


@remote_command(app, "set", CHANGES)
def set_rate(
    session: Session,
    rate: Annotated[str, typer.Argument(metavar="RATE", help="Bytes a second, e.g. 50MB.")],
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Change the rate of the throttle that kctl has put on the cluster, while it is in force.

    \b
    Examples:
      kctl throttle set 50MB
      kctl throttle set 200MiB/s
    """
    from kctl.cli.units import format_bytes, parse_bytes

    wanted = parse_bytes(rate)

    async def work(door: Door) -> str:
        record = throttle_records.load(door.cluster_id)
        if record is None:
            raise UsageError(
                "No throttle of kctl's is in force",
                hint="kctl reassign execute --throttle RATE begins with one",
            )
        told = f"{format_bytes(record.rate)}/s -> {format_bytes(wanted)}/s"
        if not session.dry_run:
            changed = await door.throttle.change_rate(record, wanted)
            throttle_records.save(changed)
            await door.throttle.apply(changed)
        return told

    told = run_at(session, zookeeper, work)
    status = "would change" if session.dry_run else "changed"
    session.output.show([{"throttle": told, "status": status}], ("throttle", "status"),
                        name="throttle")  # fmt: skip
    return DONE


@remote_command(app, "sweep", DANGEROUS)
def sweep(
    session: Session,
    zookeeper: ZooKeeperOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also delete throttles that are not kctl's.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even while replicas are on the move.")
    ] = False,
) -> int:
    """Put back what was there before kctl throttled the cluster.

    Does nothing while replicas are on the move. A setting that somebody else changed since stays
    as it is.

    \b
    Examples:
      kctl throttle sweep
      kctl throttle sweep --all -n
    """

    async def work(door: Door) -> list[dict[str, Any]] | None:
        record = throttle_records.load(door.cluster_id)
        moving = await door.reassignments.ongoing()
        if moving and not force:
            raise UsageError(
                f"{len(moving)} partitions are on the move: they would go on without a limit",
                hint="kctl reassign watch waits for them; --force sweeps all the same",
            )
        if session.dry_run:
            found = _leftover_rows(await door.throttle.leftovers(), record)
            return [
                row("setting", f"{it['resource']} {it['setting']}", "would sweep")
                for it in found
                if everything or it["owner"] == "kctl"
            ]
        rows = await swept(door, record) if record is not None else []
        if everything:
            leftovers = await door.throttle.leftovers()
            plan = Table(_COLUMNS, _leftover_rows(leftovers, None))
            if leftovers and not session.confirm(plan, "Delete these throttles?"):
                return rows
            await door.throttle.remove(leftovers)
            rows += [
                row("setting", f"{_name(it.resource)} {name}", "deleted")
                for it in leftovers
                for name in it.values
            ]
        return rows

    rows = run_at(session, zookeeper, work)
    if not rows:
        session.output.say("No throttle of kctl's was in force.")
    return show_results(session, rows or [], "setting")


async def swept(door: Door, record: "ThrottleRecord") -> list[dict[str, Any]]:
    """Restore everything in the record, and forget it if nothing failed; a row a setting."""
    restored = await door.throttle.restore(record)
    if all(it.error is None for it in restored):
        throttle_records.remove(door.cluster_id)
    return [_restored_row(it) for it in restored]


def _restored_row(restored: "Restored") -> dict[str, Any]:
    change = restored.change
    status = "deleted" if change.before is None else f"back to {change.before}"
    if restored.is_foreign:
        status = "left alone: somebody else changed it"
    return row("setting", f"{_name(change.resource)} {change.name}", status, restored.error)


def _name(resource: "ConfigResource") -> str:
    return f"{resource.resource_type.name.lower()} {resource.name}"


def _leftover_rows(
    leftovers: "list[Leftover]", record: "ThrottleRecord | None"
) -> list[dict[str, Any]]:
    ours = {} if record is None else {(it.resource, it.name): it for it in record.changes}
    rows = []
    for leftover in leftovers:
        for name, value in leftover.values.items():
            change = ours.get((leftover.resource, name))
            is_ours = change is not None and value in (None, change.ours)
            rows.append(
                {
                    "resource": _name(leftover.resource),
                    "setting": name,
                    "value": change.ours if change is not None and is_ours else value,
                    "before": change.before if change is not None and is_ours else None,
                    "owner": "kctl" if is_ours else None,
                }
            )
    return rows
