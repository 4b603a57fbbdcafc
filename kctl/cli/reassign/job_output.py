"""Runs a reassignment job and shows it: its progress, its result, and the state of its throttle."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.cli.items import row, show_results
from kctl.cli.reassign.access import change_on_cluster
from kctl.cli.reassign.files import warn_of_dead_brokers
from kctl.cli.session import Change, Question, Session
from kctl.cli.units import format_bytes
from kctl.counts import are, counted
from kctl.errors import KctlError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kctl.admin.log_dir_moves import LogDirMoves
    from kctl.admin.reassignment_cluster import ReassignmentCluster
    from kctl.admin.reassignment_job import ReassignmentJob
    from kctl.admin.reassignment_plan import ReassignmentPlan
    from kctl.admin.replication_throttle import Restored, ThrottleRecord
    from kctl.cli.progress import ProgressBar

R = TypeVar("R")


class JobOutput:
    """Shows one job from its start to its end."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._job: ReassignmentJob | None = None
        self._bar: ProgressBar | None = None

    def begin(self, job: "ReassignmentJob") -> None:
        """Show `job`, which is about to run."""
        from kctl.cli.progress import ProgressBar

        self._job = job
        job.on_throttled = lambda record: _say_throttled(self._session, job, record)
        self._bar = ProgressBar(len(job.plan.after) + len(job.dirs.pending), unit="partitions")

    def draw(self, completed: int) -> None:
        """Draw the progress bar with the number of completed moves."""
        if self._bar is not None:
            self._bar.update(completed)

    def close(self) -> None:
        """Erase the progress bar."""
        if self._bar is not None:
            self._bar.close()

    def show_result(self, zookeeper: str | None = None) -> int:
        """Show a row per move, then the state of the throttle, then the next step, which comes last
        so that it is visible below a long table; return the exit status."""
        job = self._job
        if job is None:
            return _show_rows(self._session, [])
        rows = change_rows(job.plan, job.execution.results, "")
        status = _show_rows(self._session, [*rows, *dir_rows(job.dirs)])
        self.say_next("are still moving", zookeeper)
        return status

    def say_next(self, moving: str, zookeeper: str | None = None) -> None:
        """Say what became of the throttle, and the next step; `moving` says what the replicas do
        that are not known to be in place."""
        job, say = self._job, self._session.output.say
        if job is None:
            return
        if job.restored is not None:
            say_restored(self._session, job.restored)
        watch = self._session.command("reassign watch", zookeeper=zookeeper)
        if job.is_moving and job.record is not None:
            say(
                f"Replicas {moving}, under the throttle. Next: `{watch}` waits for them "
                "and then removes the throttle, and so does `kctl throttle sweep`."
            )
        elif job.is_moving:
            say(f"Replicas {moving}. Next: `{watch}`, or `kctl reassign cancel`.")
        elif job.record is not None and job.restored is None:
            say("The throttle stays. Next: `kctl throttle sweep` removes it.")


def run_job(
    session: Session,
    shown: JobOutput,
    plan: "Callable[[ReassignmentCluster], Coroutine[Any, Any, ReassignmentJob]]",
    question: "Callable[[ReassignmentJob], Question | None]",
    execute: "Callable[[ReassignmentCluster, ReassignmentJob], Coroutine[Any, Any, R]]",
    *,
    zookeeper: str | None = None,
) -> "tuple[Change[ReassignmentJob, R] | None, int]":
    """Plan a job, ask, execute it until it ends or a signal arrives, and show what was done; return
    the change, None if it was interrupted or only planned, and the exit status."""
    from kctl.cli.interrupt import Interrupt

    interrupt = Interrupt(session.runtime.scheduler)
    try:
        change = interrupt.run(
            lambda: change_on_cluster(
                session, plan, question, execute, zookeeper=zookeeper, on_start=interrupt.guard
            )
        )
    except KctlError:
        shown.close()
        shown.say_next("may still be moving", zookeeper)
        raise
    finally:
        shown.close()
    if session.dry_run and change is not None:
        warn_of_dead_brokers(session, change.plan.plan)
        return None, _show_planned(session, change.plan)
    status = shown.show_result(zookeeper)
    return (None, interrupt.status) if interrupt.status else (change, status)


def _show_planned(session: Session, job: "ReassignmentJob") -> int:
    """Show a row per move that the job would make; return the exit status."""
    would = "would move"
    return _show_rows(session, [*change_rows(job.plan, {}, would), *dir_rows(job.dirs, would)])


def _show_rows(session: Session, rows: list[dict[str, Any]]) -> int:
    return show_results(session, rows, "partition_name", hidden=["partition_name"])


def _say_throttled(session: Session, job: "ReassignmentJob", record: "ThrottleRecord") -> None:
    path = job.cluster.records.path(record.cluster_id)
    session.output.say(
        f"Throttled to {format_bytes(record.rate)}/s per broker; "
        f"{path} holds the previous settings."
    )
    for broker in record.kept:
        session.output.say(f"Broker {broker} keeps the rate that it already has.")
    for broker in record.absent:
        session.output.say(f"Broker {broker} is not alive and gets no rate.")


def say_restored(session: Session, restored: "list[Restored]") -> None:
    """Report settings that could not be restored, and whether the throttle is gone."""
    broken = [it for it in restored if it.error is not None]
    for it in broken:
        resource = it.change.resource
        kind = resource.resource_type.name.lower()
        session.output.say(f"error: {kind} {resource.name} {it.change.name}: {it.error}")
    session.output.say(
        f"{counted(len(broken), 'throttle setting')} {are(len(broken))} not restored: "
        "`kctl throttle sweep` tries again."
        if broken
        else "The throttle is removed; the previous settings are restored."
    )
    say_of_absent(session, restored)


def say_of_absent(
    session: Session, restored: "list[Restored]", *, is_forgotten: bool = False
) -> None:
    """Say how brokers that are not alive lose their throttle."""
    absent = {it.change.resource.name for it in restored if it.is_absent}
    if not absent:
        return
    brokers = f"broker {', '.join(sorted(absent, key=int))}"
    is_kept = any(it.error is not None and not it.is_absent for it in restored)
    if is_forgotten and not is_kept:
        session.output.say(
            f"kctl forgets the throttle of {brokers}. Once it is alive, `kctl throttle show` shows "
            "it and `kctl throttle sweep --all` deletes it."
        )
    else:
        session.output.say(
            f"Next: `kctl throttle sweep` once {brokers} is alive, or now with --zookeeper. If it "
            "never is, `kctl throttle sweep --force` forgets these settings."
        )


def dir_rows(dirs: "LogDirMoves", status: str | None = None) -> list[dict[str, Any]]:
    """Return a row for each replica that is not in the wanted directory yet."""
    return [
        {
            "topic": it.partition.topic,
            "partition": it.partition.partition,
            "before": it.before and f"{it.broker_id}:{it.before}",
            "after": f"{it.broker_id}:{it.path}",
            **row("partition_name", str(it.partition), status or str(it.status), it.error),
        }
        for it in dirs.moves
        if it.before != it.path
    ]


def change_rows(
    made: "ReassignmentPlan", results: Mapping[Any, Any], status: str
) -> list[dict[str, Any]]:
    """Return a row for each partition of a plan: its result, or `status` if it has none."""
    rows = []
    for tp, after in made.after.items():
        result = results.get(tp)
        outcome = row(
            "partition_name",
            str(tp),
            str(result.status) if result else status,
            result.error if result else None,
        )
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "before": list(made.before.get(tp, ())),
                "after": list(after),
                **outcome,
            }
        )
    return rows
