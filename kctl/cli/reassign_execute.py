"""kctl reassign execute."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli import throttle_records
from kctl.cli.items import row, show_results
from kctl.cli.reassign_door import Door, ZooKeeperOption, run_at
from kctl.cli.reassign_files import (
    change_table,
    read_reassignment,
    rollback_path,
    summary,
)
from kctl.cli.session import Session
from kctl.cli.units import format_bytes
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.log_dir_moves import LogDirMoves, LogDirs
    from kctl.admin.reassignment_execution import ReassignmentExecution
    from kctl.admin.reassignment_json import Reassignment
    from kctl.admin.reassignment_plan import ReassignmentPlan
    from kctl.admin.replication_throttle import Throttle

# Partitions that are on the move at once while somebody waits.
BATCH = 50

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A plan of kctl's, or Kafka's JSON.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait", "-w", help="Batch by batch, until all replicas are there.")
]
BatchOption = Annotated[
    int | None,
    typer.Option("--batch", metavar="N", help=f"Partitions at once. [default: {BATCH}]"),
]
ThrottleOption = Annotated[
    str | None,
    typer.Option(
        "--throttle", metavar="RATE", help="Bytes a second that each broker copies, e.g. 50MB."
    ),
]
AdditionalOption = Annotated[
    bool, typer.Option("--additional", help="Even while other partitions are on the move.")
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
    """Move replicas to where a file wants them. What is so already is left alone.

    With a throttle, kctl keeps a record of what was there before, and puts exactly that back when
    all is moved, after Ctrl-C, or at `kctl throttle sweep`.

    \b
    Examples:
      kctl reassign execute plan.json -n
      kctl reassign execute plan.json --wait --throttle 50MB
      kctl reassign execute plan.rollback.json -y
    """
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.units import parse_bytes

    if batch is not None and (batch < 1 or not wait):
        raise UsageError("--batch goes with --wait, and is at least 1")
    wanted = read_reassignment(path)
    rate = parse_bytes(throttle) if throttle else None
    interrupt = Interrupt(session.runtime.scheduler)
    shown: list[dict[str, Any]] = []

    async def work(door: Door) -> None:
        made = await checked_plan(door, wanted, additional=additional)
        dirs = await dir_moves(door, wanted.log_dirs)
        if session.dry_run:
            shown.extend([*change_rows(made, {}, "would move"), *dir_rows(dirs, "would move")])
            return
        if not made.after and not dirs.pending:
            session.output.say("Everything is where it is to be.")
            return
        question = summary(made, rate, dirs) + " Go on?"
        if not session.confirm(change_table(made, dirs), question):
            return
        _keep_rollback(session, path, made, dirs)
        limit = throttle_of(made, dirs, rate, rate)
        await carry_out(session, door, made, dirs, limit, shown, (batch or BATCH) if wait else None)

    interrupt.run(lambda: run_at(session, zookeeper, work, interrupt.guard))
    status = show_results(session, shown, "partition_name", hidden=["partition_name"])
    return interrupt.status or status


async def checked_plan(
    door: Door, wanted: "Reassignment", *, additional: bool, with_sizes: bool = True
) -> "ReassignmentPlan":
    """The plan that a file asks for; UsageError for what is not there, or is on the move."""
    from kctl.admin.reassignment_plan import plan_of

    moving = await door.reassignments.ongoing()
    if moving and not additional:
        first = next(iter(moving))
        raise UsageError(
            f"{len(moving)} partitions are on the move already, {first} among them",
            hint="kctl reassign watch waits for them; --additional adds to them",
        )
    layout = await door.reassignments.layout(with_sizes=with_sizes)
    for tp, replicas in wanted.replicas.items():
        if tp not in layout.assignment:
            raise UsageError(f"No partition {tp} in this cluster")
        gone = [b for b in replicas if b not in layout.racks and b not in layout.assignment[tp]]
        if gone:
            raise UsageError(f"{tp} is to go to broker {gone[0]}, which is not alive")
    return plan_of(layout, wanted.replicas)


def _keep_rollback(
    session: Session, path: str, made: "ReassignmentPlan", dirs: "LogDirMoves"
) -> None:
    from kctl.admin.reassignment_json import format_reassignment

    rollback = rollback_path(path)
    before_dirs = {(it.partition, it.broker_id): it.before for it in dirs.pending if it.before}
    unmoved = {tp: made.layout.assignment[tp] for tp, _ in before_dirs}
    before = {**unmoved, **made.before}
    if before and not rollback.exists() and not Path(path).stem.endswith(".rollback"):
        try:
            rollback.write_text(format_reassignment(before, before_dirs), encoding="utf-8")
        except OSError as error:
            session.output.say(f"No rollback file: {error}")
            return
        session.output.say(f"Wrote {rollback} to undo it.")


async def carry_out(
    session: Session,
    door: Door,
    made: "ReassignmentPlan",
    dirs: "LogDirMoves",
    limit: "Throttle",
    shown: list[dict[str, Any]],
    batch: int | None,
) -> None:
    """With a `batch`, wait; `shown` gets the rows even if this is stopped."""
    from kctl.admin.reassignment_execution import ReassignmentExecution
    from kctl.cli.progress import ProgressBar

    if limit.is_any:
        await begin_throttle(session, door, limit)
    execution = ReassignmentExecution(door.scheduler, door.reassignments, made.after)
    bar = ProgressBar(len(made.after) + len(dirs.pending), unit="partitions")
    try:
        await dirs.start()
        if batch is None:
            await execution.start_all()
        else:
            await execution.run(batch, bar.update)
            await _wait_for_dirs(door, dirs, lambda count: bar.update(len(made.after) + count))
    finally:
        bar.close()
        shown[:] = [*change_rows(made, execution.results, ""), *dir_rows(dirs)]
        is_going_on = _is_any_started(execution) or dirs.is_under_way
        if limit.is_any and batch is None and is_going_on:
            session.output.say(
                "The throttle stays until `kctl reassign verify` or `kctl throttle sweep` ends it."
            )
        elif limit.is_any:
            await end_throttle(session, door)
        if batch is not None and is_going_on:
            session.output.say(
                "What has started goes on in the cluster: kctl reassign watch, or cancel."
            )


async def _wait_for_dirs(door: Door, dirs: "LogDirMoves", on_look: Callable[[int], object]) -> None:
    from kctl.admin.reassignment_execution import POLL_MS
    from kctl.runtime.future import sleep

    total = len(dirs.pending)
    while dirs.is_under_way:
        await dirs.look(is_last=True)
        on_look(total - len(dirs.pending))
        if dirs.is_under_way:
            await sleep(door.scheduler, POLL_MS)


def _is_any_started(execution: "ReassignmentExecution") -> bool:
    from kctl.admin.reassignment_execution import MoveStatus

    return any(it.status is MoveStatus.STARTED for it in execution.results.values())


def throttle_of(
    made: "ReassignmentPlan", dirs: "LogDirMoves", rate: int | None, dir_rate: int | None
) -> "Throttle":
    """What holds these moves up: `rate` those between brokers, `dir_rate` those inside."""
    from kctl.admin.replication_throttle import Copying, Throttle

    copies = {
        tp: Copying(made.before.get(tp, ()), made.adding(tp))
        for tp in made.after
        if made.adding(tp)
    }
    brokers = dict.fromkeys(it.broker_id for it in dirs.pending)
    return Throttle(copies, rate, tuple(brokers), dir_rate)


async def begin_throttle(session: Session, door: Door, limit: "Throttle") -> None:
    """Record what is there, then throttle; UsageError while another of kctl's is in force."""
    if throttle_records.load(door.cluster_id) is not None:
        raise UsageError(
            "A throttle of kctl's is in force on this cluster already",
            hint="kctl throttle set changes its rate; kctl throttle sweep ends it",
        )
    record = await door.throttle.prepare(door.cluster_id, limit)
    path = throttle_records.save(record)
    await door.throttle.apply(record)
    rate = format_bytes(record.rate)
    session.output.say(f"Throttled to {rate}/s a broker; what was before is in {path}.")
    for broker in record.kept:
        session.output.say(f"Broker {broker} has a rate of its own, and keeps it.")


