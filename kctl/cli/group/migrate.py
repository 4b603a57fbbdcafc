"""kctl group migrate: moves the committed offsets of groups between ZooKeeper and Kafka."""

import shlex
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.declarations import Argument, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.group.zookeeper import NeededZooKeeperOption, run_on_zookeeper, shown_number
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.cli.text_files import read_text
from kctl.counts import counted, is_whole_number
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.group_migration import (
        GroupMigration,
        MigrationPlan,
        MigrationStep,
        OffsetStore,
    )
    from kctl.admin.zookeeper_cluster import ZooKeeperCluster
    from kctl.cli.session import Change

_COLUMNS = ("group", "topic", "partition", "current_offset", "new_offset", "note")


def migrate(
    session: Session,
    zookeeper: NeededZooKeeperOption,
    names: Annotated[list[str] | None, Argument(metavar="GROUP", help="Names or globs.")] = None,
    to: Annotated[
        str | None, Option("--to", metavar="kafka|zookeeper", help="Where the offsets go.")
    ] = None,
    undo_file: Annotated[
        str | None,
        Option(
            "--undo-file",
            metavar="FILE",
            help="Where to write the replaced offsets. [default: migrate-to-STORE.undo.json]",
        ),
    ] = None,
    rollback: Annotated[
        str | None,
        Option("--rollback", metavar="FILE", help="Restore the offsets in such a file."),
    ] = None,
    mirror: Annotated[
        list[str] | None,
        Option(
            "--mirror",
            metavar="[BROKER=]NAME",
            help="Translate positions of Kafka 0.7 by the map of this mirror of a broker; may be "
            "repeated.",
        ),
    ] = None,
) -> int:
    """Copy the committed offsets of groups from ZooKeeper to Kafka, or back. Groups with live
    members on either side are refused.

    The command shows the plan and asks first. Before it changes anything, it writes a file with the
    offsets that it replaces, which --rollback restores. It reads back what it has written. The
    offsets at the source stay.

    Groups of Kafka 0.7 have positions in bytes. With --mirror, they become the offsets of the same
    records where `kctl mirror run` has copied them to from kafka-0.7:// or zookeeper-0.7://.

    \b
    Examples:
      kctl group migrate billing --to kafka --zookeeper zk1:2181 -b kafka1:9092 --dry-run
      kctl group migrate '*' --to kafka --zookeeper zk1:2181 --yes
      kctl group migrate --rollback migrate-to-kafka.undo.json --zookeeper zk1:2181 --yes
      kctl group migrate billing --to kafka --zookeeper old:2181 -b dc2:9092 --mirror 0=old1
    """
    from kctl.admin.group_migration import parse_undo_document

    if rollback is not None:
        if names or to or undo_file or mirror:
            raise UsageError("--rollback takes groups and direction from the file")
        document = parse_undo_document(read_text(rollback), rollback)
        return write_offsets(
            session, zookeeper, lambda migration: migration.plan_rollback(document)
        )
    store, path = _direction(session, names, to, undo_file)
    mirrors = _mirrors(mirror or [], store)

    def plan(migration: "GroupMigration") -> "Coroutine[Any, Any, MigrationPlan]":
        if not mirrors:
            return migration.plan(names or [], store)
        from kctl.mirror.groups07 import plan_migration07

        return plan_migration07(migration, names or [], mirrors)

    return write_offsets(session, zookeeper, plan, lambda it: _keep(session, it, path, zookeeper))


def _direction(
    session: Session, names: list[str] | None, to: str | None, undo_file: str | None
) -> "tuple[OffsetStore, Path]":
    """Return where the offsets go, and the file with those that they replace; UsageError."""
    from kctl.admin.group_migration import OffsetStore

    if not names:
        raise UsageError("No groups given", hint="name groups, or '*' for all")
    if to not in list(OffsetStore):
        raise UsageError("Give the direction", hint="--to kafka or --to zookeeper")
    path = Path(undo_file or f"migrate-to-{to}.undo.json")
    if path.exists() and not session.dry_run:
        raise UsageError(
            f"{path} exists already: it may undo an earlier migration",
            hint="give another --undo-file, or remove it",
        )
    return OffsetStore(to), path


