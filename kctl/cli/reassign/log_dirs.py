"""kctl reassign plan log-dirs: evens out replicas over the directories of a broker."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kctl.admin.dead_brokers import brokers_text
from kctl.cli.failures import DONE
from kctl.cli.reassign.files import rollback_path
from kctl.cli.session import Session
from kctl.cli.units import format_bytes
from kctl.counts import counted, is_whole_number
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.log_dir_plan import LogDirMove
    from kctl.model import TopicPartition

_COLUMNS = ("broker", "topic", "partition", "size", "from", "to")


def plan_log_dirs(session: Session, arguments: Sequence[str], out: str | None) -> int:
    """Plan for one broker, or for all."""
    from kctl.admin.log_dir_plan import plan_log_dir_moves

    if len(arguments) > 1 or not all(map(is_whole_number, arguments)):
        raise UsageError("log-dirs takes one broker at most", hint="kctl reassign plan log-dirs 1")
    brokers = [int(word) for word in arguments] or None

    moves, layout = session.run(lambda admin: plan_log_dir_moves(admin, brokers))
    # The file first: the reader of what is printed may be gone.
    is_written = out is not None and bool(moves)
    if out is not None and moves:
        _write(out, moves, layout.assignment)
    rows: list[dict[str, Any]] = [
        {
            "broker": it.broker_id,
            "topic": it.partition.topic,
            "partition": it.partition.partition,
            "partition_name": str(it.partition),
            "size": format_bytes(it.size_bytes),
            "size_bytes": it.size_bytes,
            "from": it.source,
            "to": it.destination,
        }
        for it in moves
    ]
    session.output.show(rows, _COLUMNS, name="partition_name")
    total = format_bytes(sum(it.size_bytes for it in moves))
    session.output.say(
        f"{counted(len(moves), 'replica')}, {total} to copy between directories."
        if moves
        else "Nothing has to move: each broker's directories are as even as possible."
    )
    if layout.dead and brokers is None:
        dead = brokers_text(layout.dead)
        session.output.say(f"{dead}: the plan contains no directories of dead brokers.")
    if is_written and out is not None:
        session.output.say(f"Wrote {out}, and {rollback_path(out)} to undo it.")
    return DONE


def _write(
    out: str,
    moves: "Sequence[LogDirMove]",
    assignment: "Mapping[TopicPartition, tuple[int, ...]]",
) -> None:
    from pathlib import Path

    from kctl.admin.reassignment_json import format_reassignment

    replicas = {it.partition: assignment[it.partition] for it in moves}
    forth = {(it.partition, it.broker_id): it.destination for it in moves}
    back = {(it.partition, it.broker_id): it.source for it in moves}
    for path, dirs in ((Path(out), forth), (rollback_path(out), back)):
        try:
            path.write_text(format_reassignment(replicas, dirs), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"Cannot write {path}: {error.strerror}") from None
