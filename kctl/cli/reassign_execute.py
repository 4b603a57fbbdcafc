"""kctl reassign execute, cancel."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli import throttle_records
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.reassign_door import Door, ZooKeeperOption, run_at
from kctl.cli.reassign_files import (
    change_table,
    read_reassignment,
    rollback_path,
    summary,
)
from kctl.cli.session import Session
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.reassignment_execution import ReassignmentExecution
    from kctl.admin.reassignment_json import Reassignment
    from kctl.admin.reassignment_plan import ReassignmentPlan
    from kctl.model import TopicPartition

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
        if session.dry_run:
            shown.extend(change_rows(made, {}, "would move"))
            return
        question = summary(made, rate) + " Go on?"
        if not made.after and not wanted.log_dirs:
            session.output.say("Everything is where it is to be.")
            return
        if not session.confirm(change_table(made), question):
            return
        _keep_rollback(session, path, made)
        await carry_out(
            session, door, made, wanted.log_dirs, rate, shown, (batch or BATCH) if wait else None
        )

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


def _keep_rollback(session: Session, path: str, made: "ReassignmentPlan") -> None:
    from kctl.admin.reassignment_json import format_reassignment

    rollback = rollback_path(path)
    if made.before and not rollback.exists() and not Path(path).stem.endswith(".rollback"):
        try:
            rollback.write_text(format_reassignment(made.before), encoding="utf-8")
        except OSError as error:
            session.output.say(f"No rollback file: {error}")
            return
        session.output.say(f"Wrote {rollback} to undo it.")


async def carry_out(
    session: Session,
    door: Door,
    made: "ReassignmentPlan",
    log_dirs: "Mapping[tuple[TopicPartition, int], str]",
    rate: int | None,
    shown: list[dict[str, Any]],
    batch: int | None,
) -> None:
    """With a `batch`, wait; `shown` gets the rows even if this is stopped."""
    from kctl.admin.reassignment_execution import ReassignmentExecution
    from kctl.cli.progress import ProgressBar

    is_throttled = rate is not None and made.moves > 0
    if rate is not None and is_throttled:
        await begin_throttle(session, door, made, rate)
    execution = ReassignmentExecution(door.scheduler, door.reassignments, made.after)
    bar = ProgressBar(len(made.after), unit="partitions")
    try:
        shown.extend(await place_log_dirs(door, log_dirs))
        if batch is None:
            await execution.start_all()
        else:
            await execution.run(batch, bar.update)
    finally:
        bar.close()
        shown[:0] = change_rows(made, execution.results, "")
        is_going_on = _is_any_started(execution)
        if is_throttled and batch is None and is_going_on:
            session.output.say(
                "The throttle stays until `kctl reassign verify` or `kctl throttle sweep` ends it."
            )
        elif is_throttled:
            await end_throttle(session, door)
        if batch is not None and is_going_on:
            session.output.say(
                "What has started goes on in the cluster: kctl reassign watch, or cancel."
            )


def _is_any_started(execution: "ReassignmentExecution") -> bool:
    from kctl.admin.reassignment_execution import MoveStatus

    return any(it.status is MoveStatus.STARTED for it in execution.results.values())


async def begin_throttle(session: Session, door: Door, made: "ReassignmentPlan", rate: int) -> None:
    """Record what is there, then throttle; UsageError while another of kctl's is in force."""
    from kctl.admin.replication_throttle import Copying

    if throttle_records.load(door.cluster_id) is not None:
        raise UsageError(
            "A throttle of kctl's is in force on this cluster already",
            hint="kctl throttle set changes its rate; kctl throttle sweep ends it",
        )
    copies = {
        tp: Copying(made.before.get(tp, ()), made.adding(tp))
        for tp in made.after
        if made.adding(tp)
    }
    record = await door.throttle.prepare(door.cluster_id, copies, rate)
    path = throttle_records.save(record)
    await door.throttle.apply(record)
    session.output.say(f"Throttled to {rate} bytes/s a broker; what was before is in {path}.")
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


async def place_log_dirs(
    door: Door, paths: "Mapping[tuple[TopicPartition, int], str]"
) -> list[dict[str, Any]]:
    """Tell brokers where replicas are to lie; for those to come they remember it."""
    from kctl.protocol.error_codes import ErrorCode

    if not paths:
        return []
    if door.admin is None:
        raise UsageError("Log directories are chosen by brokers, not by ZooKeeper")
    rows = []
    for (tp, broker), error in (await door.admin.log_dirs.move(paths)).items():
        is_to_come = error is not None and error.code == ErrorCode.REPLICA_NOT_AVAILABLE
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "before": None,
                "after": f"broker {broker}: {paths[tp, broker]}",
                **row("partition_name", f"{tp}", "directory chosen", None if is_to_come else error),
            }
        )
    return rows


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


def cancel(
    session: Session,
    path: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Only partitions that it names.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are on the move.")] = False,
) -> int:
    """Cancel reassignments: replicas go back to where they were. Kafka 2.4 and later.

    \b
    Examples:
      kctl reassign cancel plan.json
      kctl reassign cancel --all --yes
    """
    if (path is None) != everything:
        raise UsageError("Say what to cancel", hint="either FILE or --all")
    named = read_reassignment(path).replicas if path is not None else None

    async def work(door: Door) -> list[dict[str, Any]] | None:
        moving = await door.reassignments.ongoing()
        chosen = [tp for tp in moving if named is None or tp in named]
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
        if session.dry_run or not rows:
            return rows
        columns = ("topic", "partition", "before", "after")
        if not session.confirm(Table(columns, rows), f"Cancel {len(rows)} reassignments?"):
            return None
        outcomes = await door.reassignments.alter(dict.fromkeys(chosen))
        for tp, it in zip(chosen, rows, strict=True):
            it.update(row("partition_name", str(tp), "cancelled", outcomes[tp]))
        return rows

    rows: Sequence[dict[str, Any]] | None = run_at(session, None, work)
    if rows is None:
        return DONE
    if not rows:
        session.output.say("Nothing of that is on the move.")
    return show_results(session, rows, "partition_name", hidden=["partition_name"])
