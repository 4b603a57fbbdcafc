"""kctl broker describe, decommission."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.admin.dead_brokers import DeadBrokers
from kctl.cli.broker.supervisor import ask_supervisor
from kctl.cli.declaration.command import COUNT, INT32_NUMBER
from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import Table
from kctl.cli.reassign.execute import BATCH, ThrottleOption
from kctl.cli.reassign.files import change_table, summary, warn_of_dead_brokers
from kctl.cli.reassign.job_output import JobOutput, run_job
from kctl.cli.reassign.plan import DeadBrokersOption
from kctl.cli.session import Question, Session
from kctl.cli.units import format_bytes
from kctl.counts import counted
from kctl.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kctl.admin.broker_loads import BrokerOverview
    from kctl.admin.log_dirs import LogDirDescription
    from kctl.admin.reassignment_cluster import ReassignmentCluster
    from kctl.admin.reassignment_job import ReassignmentJob
    from kctl.model import TopicPartition

_DIRECTORY_COLUMNS = ("log_dir", "replicas", "size", "error")

IdsArgument = Annotated[
    list[int] | None, Argument(metavar="BROKER...", help="Ids. [default: all]"), INT32_NUMBER
]


def describe(session: Session, ids: IdsArgument = None) -> int:
    """Show brokers: their addresses, partitions, log directories and settings.

    A broker that has replicas but is not alive is shown too.

    \b
    Examples:
      kctl broker describe
      kctl broker describe 3 -o json
    """
    from kctl.admin.broker_loads import overview_of_brokers

    found = session.run(lambda admin: overview_of_brokers(admin, ids or []))
    documents = list(map(_document, found))
    tables = [Table(_DIRECTORY_COLUMNS, it["log_dirs"], _heading(it)) for it in documents]
    session.output.show(documents, name="broker", tables=tables)
    return DONE if all(it["alive"] and not it["error"] for it in documents) else FAILED


def _document(it: "BrokerOverview") -> dict[str, Any]:
    broker, held = it.broker, it.counts
    return {
        "broker": it.broker_id,
        "alive": broker is not None,
        "host": broker.host if broker else None,
        "port": broker.port if broker else None,
        "rack": broker.rack if broker else None,
        "controller": broker is not None and broker.is_controller,
        "leaders": held.leaders,
        "preferred_leaders": held.preferred,
        "replicas": held.replicas,
        "out_of_sync": held.out_of_sync,
        "log_dirs": list(map(_directory, it.log_dirs)),
        "dynamic_configs": it.configs,
        "error": None if it.error is None else str(it.error),
    }


def _directory(it: "LogDirDescription") -> dict[str, Any]:
    size = sum(replica.size_bytes for replica in it.replicas)
    return {
        "log_dir": it.path,
        "replicas": len(it.replicas),
        "size": format_bytes(size),
        "size_bytes": size,
        "error": None if it.error is None else str(it.error),
    }


def _heading(document: dict[str, Any]) -> str:
    name = f"broker {document['broker']}"
    held = (
        f"leads {document['leaders']} of {document['preferred_leaders']}, "
        f"{counted(document['replicas'], 'replica')}, {document['out_of_sync']} out of sync"
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
    broker_id: Annotated[int, Argument(metavar="BROKER", help="Its id."), INT32_NUMBER],
    throttle: ThrottleOption = None,
    batch: Annotated[
        int, Option("--batch", metavar="N", help="Partitions at once."), COUNT
    ] = BATCH,
    stop: Annotated[
        str | None,
        Option("--stop", metavar="DIR", help="Then stop it: a broker of the local cluster in DIR."),
    ] = None,
    dead_brokers: DeadBrokersOption = DeadBrokers.REFUSE,
) -> int:
    """Move all replicas off a broker, wait until it has none, and print how to stop it for good.

    The plan is that of `kctl reassign plan drain`. After an interruption, repeat the command to
    continue.

    \b
    Examples:
      kctl broker decommission 3 -n
      kctl broker decommission 3 --throttle 50MB --yes
      kctl broker decommission 3 --stop kctl-data
    """
    from kctl.admin.reassignment_job import drain_job, run_drain
    from kctl.cli.units import parse_rate

    rate = parse_rate(throttle) if throttle else None
    if stop is not None:
        _check_is_local(broker_id, stop)
    shown = JobOutput(session)

    def question(job: "ReassignmentJob") -> Question | None:
        warn_of_dead_brokers(session, job.plan)
        if job.is_nothing_to_do:
            return None
        text = f"{summary(job.plan, rate)} Drain broker {broker_id}?"
        return Question(change_table(job.plan), text)

    def run(
        _: "ReassignmentCluster", job: "ReassignmentJob"
    ) -> "Coroutine[Any, Any, list[TopicPartition]]":
        if not job.is_nothing_to_do:
            shown.begin(job)
        return run_drain(job, broker_id, batch, shown.draw)

    change, status = run_job(
        session,
        shown,
        lambda cluster: drain_job(cluster, broker_id, rate, dead_brokers),
        question,
        run,
    )
    if change is None:
        return status
    return _finish(session, broker_id, change.result, stop, status)


def _finish(
    session: Session,
    broker_id: int,
    left: "list[TopicPartition] | None",
    stop: str | None,
    status: int,
) -> int:
    """Stop the broker or explain how; `left` are its replicas, None if the user declined."""
    if left is None:
        return status
    if left:
        session.output.say(
            f"Broker {broker_id} still has {counted(len(left), 'replica')}: run the command again."
        )
        return FAILED
    if stop is not None:
        ask_supervisor({"command": "stop", "brokers": [broker_id]}, stop)
        session.output.say(f"Broker {broker_id} has no replicas and is stopped.")
    else:
        _explain_stop(session, broker_id)
    return status


def _check_is_local(broker_id: int, data_dir: str) -> None:
    rows = ask_supervisor({"command": "list", "brokers": []}, data_dir)["rows"]
    if broker_id not in [it["broker"] for it in rows]:
        raise NotFoundError(f"The local cluster in {data_dir} has no broker {broker_id}")


def _explain_stop(session: Session, broker_id: int) -> None:
    session.output.say(
        f"Broker {broker_id} has no replicas. To stop it permanently:\n"
        "  1. On its machine, send it SIGTERM, for a controlled shutdown: kafka-server-stop.sh,\n"
        f"     systemctl stop kafka, or of a local cluster `kctl broker stop {broker_id}`.\n"
        "  2. `kctl broker describe` no longer shows it; remove it from bootstrap.servers.\n"
        "  3. Keep its disks until `kctl cluster health` reports no problems."
    )
