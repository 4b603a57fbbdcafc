"""kctl reassign plan log-dirs: replicas evened out over the directories of a broker."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kctl.cli.failures import DONE
from kctl.cli.items import counted
from kctl.cli.session import Session
from kctl.cli.units import format_bytes
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.log_dir_plan import LogDirMove
    from kctl.model import TopicPartition

_COLUMNS = ("broker", "topic", "partition", "size", "from", "to")


def plan_log_dirs(session: Session, words: Sequence[str], out: str | None) -> int:
    """Of one broker, or of all."""
    if len(words) > 1 or not all(word.isdigit() for word in words):
        raise UsageError("log-dirs takes one broker at most", hint="kctl reassign plan log-dirs 1")
    brokers = [int(word) for word in words] or None

    async def work(
        admin: "AdminClient",
    ) -> "tuple[list[LogDirMove], dict[TopicPartition, tuple[int, ...]]]":
        from kctl.admin.log_dir_plan import balance_log_dirs

        directories = await admin.log_dirs.describe(brokers)
        layout = await admin.reassignments.layout(with_sizes=False)
        return balance_log_dirs(directories), dict(layout.assignment)

    moves, assignment = session.run(work)
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
        else "Nothing has to move: each broker's directories are as even as they can be."
    )
    if out is not None and moves:
        _write(session, out, moves, assignment)
    return DONE


def _write(
    session: Session,
    out: str,
    moves: "Sequence[LogDirMove]",
    assignment: "dict[TopicPartition, tuple[int, ...]]",
) -> None:
    from pathlib import Path

    from kctl.admin.reassignment_json import format_reassignment
    from kctl.cli.reassign_files import rollback_path

    replicas = {it.partition: assignment[it.partition] for it in moves}
    forth = {(it.partition, it.broker_id): it.destination for it in moves}
    back = {(it.partition, it.broker_id): it.source for it in moves}
    for path, dirs in ((Path(out), forth), (rollback_path(out), back)):
        try:
            path.write_text(format_reassignment(replicas, dirs), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"Cannot write {path}: {error.strerror}") from None
    session.output.say(f"Wrote {out}, and {rollback_path(out)} to undo it.")
