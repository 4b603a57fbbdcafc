"""kctl reassign execute."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import COUNT
from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.reassign.access import ZooKeeperOption
from kctl.cli.reassign.files import (
    change_table,
    read_reassignment,
    rollback_path,
    summary,
    warn_of_dead_brokers,
)
from kctl.cli.reassign.job_output import JobOutput, run_job
from kctl.cli.session import Question, Session
from kctl.cli.units import parse_rate
from kctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kctl.admin.reassignment_cluster import ReassignmentCluster
    from kctl.admin.reassignment_job import ReassignmentJob

# The default of --batch.
BATCH = 50

FileArgument = Annotated[str, Argument(metavar="FILE", help="A plan of kctl's, or Kafka's JSON.")]
WaitOption = Annotated[
    bool, Option("--wait", "-w", help="Move batch by batch until all replicas are in place.")
]
BatchOption = Annotated[
    int | None,
    Option("--batch", metavar="N", help=f"Partitions at once. [default: {BATCH}]"),
    COUNT,
]
ThrottleOption = Annotated[
    str | None,
    Option(
        "--throttle", metavar="RATE", help="Bytes per second that each broker copies, e.g. 50MB."
    ),
]
AdditionalOption = Annotated[
    bool, Option("--additional", help="Allowed even while other partitions are on the move.")
]


def execute(
    session: Session,
    path: FileArgument,
    wait: WaitOption = False,
    batch: BatchOption = None,
    throttle: ThrottleOption = None,
    additional: AdditionalOption = False,
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Move replicas to the brokers that a file names. Replicas already in place are left alone.

    With --throttle, kctl records the settings that it replaces and restores them when all moves are
    complete. If the command is interrupted, the throttle stays while replicas move: `kctl reassign
    watch` and `kctl throttle sweep` wait for them and then remove it.

    \b
    Examples:
      kctl reassign execute plan.json -n
      kctl reassign execute plan.json --wait --throttle 50MB
      kctl reassign execute plan.rollback.json -y
    """
    from kctl.admin.reassignment_job import ReassignmentJob

    if batch is not None and (batch < 1 or not wait):
        raise UsageError("--batch goes with --wait, and is at least 1")
    wanted = read_reassignment(path)
    rate = parse_rate(throttle) if throttle else None
    shown = JobOutput(session)

    def question(job: "ReassignmentJob") -> Question | None:
        warn_of_dead_brokers(session, job.plan)
        if job.is_nothing_to_do:
            session.output.say("All replicas are already in place.")
            return None
        text = summary(job.plan, rate, job.dirs) + " Continue?"
        return Question(change_table(job.plan, job.dirs), text)

    def run(_: "ReassignmentCluster", job: "ReassignmentJob") -> "Coroutine[Any, Any, None]":
        if not job.is_nothing_to_do:
            _keep_rollback(session, path, job)
            shown.begin(job)
        return job.run(batch or BATCH, shown.draw) if wait else job.start()

    _, status = run_job(
        session,
        shown,
        lambda cluster: ReassignmentJob.prepare(
            cluster, wanted, rate=rate, dir_rate=rate, is_additional=additional
        ),
        question,
        run,
        zookeeper=zookeeper,
    )
    return status


def _keep_rollback(session: Session, path: str, job: "ReassignmentJob") -> None:
    from kctl.admin.reassignment_json import format_reassignment

    rollback = rollback_path(path)
    before_dirs = {(it.partition, it.broker_id): it.before for it in job.dirs.pending if it.before}
    unmoved = {tp: job.plan.layout.assignment[tp] for tp, _ in before_dirs}
    before = {**unmoved, **job.plan.before}
    if before and not rollback.exists() and not Path(path).stem.endswith(".rollback"):
        try:
            rollback.write_text(format_reassignment(before, before_dirs), encoding="utf-8")
        except OSError as error:
            session.output.say(f"Cannot write the rollback file {rollback}: {error.strerror}")
            return
        session.output.say(f"Wrote {rollback} to undo it.")
