"""kctl reassign watch, verify, list: the progress of moves."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import row, show_results
from kctl.cli.reassign.access import ZooKeeperOption, run_on_cluster
from kctl.cli.reassign.execute import FileArgument
from kctl.cli.reassign.files import read_reassignment
from kctl.cli.reassign.job_output import say_restored
from kctl.cli.session import Session
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kctl.admin.log_dir_moves import DirMove
    from kctl.admin.reassignment_verification import PlacedPartition
    from kctl.admin.reassignment_watch import WatchedMove
    from kctl.cli.progress import ProgressBar

_PROGRESS_COLUMNS = (
    "topic", "partition", "adding", "removing", "done", "total", "share", "rate", "left",
)  # fmt: skip
_LIST_COLUMNS = ("topic", "partition", "replicas", "adding", "removing")

IntervalOption = Annotated[
    str, Option("--interval", "-i", metavar="DURATION", help="Time between two updates.")
]
OnceOption = Annotated[bool, Option("--once", help="Show the progress once, and end.")]
PreserveOption = Annotated[bool, Option("--preserve-throttles", help="Keep kctl's throttle.")]


def watch(session: Session, interval: IntervalOption = "2s", once: OnceOption = False) -> int:
    """Watch moving replicas until all are in place: bytes, rate and time left.

    Covers moves between brokers and between log directories. Shows a bar on a terminal, and a row
    for each partition at the end or with --once. Once nothing moves, a throttle that kctl set is
    removed; with --once it stays.

    \b
    Examples:
      kctl reassign watch
      kctl reassign watch --once -o json
    """
    from kctl.admin.reassignment_watch import watch_moves
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.units import parse_duration_ms

    interval_ms = parse_duration_ms(interval)
    if interval_ms < 1:
        raise UsageError("--interval must be positive", hint="e.g. --interval 2s")
    interrupt = Interrupt(session.runtime.scheduler)
    drawn = _Drawn()
    try:
        restored = interrupt.run(
            lambda: run_on_cluster(
                session,
                None,
                lambda cluster: watch_moves(cluster, interval_ms, drawn.draw, once=once),
                interrupt.guard,
            )
        )
    finally:
        drawn.close()
    if restored is not None:
        say_restored(session, restored)
    if not drawn.moves:
        session.output.say("Nothing is on the move.")
    rows = [_progress_row(it) for it in drawn.moves]
    session.output.show(rows, _PROGRESS_COLUMNS, name="partition_name")
    return interrupt.status


class _Drawn:
    """The moves at the last look, and the bar that shows them."""

    def __init__(self) -> None:
        self.moves: Sequence[WatchedMove] = ()
        self._bar: ProgressBar | None = None

    def draw(self, moves: "Sequence[WatchedMove]") -> None:
        """Draw the bar, as soon as there are bytes to copy."""
        from kctl.cli.progress import ProgressBar

        self.moves = moves
        total = sum(it.now.total_bytes for it in moves)
        done = sum(it.done_bytes for it in moves)
        moving = [it for it in moves if not it.is_over]
        if self._bar is None and total:
            self._bar = ProgressBar(total)
        if self._bar is not None:
            self._bar.resize(total)
            rate = sum(it.rate for it in moving)
            self._bar.update(done, _pace_text(len(moving), rate, total - done))

    def close(self) -> None:
        """Erase the bar."""
        if self._bar is not None:
            self._bar.close()


def _pace_text(partitions: int, rate: int, left_bytes: int) -> str:
    from kctl.cli.units import format_bytes, format_duration

    left = f", {format_duration(left_bytes * 1000 // rate)} left" if rate else ""
    return f"  {format_bytes(rate)}/s{left}, {counted(partitions, 'partition')}"


def _progress_row(it: "WatchedMove") -> dict[str, Any]:
    from kctl.cli.units import format_bytes, format_duration

    tp, total, left_ms = it.now.partition, it.now.total_bytes, it.left_ms
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "partition_name": str(tp),
        "adding": list(it.now.adding),
        "removing": list(it.now.removing),
        "done": format_bytes(it.done_bytes),
        "total": format_bytes(total),
        "done_bytes": it.done_bytes,
        "total_bytes": total,
        "share": "moved" if it.is_over else f"{it.done_bytes * 100 // max(total, 1)}%",
        "rate": None if left_ms is None else f"{format_bytes(it.rate)}/s",
        "left": None if left_ms is None else format_duration(left_ms),
    }


def list_reassignments(session: Session, zookeeper: ZooKeeperOption = None) -> int:
    """List the partitions that are on the move.

    \b
    Examples:
      kctl reassign list
      kctl reassign list -o name
    """
    moving = run_on_cluster(session, zookeeper, lambda cluster: cluster.reassignments.ongoing())
    documents = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "partition_name": str(tp),
            "replicas": list(it.replicas),
            "adding": list(it.adding),
            "removing": list(it.removing),
        }
        for tp, it in moving.items()
    ]
    session.output.show(documents, _LIST_COLUMNS, name="partition_name")
    return DONE


def verify(
    session: Session,
    path: FileArgument,
    preserve_throttles: PreserveOption = False,
    zookeeper: ZooKeeperOption = None,
) -> int:
    """Report for each partition of a file whether it is in place; exit 1 if any is not.

    Once nothing moves, a throttle that kctl set is removed.

    \b
    Examples:
      kctl reassign verify plan.json
    """
    from kctl.admin.reassignment_verification import verify_reassignment

    wanted = read_reassignment(path)
    found = run_on_cluster(
        session,
        zookeeper,
        lambda cluster: verify_reassignment(cluster, wanted, preserve_throttle=preserve_throttles),
    )
    if found.restored is not None:
        say_restored(session, found.restored)
    rows = [*map(_verdict, found.partitions), *map(_dir_verdict, found.dirs)]
    status = show_results(session, rows, "partition_name", hidden=["partition_name"])
    return FAILED if any(it["status"] == "on the move" for it in rows) else status


def _verdict(it: "PlacedPartition") -> dict[str, Any]:
    return {
        "topic": it.partition.topic,
        "partition": it.partition.partition,
        "wanted": list(it.wanted),
        "found": list(it.found),
        **row(
            "partition_name",
            str(it.partition),
            "on the move" if it.is_moving else "moved",
            it.error,
        ),
    }


def _dir_verdict(move: "DirMove") -> dict[str, Any]:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "wanted": f"{move.broker_id}:{move.path}",
        "found": move.found and f"{move.broker_id}:{move.found}",
        **row("partition_name", str(move.partition), str(move.status), move.error),
    }
