"""kctl reassign watch, verify, list: how far moves are."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli import throttle_records
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import row, show_results
from kctl.cli.reassign_door import Door, ZooKeeperOption, run_at
from kctl.cli.reassign_execute import FileArgument, dir_moves, end_throttle
from kctl.cli.reassign_files import read_reassignment
from kctl.cli.session import Session
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.log_dir_moves import DirMove
    from kctl.admin.reassignment import MoveProgress
    from kctl.model import ReplicaAssignment, TopicPartition

# Brokers hear of the end of a move a little later than the controller.
LOOKS_MAX = 4
LOOK_MS = 150
_PROGRESS_COLUMNS = (
    "topic", "partition", "adding", "removing", "done", "total", "share", "rate", "left",
)  # fmt: skip
_LIST_COLUMNS = ("topic", "partition", "replicas", "adding", "removing")

IntervalOption = Annotated[
    str, typer.Option("--interval", "-i", metavar="DURATION", help="Between two looks.")
]
OnceOption = Annotated[bool, typer.Option("--once", help="Look twice, show it, and end.")]
PreserveOption = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave kctl's throttle on.")
]


def watch(session: Session, interval: IntervalOption = "2s", once: OnceOption = False) -> int:
    """Watch replicas on the move until all are there: bytes, rate and time left, by the sizes of
    the new replicas and of those they copy. So with moves between log directories.

    A bar on a terminal; at the end, or with --once, a row for each partition.

    \b
    Examples:
      kctl reassign watch
      kctl reassign watch --once -o json
    """
    from kctl.cli.interrupt import Interrupt
    from kctl.cli.units import parse_duration_ms

    interval_ms = parse_duration_ms(interval)
    if interval_ms < 1:
        raise UsageError("--interval must be more than nothing", hint="e.g. --interval 2s")
    interrupt = Interrupt(session.runtime.scheduler)
    shown: list[dict[str, Any]] = []

    async def work(door: Door) -> None:
        await _watch(session, door, interval_ms, once, shown)

    interrupt.run(lambda: run_at(session, None, work, interrupt.guard))
    if not shown:
        session.output.say("Nothing is on the move.")
    session.output.show(shown, _PROGRESS_COLUMNS, name="partition_name")
    return interrupt.status


async def _watch(
    session: Session, door: Door, interval_ms: int, once: bool, shown: list[dict[str, Any]]
) -> None:
    from kctl.cli.progress import ProgressBar
    from kctl.runtime.future import sleep

    assert door.admin is not None
    clock = session.runtime.clock
    watched: dict[tuple[TopicPartition, int | None], _Watched] = {}
    bar: ProgressBar | None = None
    try:
        while True:
            moving = await door.admin.reassignments.progress()
            now_ms = clock.monotonic_ms()
            for it in moving:
                watched.setdefault(it.key, _Watched(it, now_ms)).see(it, now_ms)
            for key in watched.keys() - {it.key for it in moving}:
                watched[key].is_over = True
            total = sum(it.now.total_bytes for it in watched.values())
            done = sum(it.done_bytes for it in watched.values())
            rate = sum(it.rate for it in watched.values() if not it.is_over)
            bar = bar or (ProgressBar(total) if total else None)
            if bar is not None:
                bar.resize(total)
                bar.update(done, _words(len(moving), rate, total - done))
            shown[:] = [watched[key].row() for key in sorted(watched, key=_place)]
            looks = 0 if not watched else max(it.looks for it in watched.values())
            if not moving or (once and looks > 1):
                return
            await sleep(door.scheduler, interval_ms)
    finally:
        if bar is not None:
            bar.close()


def _place(key: "tuple[TopicPartition, int | None]") -> "tuple[TopicPartition, int]":
    partition, broker_id = key
    return partition, -1 if broker_id is None else broker_id


def _words(partitions: int, rate: int, left_bytes: int) -> str:
    from kctl.cli.units import format_bytes, format_duration

    left = f", {format_duration(left_bytes * 1000 // rate)} left" if rate else ""
    return f"  {format_bytes(rate)}/s{left}, {partitions} partitions"


class _Watched:
    """A partition since it was first seen on the move."""

    def __init__(self, first: "MoveProgress", now_ms: int) -> None:
        self.now = self._first = first
        self._first_ms = self._now_ms = now_ms
        self.is_over = False
        self.looks = 0

    def see(self, progress: "MoveProgress", now_ms: int) -> None:
        self.now, self._now_ms = progress, now_ms
        self.looks += 1

    @property
    def done_bytes(self) -> int:
        return self.now.total_bytes if self.is_over else self.now.done_bytes

    @property
    def rate(self) -> int:
        """Bytes a second since it is watched."""
        elapsed_ms = self._now_ms - self._first_ms
        copied = self.now.done_bytes - self._first.done_bytes
        return max(0, copied * 1000 // elapsed_ms) if elapsed_ms else 0

    def row(self) -> dict[str, Any]:
        from kctl.cli.units import format_bytes, format_duration

        tp, total = self.now.partition, self.now.total_bytes
        left = total - self.done_bytes
        is_known = self.rate > 0 and not self.is_over
        return {
            "topic": tp.topic,
            "partition": tp.partition,
            "partition_name": str(tp),
            "adding": list(self.now.adding),
            "removing": list(self.now.removing),
            "done": format_bytes(self.done_bytes),
            "total": format_bytes(total),
            "done_bytes": self.done_bytes,
            "total_bytes": total,
            "share": "moved" if self.is_over else f"{self.done_bytes * 100 // max(total, 1)}%",
            "rate": f"{format_bytes(self.rate)}/s" if is_known else None,
            "left": format_duration(left * 1000 // self.rate) if is_known else None,
        }


def list_reassignments(session: Session, zookeeper: ZooKeeperOption = None) -> int:
    """List the partitions that are on the move.

    \b
    Examples:
      kctl reassign list
      kctl reassign list -o name
    """
    moving = run_at(session, zookeeper, lambda door: door.reassignments.ongoing())
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
    """Say of each partition of a file whether it is where the file wants it; 1 if any is not.

    Once nothing is on the move, kctl's throttle is taken off.

    \b
    Examples:
      kctl reassign verify plan.json
    """
    wanted, log_dirs = read_reassignment(path)

    async def work(door: Door) -> list[dict[str, Any]]:
        from kctl.runtime.future import sleep

        dirs = await dir_moves(door, log_dirs)
        rows: list[dict[str, Any]] = []
        moving: dict[TopicPartition, ReplicaAssignment] = {}
        for _ in range(LOOKS_MAX):
            moving = await door.reassignments.ongoing()
            found = (await door.reassignments.layout(with_sizes=False)).assignment
            await dirs.look(is_last=True)
            rows = [verdict(tp, target, moving, found) for tp, target in wanted.items()]
            rows += [dir_verdict(it) for it in dirs.moves]
            if not any(it["error"] for it in rows):
                break
            await sleep(door.scheduler, LOOK_MS)
        is_over = not moving and not dirs.is_under_way
        if is_over and not preserve_throttles and throttle_records.load(door.cluster_id):
            await end_throttle(session, door)
        return rows

    rows = run_at(session, zookeeper, work)
    status = show_results(session, rows, "partition_name", hidden=["partition_name"])
    return FAILED if any(it["status"] == "on the move" for it in rows) else status


def verdict(
    tp: "TopicPartition",
    target: tuple[int, ...],
    moving: "dict[TopicPartition, ReplicaAssignment]",
    found: "Any",
) -> dict[str, Any]:
    """One partition's row: moved, on the move, or elsewhere."""
    current = moving[tp].replicas if tp in moving else found.get(tp)
    status, error = "moved", None
    if tp in moving and moving[tp].target == target:
        status = "on the move"
    elif current is None:
        error = "no such partition"
    elif found.get(tp) != target:
        error = f"is on {', '.join(map(str, found[tp]))} and not on the move there"
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "wanted": list(target),
        "found": list(current or ()),
        **row("partition_name", str(tp), status, error),
    }


def dir_verdict(move: "DirMove") -> dict[str, Any]:
    """One replica's row: in its directory, on the move, or elsewhere."""
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "wanted": f"{move.broker_id}:{move.path}",
        "found": move.found and f"{move.broker_id}:{move.found}",
        **row("partition_name", str(move.partition), str(move.status), move.error),
    }