def _keep(session: Session, plan: "MigrationPlan", path: Path, zookeeper: str) -> None:
    """Write what a migration replaces to a new file."""
    from kctl.admin.group_migration import undo_document

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(undo_document(plan))
    except OSError as error:
        raise UsageError(
            f"Cannot write {path}: {error.strerror}", hint="give another --undo-file"
        ) from None
    undo = f"group migrate --rollback {shlex.quote(str(path))}"
    session.output.say(f"To undo it: {session.command(undo, zookeeper=zookeeper)}")


def _mirrors(given: list[str], to: str) -> dict[int | None, str]:
    """Return the names of mirrors by broker id, None for all brokers."""
    from kctl.mirror.formats import check_name

    mirrors: dict[int | None, str] = {}
    for text in given:
        broker, equals, name = text.rpartition("=")
        if equals and not is_whole_number(broker):
            raise UsageError(f"Not a broker id and a mirror: {text}", hint="e.g. --mirror 0=old1")
        check_name(name)
        key = int(broker) if equals else None
        if key in mirrors:
            raise UsageError(
                f"Two mirrors are given for {'all brokers' if key is None else broker}"
            )
        mirrors[key] = name
    if mirrors and to != "kafka":
        raise UsageError("--mirror translates offsets on the way to Kafka", hint="--to kafka")
    return mirrors


def write_offsets(
    session: Session,
    zookeeper: str,
    plan: "Callable[[GroupMigration], Coroutine[Any, Any, MigrationPlan]]",
    keep: "Callable[[MigrationPlan], object] | None" = None,
    *,
    needs_brokers: bool = True,
) -> int:
    """Plan with `plan`, ask, call `keep` with the plan, execute it; return the exit status."""

    def work(
        cluster: "ZooKeeperCluster",
    ) -> "Coroutine[Any, Any, Change[MigrationPlan, MigrationPlan]]":
        from kctl.admin.group_migration import GroupMigration

        return session.carry_out(
            GroupMigration(cluster.admin, cluster.groups, has_brokers=needs_brokers),
            plan,
            _question,
            lambda migration, planned: migration.execute(planned, keep),
        )

    change = run_on_zookeeper(session, zookeeper, work, needs_brokers=needs_brokers)
    if change.is_declined:
        return DONE
    planned = change.plan
    status = "would write" if change.result is None else "written"
    for error in planned.refused.values():
        session.output.say(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
    rows = _rows(planned, status)
    shown = show_results(session, rows, "partition_name", hidden=["partition_name"])
    return FAILED if planned.refused else shown


def _question(plan: "MigrationPlan") -> Question | None:
    if not plan.changes:
        return None
    groups = sum(any(step.is_change for step in steps) for steps in plan.steps.values())
    place = "Kafka" if plan.to == "kafka" else "ZooKeeper"
    text = f"Write {counted(plan.changes, 'offset')} of {counted(groups, 'group')} to {place}?"
    return Question(Table(_COLUMNS, _rows(plan, "")), text)


def _rows(plan: "MigrationPlan", status: str) -> list[dict[str, Any]]:
    return [_row(name, step, status) for name, steps in plan.steps.items() for step in steps]


def _row(name: str, step: "MigrationStep", status: str) -> dict[str, Any]:
    is_written = step.wanted != step.at_target
    return {
        "group": name,
        "topic": step.partition.topic,
        "partition": shown_number(step.partition.partition),
        "current_offset": step.at_target,
        "new_offset": step.wanted,
        "note": step.note or None,
        **row(
            "partition_name", f"{name}:{step.partition}", status if is_written else "left alone",
            step.error,
        ),
    }  # fmt: skip