async def end_throttle(session: Session, door: Door) -> None:
    """Put back what was there before, if kctl throttled the cluster."""
    from kctl.cli.throttle import swept

    record = throttle_records.load(door.cluster_id)
    if record is None:
        return
    rows = await swept(door, record)
    for it in rows:
        if it["error"]:
            session.output.say(f"error: {it['setting']}: {it['error']}")
    broken = sum(1 for it in rows if it["error"])
    session.output.say(
        f"{broken} throttle settings are not back: kctl throttle sweep tries again."
        if broken
        else "The throttle is off; settings are as they were."
    )


async def dir_moves(door: Door, wanted: "LogDirs") -> "LogDirMoves":
    """Where replicas lie that a file wants in certain directories; UsageError."""
    from kctl.admin.log_dir_moves import LogDirMoves

    if wanted and door.admin is None:
        raise UsageError("Log directories are chosen by brokers, not by ZooKeeper")
    moves = LogDirMoves(door.admin.log_dirs if door.admin else None, wanted)
    await moves.look()
    for it in moves.moves:
        known = moves.directories.get(it.broker_id, [])
        if it.path not in known:
            raise UsageError(
                f"Broker {it.broker_id} has no log directory {it.path} in use",
                hint=f"it has {', '.join(known)}" if known else None,
            )
    return moves


def dir_rows(dirs: "LogDirMoves", status: str | None = None) -> list[dict[str, Any]]:
    """A row for each replica that was not where it is to be."""
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
    rows = []
    for tp, after in made.after.items():
        result = results.get(tp)
        told = row(
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
                **told,
            }
        )
    return rows
