"""kctl broker describe, decommission."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import show_results
from kctl.cli.output import Table
from kctl.cli.reassign_door import Door, run_at
from kctl.cli.reassign_execute import (
    BATCH,
    ThrottleOption,
    carry_out,
    change_rows,
    dir_moves,
    throttle_of,
)
from kctl.cli.reassign_files import change_table, summary
from kctl.cli.session import Session
from kctl.cli.supervisor import ask_supervisor
from kctl.cli.units import format_bytes
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

_DIRECTORY_COLUMNS = ("log_dir", "replicas", "size", "error")

IdsArgument = Annotated[
    list[int] | None, typer.Argument(metavar="BROKER...", help="Ids. [default: all]")
]


def describe(session: Session, ids: IdsArgument = None) -> int:
    """Show brokers: where they are, what they lead and hold, their directories and settings.

    A broker that has replicas but is not alive is shown too.

    \b
    Examples:
      kctl broker describe
      kctl broker describe 3 -o json
    """
    documents = session.run(lambda admin: _describe(admin, ids or []))
    tables = [Table(_DIRECTORY_COLUMNS, it["log_dirs"], _heading(it)) for it in documents]
    session.output.show(documents, name="broker", tables=tables)
    return DONE if all(it["alive"] and not it["error"] for it in documents) else FAILED


async def _describe(admin: "AdminClient", ids: Sequence[int]) -> list[dict[str, Any]]:
    from kctl.admin.broker_loads import describe_brokers

    cluster, counts = await describe_brokers(admin)
    alive = {broker.broker_id: broker for broker in cluster.brokers}
    unknown = [broker_id for broker_id in ids if broker_id not in counts]
    if unknown:
        there = ", ".join(map(str, sorted(counts)))
        raise UsageError(f"No broker {unknown[0]} in the cluster", hint=f"there are: {there}")
    documents = []
    for broker_id in ids or sorted(counts):
        broker, held = alive.get(broker_id), counts[broker_id]
        documents.append(
            {
                "broker": broker_id,
                "alive": broker is not None,
                "host": broker.host if broker else None,
                "port": broker.port if broker else None,
                "rack": broker.rack if broker else None,
                "controller": broker is not None and broker.is_controller,
                "leaders": held.leaders,
                "preferred_leaders": held.preferred,
                "replicas": held.replicas,
                "out_of_sync": held.out_of_sync,
                **await _inside(admin, broker_id, is_alive=broker is not None),
            }
        )
    return documents


async def _inside(admin: "AdminClient", broker_id: int, *, is_alive: bool) -> dict[str, Any]:
    """What only the broker itself can tell."""
    from kctl.admin.configs import ConfigResource, ConfigSource, ResourceType

    told: dict[str, Any] = {"log_dirs": [], "dynamic_configs": {}, "error": None}
    if not is_alive:
        return told
    try:
        for it in await admin.log_dirs.describe([broker_id]):
            size = sum(replica.size_bytes for replica in it.replicas)
            told["log_dirs"].append(
                {
                    "log_dir": it.path,
                    "replicas": len(it.replicas),
                    "size": format_bytes(size),
                    "size_bytes": size,
                    "error": None if it.error is None else str(it.error),
                }
            )
        [found] = await admin.configs.describe(
            [ConfigResource(ResourceType.BROKER, str(broker_id))]
        )
        told["dynamic_configs"] = {
            entry.name: entry.value
            for entry in found.entries
            if entry.source == ConfigSource.DYNAMIC_BROKER_CONFIG
        }
    except KctlError as error:
        told["error"] = str(error)
    return told


def _heading(document: dict[str, Any]) -> str:
    name = f"broker {document['broker']}"
    held = (
        f"leads {document['leaders']} of {document['preferred_leaders']}, "
        f"{document['replicas']} replicas, {document['out_of_sync']} out of sync"
    )
    if not document["alive"]:
        return f"{name}  not alive  {held}"
    place = f"{document['host']}:{document['port']}"
    place += f"  rack {document['rack']}" if document["rack"] else ""
    place += "  controller" if document["controller"] else ""
    configs = document["dynamic_configs"]
    settings = "".join(f"\n  {key}={value or '(hidden)'}" for key, value in configs.items())
    error = f"\n  error: {document['error']}" if document["error"] else ""
    return f"{name}  {place}  {held}{settings}{error}"


def decommission(
    session: Session,
    broker_id: Annotated[int, typer.Argument(metavar="BROKER", help="Its id.")],
    throttle: ThrottleOption = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", help="Partitions at once.", min=1)
    ] = BATCH,
    stop: Annotated[
        str | None,
        typer.Option(
            "--stop", metavar="DIR", help="Then stop it: a broker of the local cluster in DIR."
        ),
    ] = None,
) -> int:
    """Move everything off a broker, wait until it holds nothing, and say how to stop it for good.

    The plan is that of `kctl reassign plan drain`. Run again, it goes on where it was stopped.

    \b
    Examples:
      kctl broker decommission 3 -n
      kctl broker decommission 3 --throttle 50MB --yes
      kctl broker decommission 3 --stop kctl-data
    """
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.units import parse_bytes

    rate = parse_bytes(throttle) if throttle else None
    if stop is not None:
        _check_is_local(broker_id, stop)
    interrupt = Interrupt(session.runtime.scheduler)
    shown: list[dict[str, Any]] = []
    left: list[str] = []

    async def work(door: Door) -> None:
        from kctl.admin.reassignment_plan import drain

        made = drain(await door.reassignments.layout(), [broker_id])
        if session.dry_run:
            shown.extend(change_rows(made, {}, "would move"))
            left.append("dry run")
            return
        if made.after:
            question = f"{summary(made, rate)} Drain broker {broker_id}?"
            if not session.confirm(change_table(made), question):
                left.append("not confirmed")
                return
            dirs = await dir_moves(door, {})
            limit = throttle_of(made, dirs, rate, None)
            await carry_out(session, door, made, dirs, limit, shown, batch)
        layout = await door.reassignments.layout(with_sizes=False)
        left.extend(str(tp) for tp, replicas in layout.assignment.items() if broker_id in replicas)

    interrupt.run(lambda: run_at(session, None, work, interrupt.guard))
    status = show_results(session, shown, "partition_name", hidden=["partition_name"])
    if interrupt.status:
        return interrupt.status
    if not left and stop is not None:
        ask_supervisor({"command": "stop", "brokers": [broker_id]}, stop)
        session.output.say(f"Broker {broker_id} holds no replica, and is stopped.")
    elif not left:
        _tell_how_to_stop(session, broker_id)
    elif not session.dry_run and left != ["not confirmed"]:
        session.output.say(f"Broker {broker_id} still holds {len(left)} replicas: run it again.")
        return FAILED
    return status


def _check_is_local(broker_id: int, data_dir: str) -> None:
    rows = ask_supervisor({"command": "list", "brokers": []}, data_dir)["rows"]
    if broker_id not in [it["broker"] for it in rows]:
        raise UsageError(f"The local cluster in {data_dir} has no broker {broker_id}")


def _tell_how_to_stop(session: Session, broker_id: int) -> None:
    session.output.say(
        f"Broker {broker_id} holds no replica. To stop it for good:\n"
        "  1. On its machine, send it SIGTERM, for a controlled shutdown: kafka-server-stop.sh,\n"
        f"     systemctl stop kafka, or of a local cluster `kctl broker stop {broker_id}`.\n"
        "  2. `kctl broker describe` no longer shows it; take it out of bootstrap.servers.\n"
        "  3. Keep its disks until `kctl cluster health` is content."
    )
