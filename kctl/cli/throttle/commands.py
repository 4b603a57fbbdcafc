"""kctl throttle: shows, sets and sweeps the limits on what reassignments copy."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import CHANGES, DANGEROUS, READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.reassign.access import ZooKeeperOption, run_on_cluster
from kctl.cli.reassign.job_output import say_of_absent
from kctl.cli.session import Session
from kctl.counts import counted

if TYPE_CHECKING:
    from kctl.admin.configs import ConfigResource
    from kctl.admin.replication_throttle import Leftover, Restored, ThrottleRecord

app = CommandGroup()

_COLUMNS = ("resource", "setting", "value", "before", "owner")


@remote_command(app, "show", READS)
def show(session: Session, zookeeper: ZooKeeperOption = None) -> int:
    """Show the replication throttles of brokers and topics, and which of them are kctl's.

    \b
    Examples:
      kctl throttle show
      kctl throttle show -o json
    """

    from kctl.admin.reassignment_job import current_throttles

    leftovers, record = run_on_cluster(session, zookeeper, current_throttles)
    rows = _leftover_rows(leftovers, record)
    session.output.show(rows, _COLUMNS, name="resource")
    if not rows:
        session.output.say("Nothing is throttled.")
    return DONE


@remote_command(app, "set", CHANGES)
def set_rate(
    session: Session,
    rate: Annotated[str, Argument(metavar="RATE", help="Bytes a second, e.g. 50MB.")],
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Change the rate of the throttle that kctl has put on the cluster, while it is in force.

    \b
    Examples:
      kctl throttle set 50MB
      kctl throttle set 200MiB/s
    """
    from kctl.admin.reassignment_job import change_rate
    from kctl.cli.units import format_bytes, parse_rate

    wanted = parse_rate(rate)

    before = run_on_cluster(
        session, zookeeper, lambda cluster: change_rate(cluster, wanted, dry_run=session.dry_run)
    )
    change = f"{format_bytes(before)}/s -> {format_bytes(wanted)}/s"
    status = "would change" if session.dry_run else "changed"
    session.output.show([{"throttle": change, "status": status}], ("throttle", "status"),
                        name="throttle")  # fmt: skip
    return DONE


@remote_command(app, "sweep", DANGEROUS)
def sweep(
    session: Session,
    zookeeper: ZooKeeperOption = None,
    everything: Annotated[
        bool, Option("--all", help="Also delete throttles that kctl did not set.")
    ] = False,
    force: Annotated[
        bool,
        Option(
            "--force", help="At once, even while replicas move or brokers that keep it are down."
        ),
    ] = False,
) -> int:
    """Remove the throttle that kctl set, and restore the settings that it replaced.

    Waits until no replica moves, so that no copy continues without a limit; --force does not wait.
    A setting that has been changed by others since is left as it is. Brokers that are down keep
    theirs: the command fails, and restores them when the brokers are back, or with --zookeeper.
    With --force it names and forgets them.

    \b
    Examples:
      kctl throttle sweep
      kctl throttle sweep --all -n
    """
    from kctl.admin.reassignment_job import current_throttles
    from kctl.admin.throttle_sweep import sweep_throttles
    from kctl.cli.interrupt import Interrupt

    if session.dry_run:
        found = run_on_cluster(session, zookeeper, current_throttles)
        return _show_swept(session, _planned_rows(*found, everything=everything))

    def say_waiting(moving: int) -> None:
        session.output.say(
            f"Waiting for {counted(moving, 'partition')} on the move. --force does not wait."
        )

    def confirm_others(leftovers: "list[Leftover]") -> bool:
        plan = Table(_COLUMNS, _leftover_rows(leftovers, None))
        return session.confirm(plan, "Delete these throttles?")

    interrupt = Interrupt(session.runtime.scheduler)
    swept = interrupt.run(
        lambda: run_on_cluster(
            session,
            zookeeper,
            lambda cluster: sweep_throttles(
                cluster,
                force=force,
                on_wait=say_waiting,
                confirm_others=confirm_others if everything else None,
            ),
            interrupt.guard,
        )
    )
    if swept is None:
        session.output.say("The throttle stays. `kctl throttle sweep` waits again.")
        return interrupt.status
    deleted = [
        row("setting", f"{_name(it.resource)} {name}", "deleted")
        for it in swept.deleted
        for name in it.values
    ]
    status = _show_swept(session, [*map(_restored_row, swept.restored), *deleted])
    say_of_absent(session, swept.restored, is_forgotten=force)
    return status


def _show_swept(session: Session, rows: list[dict[str, Any]]) -> int:
    if not rows:
        session.output.say("kctl has not throttled this cluster.")
    return show_results(session, rows, "setting")


def _planned_rows(
    leftovers: "list[Leftover]", record: "ThrottleRecord | None", *, everything: bool
) -> list[dict[str, Any]]:
    rows = [
        row("setting", f"{it['resource']} {it['setting']}", "would sweep")
        for it in _leftover_rows(leftovers, record)
        if everything or it["owner"] == "kctl"
    ]
    seen = {(it.resource, name) for it in leftovers for name in it.values}
    # Of topics that were deleted, and of brokers that are down.
    unseen = [it for it in record.changes if (it.resource, it.name) not in seen] if record else []
    return rows + [
        row("setting", f"{_name(it.resource)} {it.name}", "would sweep if it is there")
        for it in unseen
    ]


def _restored_row(restored: "Restored") -> dict[str, Any]:
    change = restored.change
    status = "deleted" if change.before is None else f"back to {change.before}"
    if restored.is_foreign:
        status = "left alone: changed by others"
    elif restored.is_gone:
        status = "deleted with its topic"
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
            is_ours = change is not None and value in (None, change.applied)
            rows.append(
                {
                    "resource": _name(leftover.resource),
                    "setting": name,
                    "value": change.applied if change is not None and is_ours else value,
                    "before": change.before if change is not None and is_ours else None,
                    "owner": "kctl" if is_ours else None,
                }
            )
    return rows
