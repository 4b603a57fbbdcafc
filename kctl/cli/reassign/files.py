"""Reads and writes the files of reassignments, and formats plans."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl.cli.output import Table
from kctl.cli.text_files import read_text
from kctl.cli.units import format_bytes, format_duration
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.log_dir_moves import LogDirMoves
    from kctl.admin.reassignment_json import Reassignment
    from kctl.admin.reassignment_plan import ReassignmentPlan
    from kctl.cli.session import Session

# More changed partitions are counted, not listed, in a table for people.
ROWS_MAX = 40
LOAD_COLUMNS = ("broker", "replicas", "leaders", "size", "receives", "sends")
CHANGE_COLUMNS = ("topic", "partition", "before", "after", "size")


def read_reassignment(path: str) -> "Reassignment":
    """Read Kafka's JSON, which plans of kctl also are."""
    from kctl.admin.reassignment_json import parse_reassignment

    return parse_reassignment(read_text(path), path)


def rollback_path(path: str) -> Path:
    """Return the path of the rollback file: `plan.rollback.json` for `plan.json`."""
    given = Path(path)
    return given.with_name(f"{given.stem}.rollback.json")


def write_plan(plan: "ReassignmentPlan", path: str) -> Path:
    """Write the plan as Kafka's JSON, and beside it the file that undoes it; return the latter's
    path."""
    from kctl.admin.reassignment_json import format_reassignment

    rollback = rollback_path(path)
    for target, replicas in ((Path(path), plan.after), (rollback, plan.before)):
        try:
            target.write_text(format_reassignment(replicas), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"Cannot write {target}: {error.strerror}") from None
    return rollback


def plan_document(plan: "ReassignmentPlan", rate: int | None) -> dict[str, Any]:
    """Return the complete plan, for programs."""
    sizes = plan.layout.sizes
    return {
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "before": list(plan.before.get(tp, ())),
                "after": list(after),
                "size_bytes": sizes.get(tp),
            }
            for tp, after in plan.after.items()
        ],
        "brokers": [
            {
                "broker": it.broker_id,
                "replicas_before": it.replicas[0],
                "replicas_after": it.replicas[1],
                "leaders_before": it.leaders[0],
                "leaders_after": it.leaders[1],
                "bytes_before": it.bytes[0],
                "bytes_after": it.bytes[1],
                "bytes_in": it.bytes_in,
                "bytes_out": it.bytes_out,
            }
            for it in plan.loads()
        ],
        "dead_brokers": list(plan.layout.dead),
        "moves": plan.moves,
        "bytes_to_move": plan.bytes_to_move,
        "estimate_ms": plan.estimate_ms(rate),
    }


def change_table(plan: "ReassignmentPlan", dirs: "LogDirMoves | None" = None) -> Table:
    """Return the partitions and directories that change, limited to a readable number."""
    sizes = plan.layout.sizes
    rows: list[dict[str, Any]] = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "before": list(plan.before.get(tp, ())),
            "after": list(after),
            "size": format_bytes(sizes.get(tp, 0)) if sizes else None,
        }
        for tp, after in list(plan.after.items())[:ROWS_MAX]
    ]
    rows += [
        {
            "topic": it.partition.topic,
            "partition": it.partition.partition,
            "before": it.before and f"{it.broker_id}:{it.before}",
            "after": f"{it.broker_id}:{it.path}",
            "size": format_bytes(it.size_bytes),
        }
        for it in (dirs.pending[: ROWS_MAX - len(rows)] if dirs else [])
    ]
    return Table(CHANGE_COLUMNS, rows)


def load_table(plan: "ReassignmentPlan") -> Table:
    """Return every broker's load before and after."""

    def change(pair: tuple[Any, Any]) -> str:
        return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]} -> {pair[1]}"

    dead = plan.layout.dead
    rows = [
        {
            "broker": f"{it.broker_id} (dead)" if it.broker_id in dead else it.broker_id,
            "replicas": change(it.replicas),
            "leaders": change(it.leaders),
            "size": change((format_bytes(it.bytes[0]), format_bytes(it.bytes[1]))),
            "receives": format_bytes(it.bytes_in),
            "sends": format_bytes(it.bytes_out),
        }
        for it in plan.loads()
    ]
    # ZooKeeper has no sizes.
    return Table(LOAD_COLUMNS if plan.layout.sizes else LOAD_COLUMNS[:3], rows)


def plotted_loads(plan: "ReassignmentPlan", width: int | None) -> str:
    """Return two bars per broker, its load before and after: in bytes, or in replicas where
    there are no sizes."""
    from kctl.cli.bars import Bar, bar_lines

    bars = []
    for it in plan.loads():
        pair = it.bytes if plan.layout.sizes else it.replicas
        for value, when in zip(pair, ("before", "after"), strict=True):
            text = format_bytes(value) if plan.layout.sizes else counted(value, "replica")
            bars.append(Bar(f"{it.broker_id} {when}", value, text))
    return "".join(f"{line}\n" for line in ["", *bar_lines(bars, width)])


def summary(plan: "ReassignmentPlan", rate: int | None, dirs: "LogDirMoves | None" = None) -> str:
    """Return one line: what moves, and how long it takes."""
    pending = dirs.pending if dirs else []
    size = format_bytes(sum(it.size_bytes for it in pending))
    inside = f"{counted(len(pending), 'replica')} to another log directory, {size} to copy there."
    if not pending:
        return _summary(plan, rate)
    return f"{_summary(plan, rate)} {inside}" if plan.after else inside


def dead_broker_notes(plan: "ReassignmentPlan") -> list[str]:
    """Return a sentence for each dead broker that the plan concerns: how many of its replicas are
    moved, and how many changed partitions wait for it."""
    notes = []
    for broker, held in plan.layout.dead.items():
        moved = sum(broker in plan.removing(tp) for tp in plan.after)
        waiting = sum(broker in after for after in plan.after.values())
        if moved:
            notes.append(
                f"Broker {broker} is not alive: {moved} of its {counted(held, 'replica')} "
                f"{'is' if moved == 1 else 'are'} moved to other brokers."
            )
        if waiting:
            notes.append(
                f"Broker {broker} is not alive: {counted(waiting, 'partition')} cannot complete "
                "before it is back."
            )
    return notes


def warn_of_dead_brokers(session: "Session", plan: "ReassignmentPlan") -> None:
    """Print the notes about dead brokers on stderr."""
    for note in dead_broker_notes(plan):
        session.output.say(f"warning: {note}")


def _summary(plan: "ReassignmentPlan", rate: int | None) -> str:
    from kctl.admin.reassignment_plan import ASSUMED_RATE

    count, more = len(plan.after), len(plan.after) - ROWS_MAX
    text = f"{counted(count, 'partition')} change{'s' if count == 1 else ''}"
    text += f" ({more} more than shown)" if more > 0 else ""
    if not plan.moves:
        return f"{text}, nothing is copied."
    replicas = counted(plan.moves, "replica")
    if not plan.layout.sizes:
        return f"{text}: {replicas} to copy, of unknown size."
    seconds = format_duration(-(-plan.estimate_ms(rate) // 1000) * 1000)
    speed = f"{format_bytes(rate or ASSUMED_RATE)}/s a broker"
    size = format_bytes(plan.bytes_to_move)
    return f"{text}: {replicas}, {size} to copy, about {seconds} at {speed}."
